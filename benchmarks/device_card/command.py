"""Everything to be known of one card in one command: `python -m benchmarks.device_card --output DIR --device cuda`.

Needs torch and the standard library; takes torchvision's networks where it is installed, the zoo's otherwise, and
every profile says which. Predictions need the simulator's packages too (numpy, networkx, simpy, pydantic); without
them they are left out, and `python -m benchmarks.device_card.gpu_validation DIR` makes them from the same profiles
elsewhere.

    DIR/profiles/MODEL-DTYPE.json   a profile, as `traces.capture.command` makes it
    DIR/cards/MODEL-DTYPE.json      its predictions, written first, and then what was measured of each
    DIR/copies.json                 how long copies take

A file that exists is not made again, nor a check that was measured, so the command goes on where it stopped. It
stops by itself when `--minutes` are over, between two measurements, and says what is left; exit code 1 then.

Each network is captured at the largest power of two up to 256 whose step fits in memory and takes no longer than
`--longest-step`, and at all powers of two below it.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import importlib
import importlib.util
import json
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import torch

from benchmarks.device_card import cards
from benchmarks.device_card.cards import Card
from benchmarks.device_card.measured_checks import measured
from benchmarks.device_card.memory_copies import DIRECTIONS, curve
from benchmarks.device_card.whole_steps import WholeSteps
from simulator.errors import InputError, ShardscopeError, UnknownNameError
from simulator.files import write_json, write_profile
from traces.capture import machine_settings
from traces.capture.command import capture, summary
from traces.capture.measurement_rounds import median
from traces.zoo.networks import Network, load

MODELS = ("alexnet", "vgg16", "resnet50", "inception_v3", "vit_b16", "gpt2_small")
TORCHVISION: dict[str, dict[str, bool]] = {
    "alexnet": {},
    "vgg16": {},
    "resnet50": {},
    "inception_v3": {"aux_logits": False, "init_weights": True},
}
DEFAULT_DTYPES = ("tf32", "bfloat16", "float32")
"""In the order in which they are measured; the command stops between two when its time is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """What to make, where, and how thoroughly. With `quick` batches are small and repeats few: a trial run."""

    output: Path
    device: str = "cuda"
    models: Sequence[str] = MODELS
    dtypes: Sequence[str] = DEFAULT_DTYPES
    minutes: float = 8.0
    longest_step_s: float = 0.08
    quick: bool = False
    command: str = ""
    started_s: float = field(default_factory=time.monotonic)

    @property
    def repeats(self) -> int:
        return 2 if self.quick else 30

    @property
    def largest_batch(self) -> int:
        return 4 if self.quick else 256

    @property
    def over(self) -> bool:
        return time.monotonic() - self.started_s > 60 * self.minutes


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; 0 when all is there, 1 when time was over, 2 after one line about what is wrong."""
    argv = sys.argv[1:] if argv is None else argv
    suite = Suite(**vars(_parser().parse_args(argv)), command=f"python -m benchmarks.device_card {shlex.join(argv)}")
    try:
        return run(suite)
    except (ShardscopeError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def run(suite: Suite) -> int:
    """Make what is missing, until all is there (0) or time is over (1). Raises InputError or OSError."""
    machine_settings.torch_device_of(suite.device)
    for model in suite.models:
        load(model)
    unknown = [dtype for dtype in suite.dtypes if dtype not in machine_settings.DTYPES]
    if unknown:
        raise UnknownNameError.of("dtype", unknown[0], machine_settings.DTYPES)
    for name in ("profiles", "cards"):
        (suite.output / name).mkdir(parents=True, exist_ok=True)
    jobs = list(_jobs(suite))
    for number, (name, job) in enumerate(jobs, 1):
        if suite.over:
            print(
                f"{suite.minutes:g} minutes are over; {len(jobs) - number + 1} of {len(jobs)} left, from {name} on: "
                "the same command goes on"
            )
            return 1
        job()
    stored = [cards.read_card(path) for path in (suite.output / "cards").glob("*.json")]
    left = sum(not check.done for card in stored for check in card.checks)
    print(f"{left} checks left: the same command goes on" if left else f"all is there, in {suite.output}")
    return 1 if left else 0


def network_of(model: str) -> tuple[Network, str]:
    """A network and where it comes from: torchvision where it is installed and has it, otherwise the zoo."""
    network = load(model)
    if model not in TORCHVISION or importlib.util.find_spec("torchvision") is None:
        return network, "Shardscope's zoo"
    torchvision = importlib.import_module("torchvision")
    made = getattr(torchvision.models, model)
    return replace(network, build=lambda: made(**TORCHVISION[model])), f"torchvision {torchvision.__version__}"


def _jobs(suite: Suite) -> Iterator[tuple[str, Callable[[], None]]]:
    """(name, what to do) of all that is not there yet, one type of numbers after another."""
    if not (suite.output / "copies.json").exists():
        yield "copies", partial(_copies, suite)
    for dtype in suite.dtypes:
        if dtype == "tf32" and not suite.device.startswith("cuda"):
            print("tf32: skipped, only GPUs have it")
            continue
        for model in suite.models:
            if not (suite.output / "profiles" / f"{model}-{dtype}.json").exists():
                yield f"profile {model}-{dtype}", partial(_profile, suite, model, dtype)
        for model in suite.models:
            yield f"checks of {model}-{dtype}", partial(_card, suite, model, f"{model}-{dtype}")


def _profile(suite: Suite, model: str, dtype: str) -> None:
    network, source = network_of(model)
    size = _largest(suite, network, dtype)
    while True:
        try:
            profile = capture(
                network,
                size,
                device=suite.device,
                dtype=dtype,
                repeats=suite.repeats,
                warmup=1 if suite.quick else 3,
                threads=torch.get_num_threads(),
                command=suite.command,
            )
            break
        except InputError:
            # layer by layer takes more memory than a whole step does
            if size == 1:
                raise
            size //= 2
            _tidy()
    profile = replace(profile, model=model, notes=f"{profile.notes}; network of {source}")
    write_profile(profile, suite.output / "profiles" / f"{model}-{dtype}.json")
    print(summary(profile), flush=True)
    _tidy()


def _largest(suite: Suite, network: Network, dtype: str) -> int:
    """The largest power of two whose step fits in memory and takes no longer than it may; at least 1."""
    torch_device, size = machine_settings.torch_device_of(suite.device), 1
    with machine_settings.settings(torch.get_num_threads(), dtype, 0, torch_device):
        while size < suite.largest_batch:
            try:
                with machine_settings.memory_errors(2 * size, suite.device):
                    step_s = _whole_step_s(network, torch_device, dtype, 2 * size)
            except InputError:
                break
            finally:
                _tidy()
            if step_s > suite.longest_step_s:
                break
            size *= 2
    return size


def _whole_step_s(network: Network, torch_device: torch.device, dtype: str, batch_size: int) -> float:
    """Median seconds of three steps; nothing holds the network's memory when this returns."""
    return median(WholeSteps(network, torch_device, machine_settings.torch_dtype_of(dtype), batch_size).eager_s(3))


def _predicted(card: Card, profile_path: Path) -> Card:
    """The card with its predictions; without them where a package of the simulator is absent."""
    try:
        from benchmarks.device_card.predictions import predicted
    except ImportError as error:
        return replace(card, unpredicted=f"{error.name} is not installed here")
    return predicted(card, profile_path)


def _card(suite: Suite, model: str, name: str) -> None:
    """Predict every check of a profile, then measure those that were not, storing each as it comes."""
    path, source = suite.output / "cards" / f"{name}.json", suite.output / "profiles" / f"{name}.json"
    content = json.loads(source.read_text(encoding="utf-8"))
    if not path.exists():
        card = cards.card_of(content, datetime.date.today().isoformat())
        write_json(_predicted(card, source), path)
    card = cards.read_card(path)
    network, torch_device = network_of(model)[0], machine_settings.torch_device_of(suite.device)
    times = [(layer["name"], layer["forward_s"] + layer["backward_s"]) for layer in content["layers"]]
    for number, check in enumerate(card.checks):
        if check.done:
            continue
        if suite.over:
            return
        with machine_settings.settings(torch.get_num_threads(), card.dtype, number, torch_device):
            filled = measured(
                check, network, torch_device, machine_settings.torch_dtype_of(card.dtype), times, suite.repeats
            )
        card = replace(card, checks=(*card.checks[:number], filled, *card.checks[number + 1 :]))
        write_json(card, path)
        _tidy()
    print(f"{name}: {sum(check.measured is not None for check in card.checks)} checks measured", flush=True)


def _copies(suite: Suite) -> None:
    """Copies of 4 KiB to 256 MiB, every power of two; two sizes in a trial run."""
    torch_device = machine_settings.torch_device_of(suite.device)
    sizes = [4096, 65536] if suite.quick else [4096 << i for i in range(17)]
    on_gpu = torch_device.type == "cuda"
    absent = {} if on_gpu else {name: "needs a CUDA device" for name in DIRECTIONS if "host" in name}
    with machine_settings.settings(torch.get_num_threads(), "float32", 0, torch_device):
        curves = {name: curve(torch_device, name, sizes, suite.repeats) for name in DIRECTIONS if name not in absent}
    copies = cards.Copies(
        device=machine_settings.device_name(torch_device, torch.get_num_threads()),
        date=datetime.date.today().isoformat(), repeats=suite.repeats, curves=curves, skipped=absent,
    )  # fmt: skip
    write_json(copies, suite.output / "copies.json")
    print(f"copies: {', '.join(curves)}", flush=True)


def _tidy() -> None:
    """Give memory back, so that one measurement does not take it from the next."""
    gc.collect()
    torch.cuda.empty_cache()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.device_card", description="All of one card.")
    parser.add_argument("--output", type=Path, required=True, help="the folder to write; what it has is kept")
    parser.add_argument("--device", default="cuda", help="cuda (default), cuda:N or cpu")
    parser.add_argument("--models", type=_words, default=MODELS, help=f"default {','.join(MODELS)}")
    parser.add_argument("--dtypes", type=_words, default=DEFAULT_DTYPES, help=f"default {','.join(DEFAULT_DTYPES)}")
    parser.add_argument("--minutes", type=float, default=8.0, help="when to stop (default 8); run again for the rest")
    parser.add_argument("--longest-step", type=float, default=0.08, dest="longest_step_s",
                        help="seconds that a step of the batch to capture may take (default 0.08)")  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="a trial run: small batches, two repeats")
    return parser


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))
