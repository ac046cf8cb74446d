"""Reduce and copy axes, context parallelism, ZeRO, tied parameters and recomputation, run for real: the gradients are
one device's (invariant 7), and ranks send the bytes of the simulation."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from math import prod
from typing import Any

import laws
import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed; make test installs it")

from counted_volume import communication_volume
from rank_threads import ThreadGroup, Threads
from small_networks import switched
from tiny_networks import BATCH, FUNCTIONAL, MIXED, TIED, UNTIED, profile_of
from training import assert_equal_training, made, script_of, sharded

from benchmarks.studies.whole_parameters import whole_parameters
from simulator.errors import InputError
from simulator.parameter_states import ParameterStates
from simulator.plan import EXCHANGES, Plan, Sharding, Synchronisation
from simulator.taskgraph import Kind
from simulator.workload import Layer
from traces.lab.launch import launch
from traces.lab.rank import Rank
from traces.runs.executor.execute import all_reduce_groups, execution_of_ranks, random_batch
from traces.runs.executor.run_setup import Script
from traces.runs.executor.transport import Gloo
from traces.runs.executor.worker import Worker
from traces.zoo.networks import Network

pytestmark = pytest.mark.usefixtures("forked_python")

FOUR = switched([1.0] * 4)
NETWORKS = {"transformer": UNTIED, "tied": TIED, "convolutions": MIXED, "functions": FUNCTIONAL}


def any_plan(seed: int, network: Network, **fields: object) -> Plan:
    """Any degrees along all six axes for every layer, on any devices; states, recomputation and exchange as drawn."""
    draw = random.Random(seed)
    layers = profile_of(network).layers
    placements = {layer.name: _any_sharding(draw, layer) for layer in layers}
    first, last = sorted(draw.sample(range(len(layers) + 1), 2))
    drawn: dict[str, Any] = {
        "microbatches": draw.choice((1, 2)),
        "states": ParameterStates(stage=draw.choice((0, 1, 2)) if network is TIED else draw.choice((0, 1, 2, 3))),
        "exchange": draw.choice(tuple(EXCHANGES)),
        "recomputed": draw.choice(((), (tuple(layer.name for layer in layers[first:last]),))),
        "synchronisation": Synchronisation(bucket_bytes=draw.choice((0, 500, 10**6))),
    }
    return Plan(model="tiny", batch_size=BATCH, placements=placements, **{**drawn, **fields})


def _any_sharding(draw: random.Random, layer: Layer) -> Sharding:
    """At most twelve shards; an attention is cut by whole heads, a loss by sample alone."""
    summing = layer.sums_inputs and bool(layer.inputs or layer.kind == "embedding")
    while True:
        degrees = [draw.choice((1, 1, min(2, extent), min(3, extent))) for extent in (3, *layer.output_shape)]
        if layer.name == "attention":
            degrees[1] = draw.choice((1, 2))
        reduce = draw.choice((1, 1, 2, 3)) if summing else 1
        copy = draw.choice((1, 1, 2, 3))
        if prod(degrees) * reduce * copy <= 12:
            break
    boxes = prod(degrees) * reduce
    devices = tuple(device for _ in range(boxes) for device in draw.sample(range(FOUR.workers), copy))
    a, b, c, d = degrees
    return Sharding(degrees=(a, b, c, d), reduce=reduce, copy=copy, devices=devices)


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        *(("transformer", n) for n in range(laws.examples(3, 6))),
        *(("tied", n) for n in range(laws.examples(2, 4))),
        *(("convolutions", n) for n in range(laws.examples(2, 3))),
    ],
)
def test_gradients_of_random_plans_over_all_axes(name: str, seed: int) -> None:
    """Momentum makes the second step show what the first one left."""
    network = NETWORKS[name]
    assert_equal_training(script_of(any_plan(seed, network), FOUR, network), 2)


PLANS: dict[str, tuple[str, str, dict[str, Any], dict[str, Any]]] = {
    "tensor 4": ("megatron", "transformer", {"tensor": 4}, {}),
    "tensor 2, copied norms": ("megatron", "transformer", {"tensor": 2, "sequence_parallel": False}, {}),
    "tensor 2 x pipeline 2": ("megatron", "transformer", {"tensor": 2, "pipeline": 2, "microbatches": 4}, {}),
    "tensor 2 x pipeline 2, scattered": (
        "megatron",
        "transformer",
        {"tensor": 2, "pipeline": 2, "microbatches": 2, "sequence_parallel": False, "scattered": True},
        {},
    ),
    "tensor 2 x context 2": ("megatron", "transformer", {"tensor": 2, "context": 2}, {}),
    "context 4": ("megatron", "transformer", {"context": 4}, {}),
    "full recomputation": ("megatron", "transformer", {"tensor": 2, "context": 2, "recomputation": "full"}, {}),
    "selective, tied": ("megatron", "tied", {"tensor": 2, "recomputation": "selective"}, {}),
    "tied over stages": ("pipeline", "tied", {"microbatches": 4, "judged": False}, {}),
    "fsdp": ("fsdp", "transformer", {"recomputation": "full", "microbatches": 2}, {}),
    "fsdp, hybrid": ("fsdp", "convolutions", {"group": 2}, {}),
    "zero 1, tied": ("data", "tied", {}, {"stage": 1}),
    "zero 2, hybrid": ("data", "convolutions", {"microbatches": 2}, {"stage": 2, "group": 2, "each_microbatch": True}),
    "zero 3, kept": ("data", "convolutions", {"microbatches": 2}, {"stage": 3, "keep_gathered": True, "prefetch": 2}),
    "zero 3, no prefetch": ("data", "functions", {}, {"stage": 3, "prefetch": 0}),
}


def script_named(name: str) -> Script:
    strategy, network, options, states = PLANS[name]
    plan = made(strategy, NETWORKS[network], FOUR, batch_size=8, **options)
    plan = replace(plan, states=ParameterStates(**states)) if states else plan
    return script_of(plan, FOUR, NETWORKS[network])


@pytest.mark.parametrize("name", PLANS)
def test_gradients_and_bytes_of_named_plans(name: str) -> None:
    """What all ranks send over all pairs of every task, and in all, is what the simulation counts."""
    script = script_named(name)
    assert_equal_training(script, 2)
    _, _, ranks = sharded(script)
    graph, sent = script.graph, sum(rank[-1].sent_bytes for rank in ranks)
    pairs = np.array([len(graph.routes[route].pairs) if route >= 0 else 0 for route in graph.route])
    backend = _all_reduced(script)
    assert sent[~backend] == pytest.approx((graph.bytes * pairs)[~backend])
    for task in np.flatnonzero(backend).tolist():  # of the backend's own all-reduce, ranks know the row alone
        assert graph.bytes[task] == pytest.approx(2 * (pairs[task] - 1) / pairs[task] * sent[task] / pairs[task])
    assert (graph.bytes * pairs).sum() == pytest.approx(communication_volume(script.sharded, FOUR).total)


def _all_reduced(script: Script) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which tasks are sums by the backend's all-reduce, shape (tasks,)."""
    from traces.runs.executor.bucket_transfers import bucket_transfers

    tasks = [task for task, each in bucket_transfers(script, 0).items() if each.step == "all-reduce"]
    return np.isin(np.arange(len(script.graph)), tasks)


@pytest.mark.parametrize("seed", range(12))
def test_every_transfer_of_a_random_plan_carries_what_the_graph_says(seed: int) -> None:
    """The executor derives the elements that move; the graph's bytes are those of their numbers."""
    network = NETWORKS[("transformer", "tied", "convolutions", "functions")[seed % 4]]
    script = script_of(any_plan(seed, network), FOUR, network)
    graph = script.graph
    exchanged = np.flatnonzero(np.isin(graph.kind, (Kind.ACTIVATION, Kind.GRADIENT))).tolist()
    assert sorted(script.moves) == exchanged and len(exchanged) > 20
    for task, carried in script.moves.items():
        elements = sum(part.last - part.first for part in carried.move.slices)
        n, each = len(carried.members), script.profile.element_bytes(carried.layer)
        whole = n / (n - 1) if carried.move.pattern == "all-to-all" else 1
        share = {
            "message": 1.0, "all-reduce": 2 * (n - 1) / n, "all-gather": (n - 1) / n, "reduce-scatter": (n - 1) / n,
        }.get(carried.move.pattern, 1 / n**2)  # fmt: skip
        assert graph.bytes[task] == pytest.approx(elements * whole * share * each)
    moves = {key: len(edge.moves) for key, edge in script.edges.items()}
    joined = Counter((carried.layer, carried.phase) for carried in script.moves.values())
    assert joined == Counter({key: n * script.plan.microbatches for key, n in moves.items() if n})


def test_processes_over_loopback_train_these_plans_as_one() -> None:
    """Through gloo: rings of messages, gathers of parameters, a sum over two stages; all plans in one launch."""
    names = ["tensor 2 x pipeline 2", "full recomputation", "zero 2, hybrid", "zero 3, kept", "tied over stages"]
    names = laws.some(names, 0, 2, 4)
    losses = launch("test_execute_parallel:trained_in_processes", 4, arguments={"names": names})
    for name in names:
        of_ranks = [rank[name] for rank in losses]
        _, expected, _ = sharded_in_threads(name)
        assert [sum(parts) for parts in zip(*of_ranks, strict=True)] == pytest.approx(expected, rel=1e-9)


def sharded_in_threads(name: str) -> tuple[Script, list[float], dict[str, Any]]:
    script = script_named(name)
    losses, parameters, _ = sharded(script, 2)
    return script, losses, parameters


def trained_in_processes(rank: Rank, names: list[str]) -> dict[str, list[float]]:
    """What each of those processes does: two steps of every plan; its part of the losses."""
    losses = {}
    for name in names:
        script = script_named(name)
        worker = Worker(script, rank.number, Gloo(all_reduce_groups(script)), rank.doing)
        batch = random_batch(script)
        losses[name] = [worker.step(*batch).loss for _ in range(2)]
        worker.close()
    return losses


def test_zero_3_keeps_a_slice_between_steps() -> None:
    """Each rank holds a quarter of every bucket, the rest is no number; together they are the parameters."""
    script = script_named("fsdp")
    _, parameters, ranks = sharded(script)
    assert execution_of_ranks(ranks).steps_s and not any(value.isnan().any() for value in parameters.values())
    (held,) = {len(bucket.devices) for bucket in script.sharded.buckets}
    assert held == 4
    worker = Worker(script, 0, Threads(ThreadGroup(4), 0))
    alone = whole_parameters(script, [worker.shards.parameters])
    worker.close()
    kept = sum(int((~value.isnan()).sum()) for value in alone.values())
    assert kept == pytest.approx(sum(value.numel() for value in alone.values()) / 4, abs=len(script.sharded.buckets))


@pytest.mark.parametrize(
    ("network", "fields", "message"),
    [
        ("tied", {"states": ParameterStates(stage=3)}, "tied to embedding, which the executor does not run"),
        (
            "transformer",
            {"states": ParameterStates(stage=1, gradient_dtype="bfloat16")},
            "gradients summed in bfloat16",
        ),
        ("tied", {"schedule": "pipedream", "states": ParameterStates()}, "stashes weights, and layer 'head', tied to"),
        ("transformer", {"schedule": "pipedream", "states": ParameterStates(stage=1)}, "that are shared out"),
        ("transformer", {"work": (1.0, 2.0)}, "samples of unequal work"),
        ("transformer", {"received_again": ("k", "v")}, r"outputs received again \(k, v\)"),
    ],
)
def test_what_the_executor_does_not_run(network: str, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        script_of(any_plan(0, NETWORKS[network], **fields), FOUR, NETWORKS[network])


def test_a_layer_that_is_no_sum_of_parts_is_refused() -> None:
    """A grouped convolution's channels read their own group alone, and a bias after a sum is added once."""
    plan = any_plan(0, MIXED)
    placements = {**plan.placements, "grouped": Sharding(reduce=2, devices=(0, 1))}
    with pytest.raises(InputError, match="no sum over input channels"):
        script_of(replace(plan, placements=placements), FOUR).graph  # noqa: B018
