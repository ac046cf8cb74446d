"""A language model on Explore: its grid of devices, a block inside one stage, memory by kind. No browser."""

from __future__ import annotations

import json

import numpy as np
import pytest
from small_networks import branches

import partitioners
from dashboard.figures.device_grid import block_timeline, device_grid
from dashboard.figures.devices import KINDS, memory, parts_of
from dashboard.state.alternatives import LANGUAGE_STRATEGIES, STRATEGIES, alternatives
from dashboard.state.configuration import Configuration
from dashboard.state.device_groups import DeviceGrid, block_in, grid_of
from dashboard.state.measures import sequence_length
from simulator.cluster import Cluster
from simulator.files import library, read_profile
from simulator.network.catalogue import read_cluster
from simulator.plan import Plan, Sharding, StepSettings
from simulator.run import Run, run
from simulator.workload import Profile

NOW = Configuration(profile="p@0", cluster="dgx-h100", strategy="data", devices=8)


@pytest.fixture(scope="module")
def profile() -> Profile:
    if "gpt2_large_h100" not in library():
        pytest.skip("the library has no profile gpt2_large_h100")
    return read_profile("gpt2_large_h100")


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    return read_cluster("dgx-h100", devices=8)


def planned(profile: Profile, cluster: Cluster, strategy: str, **degrees: int) -> Plan:
    step = StepSettings(batch_size=8, microbatches=2 if strategy == "megatron" else None)
    return partitioners.make_plan(strategy, profile, cluster, step, **degrees)


@pytest.fixture(scope="module")
def simulated(profile: Profile, cluster: Cluster) -> Run:
    return run(profile, cluster, planned(profile, cluster, "megatron", tensor=2, pipeline=2))


def test_a_grid_is_read_from_any_plan_that_is_one(profile: Profile, cluster: Cluster, simulated: Run) -> None:
    grid = grid_of(profile, simulated.plan)
    assert grid is not None and grid.words == "data 2 × tensor 2 × pipeline 2"
    assert grid.devices.tolist() == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]
    assert [grid.stage_of(device) for device in range(8)] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert sorted(position for stage in grid.layers for position in stage) == list(range(len(profile.layers)))
    for strategy, shape in (("data", (1, 8, 1)), ("fsdp", (1, 8, 1))):
        grid = grid_of(profile, planned(profile, cluster, strategy))
        assert grid is not None and grid.devices.shape == shape


def test_layers_that_share_some_devices_are_no_grid() -> None:
    network = branches()
    placements = {
        layer.name: Sharding(degrees=(2, 1, 1, 1), devices=(i, i + 1)) for i, layer in enumerate(network.layers)
    }
    assert grid_of(network, Plan(model=network.model, strategy="by hand", placements=placements, batch_size=4)) is None


def test_a_block_stands_whole_in_its_stage(profile: Profile, simulated: Run) -> None:
    grid = grid_of(profile, simulated.plan)
    assert grid is not None
    for layers in grid.layers:
        block = block_in(profile, layers)
        assert len(block) == 12 and set(block) <= set(layers) and profile.layers[block[0]].kind == "layernorm"
    assert block_in(profile, (0, 1)) == range(0)


def test_figures_hold_what_the_run_says(profile: Profile, cluster: Cluster, simulated: Run) -> None:
    grid = grid_of(profile, simulated.plan)
    assert grid is not None
    drawn = device_grid(simulated, cluster, grid)["data"][0]
    assert sorted(device for (device,) in drawn["customdata"]) == list(range(8))
    assert drawn["text"] is not None and drawn["marker"]["size"] >= 14
    column = DeviceGrid(devices=np.arange(8).reshape(1, 8, 1), layers=grid.layers[:1])
    narrow = device_grid(simulated, cluster, column)["data"][0]
    assert narrow["text"] is None and narrow["marker"]["size"] < 14  # where its number would hang over the next
    bars = {bar["name"]: bar for bar in block_timeline(simulated, 5, block_in(profile, grid.layers[1]))["data"]}
    assert set(bars) == {f"{way}: {what}" for way in ("forward", "backward") for what in ("computes", "transfers")}
    assert len(bars["forward: computes"]["x"]) == 12 and min(bars["forward: computes"]["base"]) == 0
    for device in simulated.report.devices:
        parts = parts_of(device)
        assert list(parts) == list(KINDS) and min(parts.values()) >= 0
        assert sum(parts.values()) == pytest.approx(device.peak_memory_bytes)
    stages = memory(simulated, cluster, groups=grid.stages)
    heights = np.sum([bar["y"] for bar in stages["data"] if bar["type"] == "bar"], axis=0) * 2**30
    peaks = [max(simulated.report.devices[d].peak_memory_bytes for d in stage.reshape(-1)) for stage in grid.devices]
    assert heights == pytest.approx(peaks)
    json.dumps(stages, allow_nan=False)


def test_the_strategies_beside_each_other_suit_the_network(profile: Profile) -> None:
    assert sequence_length(profile) == 1024 and sequence_length(branches()) == 0
    options = alternatives(NOW, profile)
    assert {option.strategy for option in options} == set(LANGUAGE_STRATEGIES)
    assert next(option for option in options if option.strategy == "megatron").tensor == 4  # of 20 heads
    assert {option.strategy for option in alternatives(NOW, branches())} == set(STRATEGIES)
