"""FSDP2, tensor parallelism and recomputation beside their predictions.

    python -m benchmarks.parallel_runtimes.runs FOLDER

    once       captures on all cores, calibrated labs, what each runtime adds to a step on one rank    FOLDER
    each run   predicted from those alone, then made in a lab of its own

Networks are drawn (benchmarks/machines/random_networks.py); collectives block, as they do over gloo on a CPU.
Needs root.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch.distributed as dist

from benchmarks.machines.random_networks import network_name
from benchmarks.parallel_runtimes.blocking import blocking
from benchmarks.parallel_runtimes.fsdp import FsdpSettings, run_fsdp, shard
from benchmarks.parallel_runtimes.network_blocks import block_names
from benchmarks.parallel_runtimes.parallel_plans import fsdp_plan, tensor_plan
from benchmarks.parallel_runtimes.tensor_parallel import run_tensor_parallel, split_layers, transformer_splits
from simulator import files
from simulator.cluster import Cluster
from simulator.engine import simulate
from simulator.lowering.sharded_model import ShardedModel
from simulator.lowering.step import lower
from simulator.network.catalogue import read_cluster, read_runtime, write_cluster
from simulator.plan import Plan
from simulator.runtime import Runtime
from simulator.workload import Profile
from traces.calibrate.links import calibrate
from traces.calibrate.runtime_overheads import wrapped_overhead_s
from traces.lab.child_processes import usable_cores
from traces.lab.rank import Rank
from traces.lab.shaped_network import Lab
from traces.results.validation_cases import LabNetwork, with_habits_of
from traces.runs.torch_runtimes.measured_steps import MeasuredSteps, build
from traces.validation.measured_inputs import CALIBRATED_BYTES, capture_on_all_cores, on_all_cores
from traces.zoo.networks import load

BATCH_SIZE, STEPS, RANKS, MBITS = 16, 16, 2, (200, 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOverheads:
    """Seconds that each runtime adds to a whole step of a network, measured on one rank."""

    fsdp: float
    tensor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelRun:
    """One run: FSDP2 (resharded after the forward pass or not) or tensor parallelism, with recomputed blocks or not."""

    kind: str
    model: str
    mbit: int
    resharded: bool = True
    recomputed: bool = False

    @property
    def name(self) -> str:
        parts = [self.model.rpartition(":")[2], self.kind, "" if self.resharded else "kept"]
        return "-".join(filter(None, [*parts, "recomputed" if self.recomputed else "", f"{RANKS}x{self.mbit}"]))


def runs(seed: int, networks: int) -> Iterator[ParallelRun]:
    """Every kind of run of the first networks with attention and of words of a seed."""
    models = [network_name(seed, number) for number in range(4 * networks) if number % 4 in (1, 2)][:networks]
    for model in models:
        for mbit in MBITS:
            yield ParallelRun(kind="fsdp", model=model, mbit=mbit)
            yield ParallelRun(kind="fsdp", model=model, mbit=mbit, resharded=False)
            yield ParallelRun(kind="fsdp", model=model, mbit=mbit, recomputed=True)
            yield ParallelRun(kind="tensor", model=model, mbit=mbit)
            yield ParallelRun(kind="tensor", model=model, mbit=mbit, recomputed=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, predict, run, and print every run and the mean."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--networks", type=int, default=2)
    args = parser.parse_args(argv)
    args.folder.mkdir(parents=True, exist_ok=True)
    cores = usable_cores()[:RANKS]
    errors = []
    for run in runs(args.seed, args.networks):
        predicted_s, sent = _predicted(args.folder, run, cores)
        actual = _made(run, cores)
        errors.append(predicted_s / actual.step_s - 1)
        counted = actual.sent_bytes or 0.0
        print(
            f"{run.name}: predicted {predicted_s * 1e3:.1f} ms, actual {actual.step_s * 1e3:.1f} ms "
            f"(spread {actual.spread_s * 1e3:.1f}), error {errors[-1]:+.1%}; MB {sent / 1e6:.2f}, "
            f"counted {counted / 1e6:.2f}", flush=True,
        )  # fmt: skip
    mean, bias = statistics.fmean(map(abs, errors)), statistics.fmean(errors)
    print(f"{len(errors)} runs of seed {args.seed}: mean absolute error {mean:.1%}, bias {bias:+.1%}, "
          f"worst {max(errors, key=abs):+.1%}")  # fmt: skip
    return 0


def _predicted(folder: Path, run: ParallelRun, cores: Sequence[int]) -> tuple[float, float]:
    """Predicted seconds, and bytes that all ranks send, of a step."""
    profile, overheads = _profile(folder, run.model, cores)
    cluster, runtime = _lab(folder, run.mbit, cores)
    plan = plan_of(profile, run)
    graph = lower(ShardedModel(profile, plan), cluster, runtime)
    tasks = int(((graph.route < 0) & (graph.device == 0)).sum())
    runtime = replace(runtime, task_overhead_s=getattr(overheads, run.kind) / tasks)
    graph = blocking(lower(ShardedModel(profile, plan), cluster, runtime), cluster, runtime)
    pairs = [len(route.pairs) for route in graph.routes]
    sent = sum(size * pairs[route] for size, route in zip(graph.bytes.tolist(), graph.route.tolist(), strict=True)
               if route >= 0)  # fmt: skip
    return simulate(graph, cluster, runtime).step_s, sent


def plan_of(profile: Profile, run: ParallelRun) -> Plan:
    """The plan that a run follows."""
    model = build(load(run.model)).model
    blocks = block_names(model)
    if run.kind == "fsdp":
        return fsdp_plan(profile, RANKS, BATCH_SIZE, blocks, resharded=run.resharded, recomputed=run.recomputed)
    splits = transformer_splits(model)
    return tensor_plan(profile, RANKS, BATCH_SIZE, blocks, splits, recomputed=run.recomputed)


def _made(run: ParallelRun, cores: Sequence[int]) -> MeasuredSteps:
    network = LabNetwork(ranks=RANKS, mbit=run.mbit)
    recomputed = block_names(build(load(run.model)).model) if run.recomputed else []
    options: dict[str, Any] = {"steps": STEPS, "cores": network.pinning(cores)}
    with Lab(network.cluster(cores)) as lab:
        if run.kind == "tensor":
            return run_tensor_parallel(run.model, RANKS, BATCH_SIZE, recomputed=recomputed, lab=lab, **options)
        settings = FsdpSettings(reshard_after_forward=run.resharded, recomputed=recomputed)
        return run_fsdp(run.model, RANKS, BATCH_SIZE, settings, lab=lab, **options)


def _profile(folder: Path, model: str, cores: Sequence[int]) -> tuple[Profile, StepOverheads]:
    """The captured network, and what runtimes add to its step; measured unless they are stored."""
    path, added = folder / f"{model}.json", folder / f"{model}.overheads.json"
    if not path.exists():
        capture_on_all_cores(path, model, BATCH_SIZE, cores, "parallel_runs", repeats=20)
    if not added.exists():
        arguments: dict[str, object] = {"model": model}
        both = on_all_cores("benchmarks.parallel_runtimes.runs:overheads_rank", cores, arguments, timeout_s=600)
        fsdp_s, tensor_s = (statistics.fmean(each) for each in zip(*both, strict=True))
        files.write_json(StepOverheads(fsdp=fsdp_s, tensor=tensor_s), added)
    return files.read_profile(path), files.read_json(added, StepOverheads)


def overheads_rank(rank: Rank, model: str) -> list[float]:
    """What FSDP2 and DTensor add to a step on each core, in seconds."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]
    network = load(model)
    splits = transformer_splits(build(network).model)
    rank.doing("FSDP2 and tensor parallelism on one rank")
    added_s = [
        wrapped_overhead_s(network, BATCH_SIZE // RANKS, lambda trained: shard(trained, 1, FsdpSettings())),
        wrapped_overhead_s(network, BATCH_SIZE, lambda trained: split_layers(trained, 1, splits)),
    ]
    dist.destroy_process_group()
    return added_s


def _lab(folder: Path, mbit: int, cores: Sequence[int]) -> tuple[Cluster, Runtime]:
    network = LabNetwork(ranks=RANKS, mbit=mbit)
    path, nominal = folder / f"{network.name}.yaml", network.cluster(cores)
    if not path.exists():
        with Lab(nominal) as lab:
            pinned = network.pinning(cores)
            measured = calibrate(nominal, lab, sizes_bytes=CALIBRATED_BYTES, counts=[RANKS], cores=pinned)
        write_cluster(measured[0], path, measured[1])
    return read_cluster(path), with_habits_of("execute", read_runtime(path))


if __name__ == "__main__":
    sys.exit(main())
