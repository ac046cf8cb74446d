"""The formats that `benchmarks.robustness.fuzz` damages: sound content of each, and what reading and using it gives."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import yaml

import partitioners
from benchmarks import ROOT
from partitioners._grids.grid_plan import grid_plan
from partitioners._grids.measured_rows import COLUMNS, measured_plans
from simulator import files
from simulator.cluster import Cluster
from simulator.convergence.curve_files import read_curves
from simulator.convergence.curves import Regime
from simulator.elastic.job import simulate_job
from simulator.elastic.reconfiguration import read_overheads
from simulator.elastic.scenario import read_scenario
from simulator.language_models.card_files import read_card
from simulator.language_models.modelled_profile import modelled_profile
from simulator.language_models.training_grid import TrainingGrid
from simulator.language_models.training_stack import read_stack
from simulator.network.catalogue import ClusterFile, Preset, read_cluster, read_cluster_file, read_preset
from simulator.network.topologies import Wire, two_tier
from simulator.plan import Plan, Sharding, StepSettings, Synchronisation
from simulator.run import run, step_report
from simulator.sweep.evaluate import evaluate
from simulator.sweep.points import expand
from simulator.sweep.queries import best, pareto
from simulator.sweep.results_table import FILE, ResultsTable, stage_seconds, status_counts
from simulator.sweep.specification import Specification, read_specification
from simulator.sweep.sweeping import context_of
from simulator.workload import Geometry, Layer, Profile, ScalingPoint
from traces.calibrate.bandwidth_fit import fit_one, read_measured
from traces.imports._imported import ImportOptions
from traces.imports._recorded_phases import read_phases
from traces.imports._registry import import_files
from traces.results.executions import Execution, read_execution, write_execution


@dataclass(frozen=True, slots=True, kw_only=True)
class FuzzedFormat:
    """A file format: its suffix, sound content (JSON-like for .json and .yaml, else text or bytes), and what using it
    gives.

    use: reads and uses a file; all numbers of what it returns are finite and at least 0.
    """

    name: str
    suffix: str
    sound: Any
    use: Callable[[Path], object]


PROFILE = Profile(
    model="tiny",
    device="none",
    batch_size=8,
    step_s=5e-3,
    layers_to_step=0.9,
    software={"torch": "2"},
    layers=(
        Layer(
            name="conv", kind="conv", output_shape=(4, 8, 8), forward_s=1e-3, backward_s=2e-3, parameter_bytes=400,
            output_bytes=8192, saved_bytes=8192, flops=1e6,
            geometry=Geometry(kernel=(3, 3), padding=(1, 1), mixes_channels=True),
            scaling=(ScalingPoint(batch_size=4, forward_s=6e-4, backward_s=1e-3),),
        ),
        Layer(
            name="pool", kind="pool", inputs=("conv",), output_shape=(4, 1, 1), forward_s=1e-4, backward_s=1e-4,
            output_bytes=128, geometry=Geometry(kernel=None),
        ),
        Layer(
            name="head", kind="linear", inputs=("pool",), output_shape=(10, 1, 1), forward_s=1e-4, backward_s=2e-4,
            update_s=1e-5, parameter_bytes=160, output_bytes=320, geometry=Geometry(mixes_channels=True),
        ),
    ),
)  # fmt: skip
PLAN = Plan(
    model="tiny",
    batch_size=8,
    microbatches=2,
    placements={
        "conv": Sharding(degrees=(2, 1, 1, 1), devices=(0, 1)),
        "pool": Sharding(devices=(1,)),
        "head": Sharding(degrees=(1, 2, 1, 1), devices=(0, 1)),
    },
    synchronisation=Synchronisation(bucket_bytes=1000),
)
BLOCKS = {
    "schema": 1, "model": "blocks", "device": "none", "batch_size": 4,
    "layers": [
        {"name": "in", "kind": "linear", "output_shape": [4, 1, 1], "forward_s": 1e-3, "backward_s": 2e-3,
         "output_bytes": 64},
        {"repeat": 3, "input": "in", "output": "block.*.add", "layers": [
            {"name": "block.*.add", "kind": "add", "inputs": ["<"], "output_shape": [4, 1, 1], "forward_s": 1e-3,
             "backward_s": 1e-3, "output_bytes": 64}]},
    ],
}  # fmt: skip
SCENARIO = {
    "schema": 1, "profile": "vgg_digits", "cluster": "cpu-1g", "devices": 3, "start": ["host0", "host1"],
    "strategy": "data", "batch_size": 96, "overheads": "overheads.yaml", "checkpoint_every": "10min", "duration": "2h",
    "events": [
        {"at": "30min", "event": "join", "devices": ["host2"]},
        {"at": "45min", "event": "slow", "devices": ["host0"], "to": 0.5},
        {"at": "1h", "event": "leave", "devices": ["host1"], "notice": "2min"},
        {"at": "1h10min", "event": "narrow", "tier": "inter", "to": 0.5},
        {"at": "1h30min", "event": "vanish", "devices": ["host2"]},
    ],
}  # fmt: skip
SWEEP = {
    "schema": 1,
    "parameters": {
        "profile": "vgg_digits", "cluster": "cpu-1g", "strategy": ["data", "pipeline"], "devices": "2..8 by x2",
        "inter_bandwidth_bytes_per_s": ["1Gbps", "10Gbps"], "overlap": [True, False],
    },
    "zip": [{"batch_size": [128, 256], "microbatches": [1, 2]}],
    "where": ["microbatches <= devices", "fits"],
}  # fmt: skip
LOG = "iteration 1 | elapsed time per iteration (ms): 412.5 |\niteration 2 | elapsed time per iteration (ms): 405.1 |\n"
MEASURED = (
    "profile,devices,batch_size,step_s,overlap,sync\nvgg_digits,2,64,0.05,yes,ring\nvgg_digits,4,128,0.06,no,ps\n"
)
RUNS = (
    ",".join((*COLUMNS, "mem_gb"))
    + "\n1B,4,256,4,512,512,256,1,2,1,1,0,1,2,0.5,3.5\n2B,4,256,4,512,512,256,0,1,2,1,0,1,2,0.6,\n"
)
NCCL = """# nThread 1 nGpus 2
#   Rank  0 Pid  1 on node device  0 [0x00] A100
#   Rank  1 Pid  1 on node device  1 [0x00] A100
#       size         count      type   redop     time   algbw   busbw  error     time   algbw   busbw  error
        1024   256     float     sum   10.0    0.03    0.06    N/A    99.0    0.03    0.06    N/A
        4096   1024     float     sum   40.0    0.03    0.06    N/A    99.0    0.03    0.06    N/A
# Out of bounds values : 0
"""
PIPEDREAM = (
    "node1 -- Input0 -- forward_compute_time=0.000, backward_compute_time=0.000, activation_size=0.0, "
    "parameter_size=0.000\n"
    "node2 -- Conv2d(3, 64, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1)) -- forward_compute_time=4.1, "
    "backward_compute_time=8.2, activation_size=99123200.0, "
    "parameter_size=92928.000\n"
    "node3 -- ReLU(inplace) -- forward_compute_time=0.2, backward_compute_time=0.4, activation_size=5120.0, "
    "parameter_size=0.000\n\tnode1 -- node2\n\tnode2 -- node3\n"
)


@cache
def formats() -> tuple[FuzzedFormat, ...]:
    """All of them, with sound content."""
    plain_cluster = {"schema": 1, **files.plain(ClusterFile.of(_cluster()))}
    preset = {"schema": 1, **files.plain(read_preset("gcp-v100"))}
    overheads = yaml.safe_load((ROOT / "examples/overheads-cpu.yaml").read_text())
    curves = json.loads((ROOT / "traces/curves/vgg_digits.json").read_text())
    curves = {**curves, "trials": curves["trials"][:6]}
    return (
        FuzzedFormat(name="profile", suffix=".json", sound={"schema": 1, **files.plain(PROFILE)}, use=_use_profile),
        FuzzedFormat(name="repeated blocks", suffix=".json", sound=BLOCKS, use=_use_profile),
        FuzzedFormat(name="plan", suffix=".json", sound={"schema": 1, **files.plain(PLAN)}, use=_use_plan),
        FuzzedFormat(name="cluster", suffix=".yaml", sound=plain_cluster, use=_use_cluster),
        FuzzedFormat(name="preset", suffix=".yaml", sound=preset, use=_use_preset),
        FuzzedFormat(name="sweep", suffix=".yaml", sound=SWEEP, use=_use_sweep),
        FuzzedFormat(name="scenario", suffix=".yaml", sound=SCENARIO, use=_use_scenario),
        FuzzedFormat(name="overheads", suffix=".yaml", sound=overheads, use=_use_overheads),
        FuzzedFormat(name="curves", suffix=".json", sound=curves, use=_use_curves),
        FuzzedFormat(
            name="model card",
            suffix=".yaml",
            sound=yaml.safe_load((ROOT / "simulator/language_models/cards/gpt2.yaml").read_text()),
            use=_use_card,
        ),
        FuzzedFormat(
            name="training stack",
            suffix=".json",
            sound=json.loads((ROOT / "simulator/language_models/stacks/nanotron-h100.json").read_text()),
            use=_use_stack,
        ),
        FuzzedFormat(name="trace", suffix=".json", sound={"traceEvents": list(_events())}, use=_use_recorded),
        FuzzedFormat(name="log of steps", suffix=".log", sound=LOG, use=_use_recorded),
        FuzzedFormat(name="measured steps", suffix=".csv", sound=MEASURED, use=_use_measured),
        FuzzedFormat(name="runs of language models", suffix=".csv", sound=RUNS, use=_use_runs),
        FuzzedFormat(name="execution", suffix=".npz", sound=_written(_write_execution), use=_use_execution),
        FuzzedFormat(name="results of a sweep", suffix=".sqlite", sound=_written(_write_results), use=_use_results),
        FuzzedFormat(name="nccl-tests", suffix=".log", sound=NCCL, use=_use_import),
        FuzzedFormat(name="pipedream", suffix=".txt", sound=PIPEDREAM, use=_use_import),
    )


def _cluster() -> Cluster:
    wires = [
        Wire(bandwidth_bytes_per_s=rate, latency_s=1e-5, tier=tier) for rate, tier in ((1e10, "intra"), (1e9, "inter"))
    ]
    return two_tier(4, 2, *wires)


def _events() -> Iterator[dict[str, Any]]:
    """A step of a torch.profiler trace: forward, backward, a collective, the update."""
    names = (
        "aten::linear",
        "autograd::engine::evaluate_function: AddmmBackward0",
        "c10d::allreduce_",
        "Optimizer.step#SGD",
    )
    for i, name in enumerate(names):
        where = {"ph": "X", "pid": 1, "ts": 100.0 * i}
        category = "user_annotation" if name.startswith("Opt") else "cpu_op"
        yield {**where, "cat": category, "name": name, "tid": 1, "dur": 50, "args": {"Sequence number": 1}}
        launch = {"correlation": i, "External id": i}
        yield {**where, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "tid": 1, "dur": 5, "args": launch}
        kernel = "ncclDevKernel_AllReduce" if "all" in name else "gemm"
        yield {**where, "cat": "kernel", "name": kernel, "tid": 7, "dur": 90, "args": {**launch, "device": 0}}


def _written(write: Callable[[Path], None]) -> bytes:
    """What a file holds that `write` makes."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / FILE
        write(path)
        return path.read_bytes()


def _write_execution(path: Path) -> None:
    done = run(PROFILE, read_cluster("cpu-1g", devices=2), PLAN)
    sent_bytes = np.zeros(len(done.graph))
    execution = Execution(steps_s=(0.5, 0.6), losses=(2.0, 1.0), sent_bytes=sent_bytes, timeline=done.timeline)
    write_execution(execution, path)


def _write_results(path: Path) -> None:
    """A table of a sweep that ran, of which little is left so that most damage hits something."""
    parameters = {"profile": "vgg_digits", "cluster": "cpu-1g", "strategy": "data", "devices": [1, 2]}
    points = expand(Specification(parameters=parameters), {"data": ()})
    with closing(ResultsTable(path.parent, points, "1", resume=False)) as table:
        table.record(evaluate(context_of(points, partitioners.make_plan), point) for point in points.points)
        table._connection.execute("PRAGMA journal_mode = DELETE")


def _reported(profile: Profile, cluster: Cluster, plan: Plan, **options: Any) -> object:
    return run(profile, cluster, plan, **options).report.to_dict()


def _use_profile(path: Path) -> object:
    profile = files.read_profile(path)
    step = StepSettings(batch_size=8, microbatches=2)
    cluster = read_cluster("cpu-1g", devices=2)
    plans = [partitioners.make_plan(name, profile, cluster, step) for name in ("data", "pipeline")]
    return [_reported(profile, cluster, plan) for plan in plans]


def _use_plan(path: Path) -> object:
    return _reported(PROFILE, read_cluster("cpu-1g", devices=2), files.read_plan(path))


def _use_cluster(path: Path) -> object:
    content = read_cluster_file(path)
    step = StepSettings(batch_size=8 * content.cluster.workers)
    plan = partitioners.make_plan("data", PROFILE, content.cluster, step)
    return _reported(PROFILE, content.cluster, plan, runtime=content.runtime)


def _use_preset(path: Path) -> object:
    cluster = files.read_yaml(path, Preset).build(4)
    return _reported(PROFILE, cluster, partitioners.make_plan("data", PROFILE, cluster, StepSettings(batch_size=32)))


def _use_sweep(path: Path) -> object:
    options = {name: tuple(partitioners.options(name)) for name in partitioners.strategies()}
    return len(expand(read_specification(path), options).points)


def _use_scenario(path: Path) -> object:
    from partitioners._scenario_plans import ScenarioPlans

    scenario = read_scenario(path)
    profile, cluster = files.read_profile(scenario.profile), read_cluster(scenario.cluster, devices=scenario.devices)
    cluster = cluster.with_speed(scenario.speed)
    plans = ScenarioPlans(scenario, profile, cluster, path.parent)
    overheads = read_overheads(ROOT / "examples/overheads-cpu.yaml")
    return simulate_job(scenario, profile, cluster, overheads, plans, scenario.policy).to_dict()


def _use_overheads(path: Path) -> object:
    read_overheads(path)
    return ()


def _use_curves(path: Path) -> object:
    curves = read_curves(path)
    samples = curves.samples_to(curves.target, Regime(batch_size=100))
    return samples.interval.low, samples.trials


def _use_card(path: Path) -> object:
    profile = modelled_profile(read_card(path), read_stack("nanotron-h100"))
    return [layer.forward_s for layer in profile.layers]


def _use_stack(path: Path) -> object:
    stack = read_stack(path)
    profile, cluster = modelled_profile(read_card("gpt2"), stack), _cluster()
    grid = TrainingGrid(data=2, tensor=2, accumulation=4)
    return step_report(profile, cluster, grid_plan(grid, profile, cluster, stack), runtime=stack.runtime).step_s


def _use_recorded(path: Path) -> object:
    recorded = read_phases(path)
    return recorded.steps_s, recorded.causes_s


def _use_measured(path: Path) -> object:
    return [fit_one(step, "cpu-1g", "inter") for step in read_measured(path)[:2]]


def _use_runs(path: Path) -> object:
    return [(plan.step_s, plan.peak_bytes or 0.0, plan.card.parameters) for plan in measured_plans(path)]


def _use_execution(path: Path) -> object:
    execution = read_execution(path)
    return [*execution.steps_s, execution.timeline.step_s, float(execution.sent_bytes.sum())]


def _use_results(path: Path) -> object:
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / FILE).write_bytes(path.read_bytes())
        front = pareto(best(folder, "step_s"), "step_s", "peak_memory_bytes")
        return [row["step_s"] for row in front], status_counts(folder), stage_seconds(folder)


def _use_import(path: Path) -> object:
    imported = import_files([path], ImportOptions(batch_sizes=(16,)))
    layers = imported.profile.layers if imported.profile else ()
    return [(layer.forward_s, layer.backward_s, layer.output_bytes) for layer in layers]
