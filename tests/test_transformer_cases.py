"""Bytes of a transformer block under tensor, sequence and context parallelism: sharding_cases.json, exactly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from counted_volume import communication_volume
from test_closed_forms import star
from test_sharding_cases import Case, of_group, sharding

from simulator.lowering.sharded_model import ShardedModel
from simulator.plan import EXCHANGES, Plan, Synchronisation
from simulator.report.traffic import Communication
from simulator.run import run
from simulator.taskgraph import Kind
from simulator.workload import Geometry, Layer, Profile

MIXING = Geometry(mixes_channels=True)
Split = Mapping[str, int]


class Network:
    """Layers of (samples b, sequence s) with their placements on devices 0 to t - 1."""

    def __init__(self, parameters: Mapping[str, Any], devices: int) -> None:
        self.b, self.s, self.each = parameters["b"], parameters["s"], parameters["element_bytes"]
        self.devices, self.layers, self.placements = devices, [], {}

    def add(self, name: str, kind: str, channels: int, split: Split, *inputs: str, **fields: Any) -> None:
        each = fields.pop("each", self.each)
        layer = Layer(
            name=name, kind=kind, inputs=inputs, output_shape=(channels, self.s, 1), forward_s=1e-3, backward_s=2e-3,
            output_bytes=self.b * self.s * channels * each, **{"geometry": Geometry(), **fields},
        )  # fmt: skip
        self.layers.append(layer)
        self.placements[name] = sharding(split, list(range(self.devices)))

    def model(self, exchange: str, *received_again: str) -> ShardedModel:
        profile = Profile(model="block", device="none", batch_size=self.b, dtype="bfloat16", layers=tuple(self.layers))
        plan = Plan(
            model="block", batch_size=self.b, placements=self.placements, exchange=exchange,
            synchronisation=Synchronisation(bucket_bytes=0), received_again=received_again,
        )  # fmt: skip
        return ShardedModel(profile, plan)

    def volumes(self, exchange: str, *received_again: str) -> list[Communication]:
        """Counted from the plan, and simulated."""
        model, cluster = self.model(exchange, *received_again), star(self.devices)
        return [
            communication_volume(model, cluster),
            run(model.profile, cluster, model.plan).report.communication_bytes,
        ]


def block(parameters: Mapping[str, Any], norms: Split) -> Network:
    """Megatron's block (Shoeybi et al., arXiv 1909.08053): attention and MLP, column- then row-parallel."""
    t, h = parameters["t"], parameters["h"]
    made, column, row = Network(parameters, t), {"channel": t}, {"reduce": t}
    vectors = {"parameter_bytes": 2 * h * parameters["element_bytes"]}  # weight and bias
    made.add("x", "scale", h, norms)
    made.add("norm1", "layernorm", h, norms, "x", geometry=MIXING, **vectors)
    made.add("qkv", "linear", 3 * h, column, "norm1", geometry=MIXING)
    attention = Geometry(kernel=None, groups=t, mixes_channels=True)  # at least t heads, whole heads on a device
    made.add("attention", "attention", h, column, "qkv", geometry=attention)
    made.add("out", "linear", h, row, "attention", geometry=MIXING)
    made.add("add1", "add", h, norms, "out", "x")
    made.add("norm2", "layernorm", h, norms, "add1", geometry=MIXING, **vectors)
    made.add("up", "linear", 4 * h, column, "norm2", geometry=MIXING)
    made.add("gelu", "gelu", 4 * h, column, "up")
    made.add("down", "linear", h, row, "gelu", geometry=MIXING)
    made.add("add2", "add", h, norms, "down", "add1")
    return made


BLOCKS = [case for case in of_group("tensor") if "h" in case.values[0]["parameters"]]
GROUPED = [case for case in of_group("tensor") if "g" in case.values[0]["parameters"]]


@pytest.mark.parametrize("exchange", EXCHANGES)
@pytest.mark.parametrize("case", BLOCKS)
def test_a_tensor_parallel_block(case: Case, exchange: str) -> None:
    parameters, expected = case["parameters"], case["expected"]
    sequence = "sequence" in case["name"]
    made = block(parameters, {"height" if sequence else "copy": parameters["t"]})
    norms = expected.get("two_norms_weight_and_bias_gradient_bytes", 0)
    for volume in made.volumes(exchange):
        moved = volume.forward, volume.backward, volume.synchronisation
        assert moved == pytest.approx((expected["forward_bytes"], expected["backward_bytes"], norms), rel=1e-12)


@pytest.mark.parametrize("exchange", EXCHANGES)
@pytest.mark.parametrize("case", [case for case in BLOCKS if "sequence" in case.values[0]["name"]])
def test_inputs_kept_as_own_parts_are_received_again(case: Case, exchange: str) -> None:
    """Both norms' outputs, of which column-parallel layers keep their own rows (Korthikanti et al., section 4.2.2)."""
    parameters, expected = case["parameters"], case["expected"]
    made = block(parameters, {"height": parameters["t"]})
    for volume in made.volumes(exchange, "norm1", "norm2"):
        again = volume.forward - expected["forward_bytes"]
        assert (again, volume.backward) == (expected["backward_regather_bytes"], expected["backward_bytes"])


@pytest.mark.parametrize("case", GROUPED)
def test_fewer_heads_of_keys_and_values_than_devices(case: Case) -> None:
    """Key and value heads are copied; the gradients of copies come from different query heads."""
    p, expected = case["parameters"], case["expected"]
    made = Network(p, p["t"])
    made.add("norm", "scale", 8, {"copy": p["t"]})
    copied = {"channel": p["g"], "copy": p["t"] // p["g"]}
    channels = p["g"] * p["d"]
    for name in ("keys", "values"):
        made.add(name, "linear", channels, copied, geometry=MIXING)
    heads = Geometry(kernel=None, groups=p["g"], mixes_channels=True)
    made.add("attention", "attention", p["t"] * p["d"], {"channel": p["t"]}, "keys", "values", geometry=heads)
    for volume in made.volumes("collectives"):
        assert (volume.forward, volume.backward) == (expected["forward_bytes"], expected["backward_bytes"])


def attention(parameters: Mapping[str, Any], split: Split) -> Network:
    """Projections cut along the sequence, attention as `split` says, the output projection cut along the sequence."""
    p = parameters
    made, rows = Network(p, p["c"]), {"height": p["c"]}
    made.add("queries", "linear", p["a"] * p["d"], rows, geometry=MIXING)
    made.add("keys", "linear", p["g"] * p["d"], rows, geometry=MIXING)
    made.add("values", "linear", p["g"] * p["d"], rows, geometry=MIXING)
    grouped = Geometry(kernel=None, groups=p["g"], mixes_channels=True, aligned_inputs=("queries",))
    by_group = {"geometry": grouped}
    made.add("attention", "attention", p["a"] * p["d"], split, "queries", "keys", "values", **by_group)
    made.add("out", "linear", p["a"] * p["d"], rows, "attention", geometry=MIXING)
    return made


@pytest.mark.parametrize("exchange", EXCHANGES)
@pytest.mark.parametrize("case", of_group("context"))
def test_context_parallel_attention_gathers_keys_and_values(case: Case, exchange: str) -> None:
    expected, c = case["expected"], case["parameters"]["c"]
    for volume in attention(case["parameters"], {"height": c}).volumes(exchange):
        moved = volume.forward, volume.backward
        assert moved == (expected["all_gather_forward_bytes"], expected["all_gather_backward_bytes"])


@pytest.mark.parametrize("exchange", EXCHANGES)
@pytest.mark.parametrize("case", of_group("context"))
def test_keys_and_values_received_again_are_what_a_ring_carries(case: Case, exchange: str) -> None:
    """A ring passes them round in the forward pass, and again, with their gradients, in the backward pass."""
    p, expected = case["parameters"], case["expected"]
    for volume in attention(p, {"height": p["c"]}).volumes(exchange, "keys", "values"):
        again = volume.forward - expected["all_gather_forward_bytes"]
        assert again == expected["all_gather_backward_regather_bytes"]
        assert volume.forward - again == expected["ring_forward_bytes"]
        assert volume.backward + again == expected["ring_backward_bytes"]


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_what_is_received_again_is_there_between_the_passes_alone(exchange: str) -> None:
    """It comes after the gradient of the attention's output and before its backward pass; meanwhile nobody holds it."""
    made = attention({"b": 2, "s": 8, "a": 4, "g": 4, "d": 2, "c": 2, "element_bytes": 2}, {"height": 2})
    once, twice = (made.model(exchange, *names) for names in ((), ("keys", "values")))
    done, kept = (run(model.profile, star(2), model.plan) for model in (twice, once))
    graph, timeline = done.graph, done.timeline
    keys = (graph.kind == Kind.ACTIVATION) & (graph.layer == twice.profile.index["keys"])
    attends = graph.layer == twice.profile.index["attention"]
    forward_end_s = timeline.end_s[attends & (graph.kind == Kind.FORWARD)].min()
    backward_start_s = timeline.start_s[attends & (graph.kind == Kind.BACKWARD)].max()
    out = (graph.kind == Kind.BACKWARD) & (graph.layer == twice.profile.index["out"])
    first, again = np.sort(timeline.start_s[keys]).reshape(2, -1)
    assert first.max() < forward_end_s and timeline.end_s[out].min() <= again.min()
    assert np.sort(timeline.end_s[keys])[len(first) :].max() <= backward_start_s
    assert graph.allocated_bytes.sum() + graph.allocation_bytes.sum() == pytest.approx(graph.freed_bytes.sum())
    assert done.report.peak_memory_bytes <= kept.report.peak_memory_bytes


@pytest.mark.parametrize("exchange", EXCHANGES)
@pytest.mark.parametrize("case", of_group("context"))
def test_ulysses_exchanges_sequence_for_heads(case: Case, exchange: str) -> None:
    p, expected = case["parameters"], case["expected"]
    if p["a"] < p["c"]:
        pytest.skip("more devices than heads")
    for volume in attention(p, {"channel": p["c"]}).volumes(exchange):
        assert volume.forward == pytest.approx(expected["ulysses_forward_bytes"], rel=1e-9)
        assert volume.backward == pytest.approx(expected["ulysses_backward_bytes"], rel=1e-9)


@pytest.mark.parametrize("norms", ["copy", "height"])
@pytest.mark.parametrize("case", of_group("vocabulary"))
def test_vocabulary_parallel_embedding_head_and_loss(case: Case, norms: str) -> None:
    """The embedding contracts the vocabulary; the loss needs three fp32 numbers of each token of all logits."""
    p, expected = case["parameters"], case["expected"]
    t, ending = p["t"], "_sequence_parallel" if norms == "height" else ""
    embedding, head, loss = Network(p, t), Network(p, t), Network(p, t)
    embedding.add("embedding", "embedding", p["h"], {"reduce": t}, geometry=MIXING)
    embedding.add("norm", "scale", p["h"], {norms: t}, "embedding")
    head.add("norm", "scale", p["h"], {norms: t})
    head.add("head", "linear", 8 * t, {"channel": t}, "norm", geometry=MIXING)
    loss.add("head", "linear", 8 * t, {"channel": t}, geometry=MIXING)
    loss.add("numbers", "cross_entropy", 3, {"reduce": t}, "head", geometry=MIXING, each=4)
    loss.add("loss", "add", 3, {"copy": t}, "numbers", each=4)
    for name, made, suffix in (("embedding", embedding, ending), ("head", head, ending), ("cross_entropy", loss, "")):
        for volume in made.volumes("collectives"):
            moved = volume.forward, volume.backward
            wanted = expected[f"{name}_forward_bytes{suffix}"], expected[f"{name}_backward_bytes{suffix}"]
            assert moved == pytest.approx(wanted, rel=1e-12), name


@pytest.mark.parametrize("axis", ["copy", "height"])
@pytest.mark.parametrize("case", of_group("pipeline"))
def test_a_stage_boundary_is_crossed_by_what_the_case_says(case: Case, axis: str) -> None:
    """Copies send to copies, t times the tensor; parts of the sequence to parts, once; scattered copies a part each
    (Narayanan et al., SC 2021, section 4.1)."""
    p, expected = case["parameters"], case["expected"]
    t = p["t"]
    made = Network(p, t)
    made.add("last", "scale", p["h"], {axis: t})
    made.add("first", "scale", p["h"], {axis: t}, "last")
    made.devices = 2 * t
    made.placements["first"] = sharding({axis: t}, list(range(t, 2 * t)))
    for exchange in ("collectives", "scattered"):
        kind = "sequence_parallel" if axis == "height" else "scattered" if exchange == "scattered" else "full"
        between, inside = expected[f"{kind}_between_stages_bytes"], expected[f"{kind}_inside_bytes"]
        for volume in made.volumes(exchange):
            assert volume.forward == volume.backward == between + inside
            crossing = (volume.source < t) != (volume.target < t)
            assert volume.size_bytes[crossing].sum() == 2 * between
            assert volume.size_bytes[~crossing].sum() == 2 * inside
