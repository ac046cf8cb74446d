"""Measure a network layer by layer on this machine: `python -m traces.capture MODEL --batch-size N --output FILE`.

torch.fx follows the network's code where it can, one graph for all batch sizes. Otherwise the network runs once on
random data of each batch size and what it calls is recorded: any Python, several inputs, dictionaries; control flow is
then as that run had it, and the profile's notes say so.

Needs torch and the standard library only. Every time is a median over rounds of measurement after the warm-up,
every spread an interquartile range. The last layer is the loss: the network's own where it returns one, otherwise cross
entropy against random classes.

The sum of the layers is compared with the ordinary whole step, measured in the same rounds. On a CPU they are scaled to
it, at every batch size (measurement_rounds.py); notes say by how much they were off. On a GPU

- *launching*: layers are launched while the GPU sleeps, so their times hold none of it; the whole step holds as much
  as an ordinary one: layers_to_step is well below 1 where launching limits the step. Notes count where it failed.
- *whole steps* are timed by events between the ends of consecutive steps, not from a quiet GPU to a quiet GPU.
- *caches*: a layer runs right after those that made its inputs, so the L2 cache holds what it holds in training.
- *autotuning*: cuDNN tries its kernels in the warm-up, once per shape, and the same choice serves the whole step and
  the layers. A narrow layer is a shape of its own, tuned likewise.
- *kernels shared by neighbours*: activations in place are layers of their own, as they are in the eager step. The
  optimizer's kernels update all layers at once: they are timed once and shared out by parameters.
- *first layers* compute no gradient of the data, in the step and in the sum alike.
- *clocks* and settings are left alone, and the clocks noted right after the measurement. All that is measured takes
  turns within every round, so that a clock that drifts hits all alike.

Processes of torchrun (`torchrun --nproc-per-node 2 -m traces.capture ...`) measure at the same time, as the ranks of a
run share caches and memory, and the first writes the median of all (median_profile.py).

On a CPU with glibc, tensors above 32 MB go back to the system when they die, and each new one costs page faults.
MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=100000000000 in the environment keeps them, as a GPU's allocator does;
the profile notes such settings.
"""

from __future__ import annotations

import argparse
import datetime
import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from math import inf, log
from pathlib import Path
from typing import TextIO

from simulator.errors import require, require_count
from simulator.files import check_writable, write_profile
from simulator.one_line_parser import OneLineParser, count, duration, whole
from simulator.units import format_duration, format_time
from simulator.workload import Profile
from traces.capture import machine_settings
from traces.capture.doubts import doubt
from traces.capture.measurement_rounds import MeasurementRounds, median, spread
from traces.capture.median_profile import median_of_ranks, rank_of_torchrun
from traces.capture.momentum_sgd import LEARNING_RATE, MOMENTUM
from traces.zoo.networks import ZOO, Network, NetworkInput, load
from traces.zoo.own_network import add_input_arguments

MOST_SERIES = 3
AGAIN_WITHIN_S = 300.0
"""A disturbed series is measured again as often, if this much time has not passed."""
FRACTIONS = (Fraction(1, 2), Fraction(1, 4), Fraction(1, 8))
QUIET_S = 2.0
"""What takes less needs no line."""
LINE_EVERY_S = 30.0
"""How often a file or a pipe gets a line; a terminal's is written over."""


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code 0. Raises ShardscopeError or OSError, and SystemExit for its options."""
    argv = sys.argv[1:] if argv is None else argv
    options = vars(parser().parse_args(argv))
    output, rank = options.pop("output"), rank_of_torchrun()
    check_writable(output)
    command = "python -m traces.capture " + shlex.join(argv)
    profile = median_of_ranks(capture(**options, command=command, progress=None if rank else sys.stderr))
    if rank == 0:
        write_profile(profile, output)
        print(summary(profile))
    return 0


def capture(
    model: str | Network,
    batch_size: int,
    *,
    device: str = "cpu",
    dtype: str = "float32",
    threads: int = 1,
    repeats: int = 30,
    warmup: int = 2,
    budget_s: float = inf,
    fractions: Sequence[Fraction] = FRACTIONS,
    input_shape: tuple[int, ...] | None = None,
    classes: int | None = None,
    vocabulary: int | None = None,
    inputs: Sequence[NetworkInput] = (),
    tiny: bool = False,
    seed: int = 0,
    command: str = "",
    progress: TextIO | None = None,
) -> Profile:
    """Measure a network at `batch_size` and at the powers of two below it.

    model: a zoo name, "hf:" and a configuration, `package.module:callable` (see zoo.load for the arguments it needs),
    or a Network. tiny: few blocks and short samples of an hf: network.
    dtype: "float32", "tf32" (float32 with TensorFloat-32 products on a GPU) or "bfloat16" (parameters too).
    inputs: those of a network that reads several, or one by keyword. threads: of the CPU. budget_s: rounds end earlier,
    once the median step is known to 1 %, or this time is spent. progress: where to say how far it is. Raises
    UnknownNameError for an unknown model, InputError for an absent device, too little memory or a network that does
    not run.
    """
    for name, value in (("batch_size", batch_size), ("repeats", repeats), ("threads", threads)):
        require_count(name, value)
    processors = os.cpu_count() or 1
    require(threads <= processors, "threads", threads, f"it is at most {processors}, the processors of this machine")
    require(warmup >= 0, "warmup", warmup, "it is at least 0")
    network = load(model, input_shape, classes, vocabulary, inputs, tiny) if isinstance(model, str) else model
    torch_device = machine_settings.torch_device_of(device)
    with (
        machine_settings.settings(threads, dtype, seed, torch_device),
        machine_settings.memory_errors(batch_size, device),
    ):
        rounds = MeasurementRounds(network, torch_device, batch_size, machine_settings.torch_dtype_of(dtype), fractions)
        series = list(_series(rounds, repeats, warmup, budget_s, progress))
    best, counted = min(series, key=lambda each: abs(log(each[0].layers_to_step or 1.0)))
    again = f"; the best of {len(series)} series" if len(series) > 1 else ""
    return replace(
        best,
        model=model if isinstance(model, str) else "network",
        device=machine_settings.device_name(torch_device, threads),
        dtype=dtype,
        software=machine_settings.software(torch_device),
        command=command,
        date=datetime.date.today().isoformat(),
        notes=f"medians and interquartile ranges of {counted} rounds after {warmup} of warm-up{again}; random inputs; "
        f"SGD with momentum {MOMENTUM}, learning rate {LEARNING_RATE}{best.notes}",
    )


def _series(
    rounds: MeasurementRounds, repeats: int, warmup: int, budget_s: float, progress: TextIO | None
) -> Iterator[tuple[Profile, int]]:
    """What rounds measured, without names, and how many they were; again where the machine disturbed it, while there
    is time."""
    began_s = time.monotonic()
    for _ in range(MOST_SERIES):
        with following(progress, rounds.points, began_s + budget_s) as follow:
            rounds.measure(repeats, warmup, follow, began_s + budget_s)
        seen = rounds.circumstances()
        profile = Profile(
            model="",
            device="",
            batch_size=len(rounds.inputs),
            step_s=median(rounds.whole_s),
            step_spread_s=spread(rounds.whole_s),
            layers_to_step=median([seen.ratio]),
            notes="".join(f"; {remark}" for remark in rounds.remarks()),
            doubt=doubt(seen),
            layers=tuple(rounds.layers()),
        )
        yield profile, len(rounds.whole_s)
        if not (seen.off and seen.disturbed) or time.monotonic() > began_s + min(budget_s, AGAIN_WITHIN_S):
            return


def summary(profile: Profile) -> str:
    """Two lines about a captured profile, a third where its times are doubtful."""
    megabytes = profile.parameter_bytes / 1e6
    return (
        f"{profile.model}: batch {profile.batch_size} of {profile.dtype} on {profile.device}, {len(profile.layers)} "
        f"layers, {megabytes:.4g} MB of parameters\n"
        f"sum of layers {format_time(profile.layers_s)}, whole step {format_time(profile.step_s or 0.0)} "
        f"(interquartile range {format_time(profile.step_spread_s)}), ratio {profile.layers_to_step:.3f}"
        + f"\ndoubtful: {profile.doubt}"
        * bool(profile.doubt)
    )


def parser() -> argparse.ArgumentParser:
    """The arguments of the command line."""
    parser = OneLineParser(prog="shardscope capture", description="Measure a network layer by layer.")
    text = (
        "package.module:callable, whose code runs here; hf: and a kind of model of Hugging Face's transformers or its "
    )
    text += f"config.json, such as hf:t5, with random weights; or one of {', '.join(ZOO)}"
    parser.add_argument("model", help=text)
    parser.add_argument("--batch-size", type=count, required=True, help="samples per step")
    parser.add_argument("--output", type=Path, required=True, help="the JSON file to write")
    parser.add_argument("--device", default="cpu", help="cpu (default), cuda or cuda:N")
    parser.add_argument("--dtype", choices=machine_settings.DTYPES, default="float32", help="of data and parameters")
    parser.add_argument("--threads", type=count, default=1, help="CPU threads (default 1)")
    parser.add_argument("--repeats", type=count, default=30, help="rounds of measurement (default 30)")
    text = "end earlier: once the median step is known to 1%%, or this time is spent, e.g. 2min"
    parser.add_argument("--budget", dest="budget_s", metavar="TIME", type=duration, default=inf, help=text)
    parser.add_argument("--warmup", type=whole, default=2, help="rounds before them that do not count (default 2)")
    add_input_arguments(parser)
    parser.add_argument("--seed", type=whole, default=0, help="of inputs and parameters (default 0)")
    return parser


@contextmanager
def following(stream: TextIO | None, subject: str, ends_s: float = inf) -> Iterator[Callable[[int, int], None] | None]:
    """What to call with (rounds done, rounds in all) after each; None without a stream. ends_s: by time.monotonic, when
    rounds end at the latest."""
    if stream is None:
        yield None
        return
    began, written_at = time.monotonic(), -inf

    def follow(done: int, rounds: int) -> None:
        nonlocal written_at
        now = time.monotonic()
        left_s = min((now - began) / done * (rounds - done), max(ends_s - now, 0.0))
        terminal = stream.isatty()
        if now - began + left_s < QUIET_S or (not terminal and now - written_at < LINE_EVERY_S):
            return
        written_at = now
        text = f"measuring {subject}: round {done} of {rounds}, about {format_duration(left_s)} left"
        stream.write(f"\r{text[: _width()]:{_width()}}" if terminal else f"{text}\n")
        stream.flush()

    try:
        yield follow
    finally:
        if stream.isatty() and written_at > -inf:
            stream.write("\r" + " " * _width() + "\r")


def _width() -> int:
    return shutil.get_terminal_size().columns - 1
