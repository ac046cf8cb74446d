"""What a run leaves behind: bytes, timeline and files; runs in processes and from the command line; refusals."""

from __future__ import annotations

import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed; make test installs it")


import torch
import torch.distributed as dist
from plans import planned
from small_networks import switched
from tiny_networks import BATCH, FUNCTIONAL, MIXED, TIED, profile_of
from torch import Tensor, nn
from training import CLUSTER, alone, made, random_plan, script_of, sharded

from benchmarks.studies.whole_parameters import whole_parameters
from simulator import cli, files
from simulator.errors import InputError
from simulator.network.catalogue import write_cluster
from simulator.plan import Plan, Sharding, Synchronisation
from simulator.taskgraph import Kind
from traces.calibrate.runtime_overheads import task_overhead_s
from traces.lab.launch import launch
from traces.lab.rank import Rank
from traces.results.executions import read_execution, write_execution
from traces.runs.executor.execute import all_reduce_groups, execution_of_ranks, random_batch
from traces.runs.executor.run_setup import Script
from traces.runs.executor.shard_operators import Slot
from traces.runs.executor.transport import Gloo
from traces.runs.executor.worker import Worker
from traces.zoo.networks import Network

pytestmark = pytest.mark.usefixtures("forked_python")


@pytest.mark.parametrize("collective", ["ring", "ps-workers"])
def test_bytes_sent_are_those_of_the_graph(collective: str) -> None:
    """Messages exactly; a server's part of a bucket may be up to one element larger or smaller than its share."""
    script = script_of(random_plan(5, synchronisation=Synchronisation(collective=collective)))
    _, _, ranks = sharded(script)
    graph, sent = script.graph, execution_of_ranks(ranks).sent_bytes
    exchanged = (graph.kind == Kind.ACTIVATION) | (graph.kind == Kind.GRADIENT)
    assert exchanged.sum() > 20 and (sent[exchanged] == graph.bytes[exchanged]).all()
    for task in np.flatnonzero(graph.kind == Kind.SYNCHRONISATION):
        members = len(graph.routes[graph.route[task]].devices)
        share = 2 * (members - 1) / members if collective == "ring" else 1
        assert graph.bytes[task] == pytest.approx(share * sent[task], abs=0 if collective == "ring" else 8)


def test_the_timeline_keeps_the_graphs_order() -> None:
    """Nothing is computed before what it needs has come, and a device computes one task at a time.

    An all-reduce ends with its last member, which the other members do not wait for.
    """
    script = script_of(random_plan(2))
    _, _, ranks = sharded(script)
    graph, timeline = script.graph, execution_of_ranks(ranks).timeline
    assert np.isfinite(timeline.start_s).all() and (timeline.end_s >= timeline.start_s).all()
    assert timeline.start_s.min() >= 0 and timeline.step_s == pytest.approx(timeline.end_s.max())
    for task in np.flatnonzero(~graph.is_transfer):
        needed = [t for t in graph.predecessors(task) if graph.kind[t] != Kind.SYNCHRONISATION]
        assert (timeline.end_s[needed] <= timeline.start_s[task]).all()
    for device in range(CLUSTER.workers):
        tasks = np.flatnonzero((graph.device == device) & ~graph.is_transfer)
        order = tasks[np.argsort(timeline.start_s[tasks])]
        assert (timeline.end_s[order[:-1]] <= timeline.start_s[order[1:]]).all()


def test_a_slow_device_takes_longer() -> None:
    """Both halves of the batch are equal, but device 1 is eight times as slow."""
    script = script_of(made("data", cluster=switched([1.0, 0.125])), switched([1.0, 0.125]))
    _, _, ranks = sharded(script, 3)
    graph, spans = script.graph, execution_of_ranks(ranks).timeline
    seconds = [float((spans.end_s - spans.start_s)[(graph.device == d) & ~graph.is_transfer].sum()) for d in (0, 1)]
    assert seconds[1] > 3 * seconds[0]


@pytest.mark.parametrize("collective", ["ring", "ps"])
def test_processes_over_loopback_train_as_one(collective: str) -> None:
    cluster = switched([1.0] * 2, servers=1 if collective == "ps" else 0)
    script = _in_processes(collective)
    results = launch(
        "test_execute_runs:trained_in_processes", len(cluster.devices), arguments={"collective": collective}
    )
    losses, expected, gradients = alone(script, 3)
    parts = zip(*(result["losses"] for result in results), strict=True)
    assert [sum(step) for step in parts] == pytest.approx(losses)
    slots = [{_slot(key): _tensors(value) for key, value in result["slots"].items()} for result in results]
    for name, value in whole_parameters(script, slots).items():
        assert torch.allclose(value, expected[name], rtol=1e-9, atol=1e-9 * float(gradients[name].abs().max()))


def trained_in_processes(rank: Rank, collective: str) -> dict[str, Any]:
    """What each of those processes does: three steps; its losses and parameters."""
    script = _in_processes(collective)
    worker = Worker(script, rank.number, Gloo(all_reduce_groups(script)), rank.doing)
    batch = random_batch(script)
    losses = [worker.step(*batch).loss for _ in range(3)]
    worker.close()
    slots = worker.shards.parameters.items()
    return {
        "losses": losses,
        "slots": {",".join(map(str, key)): {name: p.tolist() for name, p in slot.items()} for key, slot in slots},
    }


def test_messages_to_higher_and_lower_ranks_have_connections_of_their_own() -> None:
    """Else gloo's reader spins on the lock of a rank that writes while the other's message comes."""
    results = launch("test_execute_runs:swapped_in_processes", 2)
    assert results == [{"came": [1.0], "default": False}, {"came": [0.0], "default": True}]


def swapped_in_processes(rank: Rank) -> dict[str, Any]:
    """What each of those processes does: a row of its number out while the other's comes in."""
    groups, isend = [], dist.isend

    def noted(row: Tensor, target: int, group: dist.ProcessGroup | None, tag: int) -> Any:
        groups.append(group)
        return isend(row, target, group=group, tag=tag)

    dist.isend = noted
    transport, room = Gloo([]), torch.empty(1)
    transport.swap(torch.full((1,), float(rank.number)), 1 - rank.number, room, 1 - rank.number, tag=7)
    return {"came": room.tolist(), "default": groups == [None]}


def _in_processes(collective: str) -> Script:
    """A plan by sample, channel and row on two devices, which is built alike in every process."""
    cluster = switched([1.0] * 2, servers=1 if collective == "ps" else 0)
    placements = {}
    for layer in profile_of(MIXED).layers:
        degrees = (1, 1, 2, 1) if layer.output_shape[1] > 4 else (2, 1, 1, 1)
        placements[layer.name] = Sharding(degrees=(1, 2, 1, 1) if layer.kind == "linear" else degrees, devices=(0, 1))
    synchronisation = Synchronisation(collective=collective, bucket_bytes=1000)
    plan = Plan(model="tiny", batch_size=BATCH, placements=placements, microbatches=2, synchronisation=synchronisation)
    return script_of(plan, cluster)


def _slot(key: str) -> Slot:
    layer, slot, reduce_slot = map(int, key.split(","))
    return layer, slot, reduce_slot


def _tensors(slot: dict[str, Any]) -> dict[str, Tensor]:
    return {name: torch.tensor(value, dtype=torch.float64) for name, value in slot.items()}


def test_an_executed_plan_is_written_and_read(tmp_path: Path) -> None:
    execution = execution_of_ranks(sharded(script_of(made("data")), 3)[2])
    write_execution(execution, tmp_path / "run.npz")
    again = read_execution(tmp_path / "run.npz")
    assert (again.steps_s, again.losses) == (execution.steps_s, execution.losses) and len(again.steps_s) == 3
    assert (again.timeline.end_s == execution.timeline.end_s).all()
    assert again.timeline.step_s == statistics.median(again.steps_s)


@pytest.mark.parametrize("content", [b"no archive", b""])
def test_what_is_no_timeline_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "run.npz").write_bytes(content)
    with pytest.raises(InputError, match=r"run\.npz: not a numpy archive"):
        read_execution(tmp_path / "run.npz")


@pytest.mark.parametrize(
    ("synchronisation", "message"),
    [
        (Synchronisation(collective="tree"), "sync is tree: one of ring, ps, ps-workers can run"),
        (Synchronisation(half_precision=True), "synchronisation is compressed"),
    ],
)
def test_synchronisations_that_cannot_run(synchronisation: Synchronisation, message: str) -> None:
    with pytest.raises(InputError, match=message):
        script_of(random_plan(0, synchronisation=synchronisation))


def test_a_profile_that_does_not_know_of_shared_parameters_is_refused() -> None:
    script = script_of(made("data", TIED), network=TIED)
    layers = tuple(replace(layer, tied_to=()) for layer in script.profile.layers)
    with pytest.raises(InputError, match="'embedding' and 'head' share a parameter"):
        replace(script, profile=replace(script.profile, layers=layers)).build()


def test_a_profile_of_another_network_is_refused() -> None:
    script = replace(script_of(made("data")), network=FUNCTIONAL)
    with pytest.raises(InputError, match="capture"):
        script.build()


class Halves(nn.Module):
    """A layer with two outputs between two linear ones."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Any:
        left, right = self.first(x).chunk(2, 1)
        return self.last(left * right)


def volumes() -> nn.Module:
    return nn.Sequential(nn.Conv3d(3, 4, 3), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(4, 2))


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (Network(build=Halves, input_shape=(8,)), "layer 'chunk' makes several tensors: our executor passes on one"),
        (Network(build=volumes, input_shape=(3, 4, 4, 4)), "layer '0' makes volumes: our executor passes on one"),
    ],
)
def test_layers_whose_outputs_are_no_sequence_or_plane_are_refused(network: Network, message: str) -> None:
    with pytest.raises(InputError, match=message):
        script_of(made("data", network), network=network).build()


def test_the_command_runs_a_plan_and_says_what_was_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster, plan, output = (str(tmp_path / name) for name in ("two.yaml", "plan.json", "run.npz"))
    write_cluster(switched([1.0] * 2), cluster)
    files.write_plan(planned("owt", files.read_profile("vgg_small"), switched([1.0] * 2), batch_size=4), plan)
    named = ["--profile", "vgg_small", "--cluster", cluster]
    options = [*named, "--network", "loopback", "--steps", "2", "--output", output]
    assert cli.main(["execute", plan, *options]) == 0
    printed = capsys.readouterr().out
    assert "the median of 2" in printed and "error of the prediction" in printed and "on the critical path" in printed
    assert len(read_execution(output).steps_s) == 2


def test_the_executor_adds_little_to_a_layer() -> None:
    """A layer of vgg_small takes 2 ms at 8 samples; what the executor adds to it is no layer's work."""
    profile = files.read_profile("vgg_small")
    layers = tuple(replace(layer, scaling=()) for layer in profile.layers)
    assert 0 <= task_overhead_s(replace(profile, batch_size=8, layers=layers), repeats=5) < 20e-3, "a loose bound"
