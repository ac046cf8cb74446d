"""Bytes of today's parallelisms against closed forms: every case of sharding_cases.json, exactly.

The cases were made by an independent program that moved real numbers between devices, or by a published formula.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from counted_volume import communication_volume
from test_closed_forms import star

from benchmarks.studies.sharding_cases import GROUPS
from simulator.lowering.sharded_model import ShardedModel
from simulator.parameter_states import ParameterStates
from simulator.plan import EXCHANGES, Plan, Sharding, Synchronisation
from simulator.run import run
from simulator.workload import Geometry, Layer, Profile

Case = Mapping[str, Any]
CASES: list[Case] = json.loads(Path(__file__).with_name("sharding_cases.json").read_text(encoding="utf-8"))["cases"]
GEOMETRIES = {
    "linear": Geometry(mixes_channels=True),
    "conv": Geometry(kernel=(3, 1), padding=(1, 0), mixes_channels=True),
    "scale": Geometry(),
    "attend": Geometry(kernel=None),
}


def of_group(group: str) -> list[Any]:
    return [pytest.param(case, id=case["name"]) for case in CASES if case["group"] == group]


def sharding(degrees: Mapping[str, int], devices: list[int]) -> Sharding:
    sample, channel, height, width = (degrees.get(axis, 1) for axis in ("sample", "channel", "height", "width"))
    return Sharding(
        degrees=(sample, channel, height, width),
        reduce=degrees.get("reduce", 1),
        copy=degrees.get("copy", 1),
        devices=tuple(devices),
    )


def layer(name: str, kind: str, inputs: list[str], channels: int, reads: int, parameters: Mapping[str, Any]) -> Layer:
    """One layer of a case: bytes of parameters are its weights, without biases."""
    height, width, each = parameters["height"], parameters["width"], parameters["element_bytes"]
    weights = {"linear": channels * reads, "conv": 3 * channels * reads, "scale": channels, "attend": 0}[kind]
    return Layer(
        name=name,
        kind=kind,
        inputs=tuple(inputs),
        output_shape=(channels, height, width),
        forward_s=1e-3,
        backward_s=2e-3,
        parameter_bytes=weights * each,
        output_bytes=parameters["samples"] * channels * height * width * each,
        geometry=GEOMETRIES[kind],
    )


def profile_of(layers: list[Layer], samples: int) -> Profile:
    return Profile(model="case", device="none", batch_size=samples, dtype="bfloat16", layers=tuple(layers))


def plan_of(profile: Profile, placements: Mapping[str, Sharding], microbatches: int, exchange: str) -> Plan:
    return Plan(
        model="case",
        batch_size=profile.batch_size * microbatches,
        microbatches=microbatches,
        placements=placements,
        exchange=exchange,
        synchronisation=Synchronisation(bucket_bytes=0),
    )


def check_volume(
    profile: Profile, plan: Plan, forward: float, backward: float, gradients: float, parameters: float = 0
) -> None:
    """The volume counted from the plan, and the bytes of its simulated messages."""
    cluster = star(1 + max(plan.devices))
    counted = communication_volume(ShardedModel(profile, plan), cluster)
    simulated = run(profile, cluster, plan).report.communication_bytes
    for volume in (counted, simulated):
        bytes_by_phase = volume.forward, volume.backward, volume.synchronisation, volume.parameters
        assert bytes_by_phase == pytest.approx((forward, backward, gradients, parameters), rel=1e-12, abs=1e-6)


@pytest.mark.parametrize("exchange", EXCHANGES)
@pytest.mark.parametrize("case", of_group("plans"))
def test_a_whole_plan_sends_what_the_case_says(case: Case, exchange: str) -> None:
    parameters, expected = case["parameters"], case["expected"]
    layers = [
        layer(entry["name"], entry["kind"], entry["inputs"], entry["channels"], entry["input_channels"], parameters)
        for entry in parameters["layers"]
    ]
    placements = {
        name: sharding(split.get("degrees", {}), split["devices"]) for name, split in parameters["placements"].items()
    }
    profile = profile_of(layers, parameters["samples"])
    states = ParameterStates(stage=parameters["stage"], group=parameters["z"])
    plan = replace(plan_of(profile, placements, parameters["m"], exchange), states=states)
    check_volume(
        profile, plan, *(expected[f"{name}_bytes"] for name in ("forward", "backward", "gradient", "parameter"))
    )


@pytest.mark.parametrize("exchange", EXCHANGES)
@pytest.mark.parametrize("case", of_group("edge"))
def test_an_edge_sends_what_the_case_says(case: Case, exchange: str) -> None:
    """One tensor between two layers; gradients of parameters are left out by giving the layers none."""
    parameters = case["parameters"]
    samples, channels, height, width = parameters["tensor"]
    sizes = {"samples": samples, "height": height, "width": width, "element_bytes": parameters["element_bytes"]}
    ends = parameters["producer"], parameters["consumer"]
    layers = [
        layer(name, end["kind"], inputs, channels, 0, sizes)
        for name, end, inputs in zip(("a", "b"), ends, ([], ["a"]), strict=True)
    ]
    layers = [Layer(**{**fields(each), "parameter_bytes": 0}) for each in layers]
    placements = {name: sharding(end["degrees"], end["devices"]) for name, end in zip(("a", "b"), ends, strict=True)}
    profile = profile_of(layers, samples)
    plan = plan_of(profile, placements, 1, exchange)
    check_volume(profile, plan, case["expected"]["forward_bytes"], case["expected"]["backward_bytes"], 0)


def fields(layer: Layer) -> dict[str, Any]:
    return {name: getattr(layer, name) for name in Layer.__dataclass_fields__}


def test_the_table_names_every_number_that_no_test_reads() -> None:
    """Numbers of which no other test has the name, whole or as it puts names together, stand as not held."""
    tests = "".join(path.read_text(encoding="utf-8") for path in sorted(Path(__file__).parent.glob("test_*.py")))
    for group, (_, missing) in GROUPS.items():
        names = {name for case in CASES if case["group"] == group for name in case["expected"]}
        assert {*missing} <= names and {case["group"] for case in CASES} == {*GROUPS}
        assert not [name for name in missing if name in tests]
