"""What predictions of a suite are made from: captures, profiles, overheads, calibrated labs. None is measured in a run.

A file that exists is not made again. As a shared machine's speed drifts, every network is captured on all cores and
every lab calibrated several times, in turns, spread over the rounds of the suite; the medians count.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from simulator import files
from simulator.cluster import Cluster
from simulator.network.catalogue import read_cluster, read_runtime, write_cluster
from simulator.owned_files import temporary_folder
from simulator.plan import Synchronisation
from simulator.runtime import Runtime
from traces.calibrate.links import calibrate
from traces.calibrate.measured_points import sizes_to
from traces.calibrate.median_calibration import median_calibration
from traces.calibrate.runtime_overheads import pass_cost, pass_overhead_s, task_overhead_s, wrapped_overhead_s
from traces.capture.command import FRACTIONS, capture
from traces.capture.median_profile import median_profile
from traces.lab.launch import launch
from traces.lab.rank import Rank
from traces.lab.shaped_network import Lab, Shaping
from traces.results.validation_cases import Case, LabNetwork, pinning
from traces.results.validations import Overhead
from traces.zoo.networks import load

BATCH_SIZE = 32
REPEATS = {"inputs": 3, "capture": 10, "overhead": 15}
"""How many captures of each network and calibrations of each lab there are at least, one a round or more, how often a
capture measures every layer, and how many steps are taken to see what a runtime adds to them."""
CALIBRATED_BYTES: tuple[int, ...] = (64, *(1 << exponent for exponent in range(12, 24)))


def measure_inputs(
    model: str,
    cases: Sequence[Case],
    folder: Path,
    cores: Sequence[int],
    say: Callable[[str], None],
    repeats: Mapping[str, int],
    round_number: int = 0,
    rounds: int = 1,
) -> None:
    """Measure what predictions of those `cases` that train `model` are made from in a round of them all, unless it is
    stored.

    repeats: as REPEATS. The profile of a network and the cluster of a lab are the medians of what was measured of them
    until now.
    """
    of_model = [case for case in cases if case.model == model]
    split = any(case.via == "execute" for case in of_model)  # neither torch's DDP nor its pipelines split channels
    networks = list(dict.fromkeys(case.network for case in of_model))
    inputs = max(repeats["inputs"], rounds)
    for number in range(inputs * round_number // rounds, inputs * (round_number + 1) // rounds):
        _captured(folder, model, number, cores, say, repeats["capture"], fractions=split)
        for network in networks:
            using = [case.model for case in cases if case.network == network]
            _calibrated(folder, network, number, using, cores, say)
    captures = sorted((folder / "captures").glob(f"{model}.*.json"))
    files.write_profile(median_profile([files.read_profile(path) for path in captures]), _profile(folder, model))
    for network in networks:
        made = sorted((folder / "calibrations").glob(f"{network.name}.*.yaml"))
        cluster, runtime = median_calibration([(read_cluster(path), read_runtime(path)) for path in made])
        write_cluster(cluster, folder / "clusters" / f"{network.name}.yaml", runtime)
    if any(case.needs_overhead for case in of_model):
        pipelined = any(case.via == "pipelining" for case in of_model)
        _overhead(folder, model, pipelined, cores, say, repeats["overhead"])


def _profile(folder: Path, model: str) -> Path:
    return folder / "profiles" / f"{model}.json"


def _captured(
    folder: Path, model: str, number: int, cores: Sequence[int], say: Callable[[str], None], repeats: int, *,
    fractions: bool,
) -> None:  # fmt: skip
    """Capture the network on every core at once, as caches and memory are shared in the runs, unless it is stored."""
    path = folder / "captures" / f"{model}.{number}.json"
    if not path.exists():
        say(f"capture {number + 1} of {model}")
        command = "shardscope validate"
        capture_on_all_cores(path, model, BATCH_SIZE, cores, command, fractions=fractions, repeats=repeats)


def capture_on_all_cores(
    path: Path, model: str, batch_size: int, cores: Sequence[int], command: str, *, fractions: bool = True,
    repeats: int = REPEATS["capture"],
) -> None:  # fmt: skip
    """Write the profile of a network captured on every core at once: the median of the cores, which differ in speed.

    command: what its file says it was made by. fractions: whether layers are measured with parts of their channels.
    repeats: how often every layer is measured.
    """
    with temporary_folder() as folder:
        arguments: dict[str, object] = {
            "folder": folder,
            "model": model,
            "batch_size": batch_size,
            "command": command,
            "fractions": fractions,
            "repeats": repeats,
        }
        written = on_all_cores("traces.validation.measured_inputs:capture_rank", cores, arguments, timeout_s=900)
        files.write_profile(median_profile([files.read_profile(each) for each in written]), path)


def on_all_cores(target: str, cores: Sequence[int], arguments: dict[str, object], timeout_s: float) -> list[Any]:
    """What `target` returns in a process on each core, none of which talks to another."""
    pinned = pinning(len(cores), cores)
    return launch(target, len(cores), arguments=arguments, cores=pinned, backend="", timeout_s=timeout_s)


def capture_rank(
    rank: Rank, folder: str, model: str, batch_size: int, command: str, fractions: bool, repeats: int
) -> str:
    """What each process of a capture on all cores does; where it wrote its profile."""
    rank.doing(f"capture of {model}")
    profile = capture(model, batch_size, repeats=repeats, fractions=FRACTIONS if fractions else (), command=command)
    path = Path(folder, f"{rank.number}.json")
    files.write_profile(profile, path)
    return str(path)


def _overhead(
    folder: Path, model: str, pipelined: bool, cores: Sequence[int], say: Callable[[str], None], repeats: int
) -> None:
    """Measure what runtimes add to the work of the network's layers, unless it is stored: torch's pipelines, where it
    is `pipelined`, between two processes, the others on every core at once."""
    path = folder / "overheads" / f"{model}.json"
    if not path.exists():
        say(f"runtimes' overhead on {model}")
        arguments: dict[str, object] = {"path": str(_profile(folder, model)), "repeats": repeats}
        overheads_s = on_all_cores("traces.validation.measured_inputs:overhead_rank", cores, arguments, timeout_s=300)
        of_task_s, ddp_s = (statistics.fmean(each) for each in zip(*overheads_s, strict=True))
        of_pass_s = _pass_overhead_s(cores, arguments) if pipelined else 0.0
        overhead = Overhead(task_overhead_s=of_task_s, pass_overhead_s=of_pass_s, ddp_step_s=ddp_s)
        files.write_json(overhead, path)


def _pass_overhead_s(cores: Sequence[int], arguments: dict[str, object]) -> float:
    """What torch's pipelines add to a pass, between two processes over loopback: what a lab's links add to moving bytes
    is calibrated."""
    pinned = [[core] for core in cores[:2]]
    by_rank = launch("traces.validation.measured_inputs:pass_rank", 2, arguments=arguments, cores=pinned, timeout_s=300)
    return pass_overhead_s(by_rank, send_cpu_s_per_byte=0.0)


def pass_rank(rank: Rank, path: str, repeats: int) -> tuple[float, float]:
    """What each process of `_pass_overhead_s` does."""
    rank.doing("a pipeline of two stages")
    return pass_cost(files.read_profile(path), rank.number, repeats=repeats)


def overhead_rank(rank: Rank, path: str, repeats: int) -> tuple[float, float]:
    """What each process of `_overhead` does: seconds per task of our executor, per step of DistributedDataParallel."""
    profile = files.read_profile(path)
    rank.doing("a step of the executor alone")
    of_task_s = task_overhead_s(profile, repeats=repeats)
    rank.doing("DistributedDataParallel on one rank")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]
    network, half = load(profile.model), profile.batch_size // 2
    ddp_s = wrapped_overhead_s(network, half, DistributedDataParallel, repeats=repeats)
    dist.destroy_process_group()
    return of_task_s, ddp_s


def _calibrated(
    folder: Path, network: LabNetwork, number: int, models: Sequence[str], cores: Sequence[int],
    say: Callable[[str], None],
) -> None:  # fmt: skip
    """Calibrate the lab unless it is stored; as a user does, up to what the largest of the models sends."""
    path = folder / "calibrations" / f"{network.name}.{number}.yaml"
    if not path.exists():
        say(f"calibration {number + 1} of lab {network.name}")
        sizes = CALIBRATED_BYTES
        if network.shaping is not None:
            sizes = sizes_to(max(map(_largest_bucket_bytes, dict.fromkeys(models))), sizes)
        cluster, runtime = calibrated_lab(network, cores, sizes)
        write_cluster(cluster, path, runtime)


def _largest_bucket_bytes(model: str) -> int:
    """What DistributedDataParallel sums at most at once: all gradients, or its default bucket and one more layer."""
    sizes = [4 * parameter.numel() for parameter in load(model).build().parameters()]
    return min(sum(sizes), Synchronisation().bucket_bytes + max(sizes))


def calibrated_lab(
    network: LabNetwork, cores: Sequence[int], sizes_bytes: Sequence[int] = CALIBRATED_BYTES
) -> tuple[Cluster, Runtime]:
    """The lab's cluster with its measured links and all-reduces of all workers, and the runtime that used them."""
    nominal = network.cluster(cores)
    with Lab(nominal, shaping_of(network)) as lab:
        return calibrate(
            nominal,
            lab,
            sizes_bytes=sizes_bytes,
            counts=[nominal.workers],
            collectives=("all_reduce",),
            cores=network.pinning(cores),
        )


def shaping_of(network: LabNetwork) -> Shaping | None:
    """How a user shaped the lab; None for the lab's own way."""
    if network.shaping is None:
        return None
    discipline, _, burst_us = network.shaping.partition("-")
    return Shaping(discipline=discipline, burst_s=int(burst_us) * 1e-6)  # type: ignore[arg-type]
