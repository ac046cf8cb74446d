"""What predictions of a suite are made from: captures, profiles, overheads, calibrated labs. None is measured in a run.

A file that exists is not made again. As a shared machine's speed drifts, every network is captured on all cores and
every lab calibrated several times, in turns, spread over the rounds of the suite; the medians count.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simulator import files
from simulator.cluster import Cluster
from simulator.file_content import validated
from simulator.network.catalogue import read_cluster, read_runtime, write_cluster
from simulator.plan import Synchronisation
from simulator.runtime import Runtime
from simulator.workload import Profile
from traces.calibrate.links import calibrate
from traces.calibrate.median_calibration import median_calibration, sizes_to
from traces.calibrate.runtime_overheads import ddp_overhead_s, pass_cost, pass_overhead_s, task_overhead_s
from traces.capture.command import FRACTIONS, capture
from traces.capture.median_profile import median_profile
from traces.lab.launch import launch
from traces.lab.link_shaping import Shaping
from traces.lab.rank import Rank
from traces.lab.shaped_network import Lab
from traces.results.validation_cases import Case, LabNetwork, pinning
from traces.results.validations import Overhead
from traces.zoo.networks import load

BATCH_SIZE = 32
REPEATS = {"inputs": 3, "capture": 10, "overhead": 15}
"""How many captures of each network and calibrations of each lab there are at least, one a round or more, how often a
capture measures every layer, and how many steps are taken to see what a runtime adds to them."""
CALIBRATED_BYTES: tuple[int, ...] = (64, *(1 << exponent for exponent in range(12, 24)))


@dataclass(frozen=True, slots=True, kw_only=True)
class InputMeasurement:
    """Measures what a suite's predictions are made from, and stores it in `folder`.

    cores: those that its runs compute on. say: called with a line about everything that is measured. repeats: as
    REPEATS.
    """

    folder: Path
    cores: Sequence[int]
    say: Callable[[str], None]
    repeats: Mapping[str, int]

    def measure(self, model: str, cases: Sequence[Case], round_number: int = 0, rounds: int = 1) -> None:
        """Measure what those `cases` that train `model` need in a round of them all, unless it is stored.

        The profile of a network and the cluster of a lab are the medians of what was measured of them until now.
        """
        of_model = [case for case in cases if case.model == model]
        split = any(case.via == "execute" for case in of_model)  # neither torch's DDP nor its pipelines split channels
        networks = list(dict.fromkeys(case.network for case in of_model))
        inputs = max(self.repeats["inputs"], rounds)
        for number in range(inputs * round_number // rounds, inputs * (round_number + 1) // rounds):
            self._capture(model, number, split)
            for network in networks:
                self._calibrate(network, number, [case.model for case in cases if case.network == network])
        captures = sorted((self.folder / "captures").glob(f"{model}.*.json"))
        files.write_profile(median_profile([files.read_profile(path) for path in captures]), self._profile(model))
        for network in networks:
            made = sorted((self.folder / "calibrations").glob(f"{network.name}.*.yaml"))
            cluster, runtime = median_calibration([(read_cluster(path), read_runtime(path)) for path in made])
            write_cluster(cluster, self.folder / "clusters" / f"{network.name}.yaml", runtime)
        if any(case.needs_overhead for case in of_model):
            self._measure_overhead(model, any(case.via == "pipelining" for case in of_model))

    def _profile(self, model: str) -> Path:
        return self.folder / "profiles" / f"{model}.json"

    def _capture(self, model: str, number: int, fractions: bool) -> None:
        """Capture the network on every core at once, as caches and memory are shared in the runs."""
        path = self.folder / "captures" / f"{model}.{number}.json"
        if not path.exists():
            self.say(f"capture {number + 1} of {model}")
            settings: dict[str, Any] = {"fractions": fractions, "repeats": self.repeats["capture"]}
            capture_on_all_cores(path, model, BATCH_SIZE, self.cores, "shardscope validate", **settings)

    def _calibrate(self, network: LabNetwork, number: int, models: Sequence[str]) -> None:
        """Calibrate the lab; as a user does, up to what the largest of the models sends."""
        path = self.folder / "calibrations" / f"{network.name}.{number}.yaml"
        if not path.exists():
            self.say(f"calibration {number + 1} of lab {network.name}")
            sizes = CALIBRATED_BYTES
            if network.shaping is not None:
                sizes = sizes_to(max(map(_largest_bucket_bytes, dict.fromkeys(models))), sizes)
            cluster, runtime = calibrated_lab(network, self.cores, sizes)
            write_cluster(cluster, path, runtime)

    def _measure_overhead(self, model: str, pipelined: bool) -> None:
        """Measure what runtimes add to the work of the network's layers, on every core at once; of torch's pipelines
        where it is `pipelined`, over loopback, as what a lab's links add to moving bytes is calibrated."""
        path = self.folder / "overheads" / f"{model}.json"
        if not path.exists():
            self.say(f"runtimes' overhead on {model}")
            arguments = {"path": str(self._profile(model)), "repeats": self.repeats["overhead"], "pipelined": pipelined}
            target, pinned = f"{__name__}:overhead_rank", pinning(len(self.cores), self.cores)
            by_rank = launch(target, len(self.cores), arguments=arguments, cores=pinned, timeout_s=600)
            overhead = Overhead(
                task_overhead_s=statistics.fmean(of_task_s for of_task_s, _, _ in by_rank),
                pass_overhead_s=pass_overhead_s([of_pass for _, _, of_pass in by_rank], send_cpu_s_per_byte=0.0),
                ddp_step_s=statistics.fmean(ddp_s for _, ddp_s, _ in by_rank),
            )
            files.write_text_atomic(path, files.to_json(overhead))


def capture_on_all_cores(
    path: Path,
    model: str,
    batch_size: int,
    cores: Sequence[int],
    command: str,
    *,
    fractions: bool = True,
    repeats: int = REPEATS["capture"],
) -> None:
    """Write the profile of a network captured on every core at once: the median of the cores, which differ in speed.

    command: what its file says it was made by. fractions: whether layers are measured with parts of their channels.
    repeats: how often every layer is measured.
    """
    arguments: dict[str, object] = {"model": model, "batch_size": batch_size, "command": command}
    arguments |= {"fractions": fractions, "repeats": repeats}
    captures = on_all_cores(f"{__name__}:capture_rank", cores, arguments, timeout_s=900)
    files.write_profile(median_profile([validated(path, capture, Profile) for capture in captures]), path)


def on_all_cores(target: str, cores: Sequence[int], arguments: Mapping[str, object], timeout_s: float) -> list[Any]:
    """What `target` returns in a process on each core, none of which talks to another."""
    pinned = pinning(len(cores), cores)
    return launch(target, len(cores), arguments=arguments, cores=pinned, backend="", timeout_s=timeout_s)


def capture_rank(rank: Rank, model: str, batch_size: int, command: str, fractions: bool, repeats: int) -> Any:
    """What each process of a capture on all cores does; its profile as plain data."""
    rank.doing(f"capture of {model}")
    profile = capture(model, batch_size, repeats=repeats, fractions=FRACTIONS if fractions else (), command=command)
    return json.loads(files.to_json(profile))


def overhead_rank(rank: Rank, path: str, repeats: int, pipelined: bool) -> tuple[float, float, tuple[float, float]]:
    """What each process measures: seconds per task of our executor, per step of DistributedDataParallel, and of a pass
    of torch's pipelines what `pass_cost` says."""
    profile = files.read_profile(path)
    rank.doing("a step of the executor alone")
    of_task_s = task_overhead_s(profile, repeats=repeats)
    ddp_s = ddp_overhead_s(rank, load(profile.model), profile.batch_size // 2, repeats=repeats)
    rank.doing("a pipeline of two stages")
    return of_task_s, ddp_s, pass_cost(profile, rank.number, repeats=repeats) if pipelined else (0.0, 0.0)


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
