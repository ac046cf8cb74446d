"""What a sweep file means: values, ranges, zips, constraints, and one clear line for each mistake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sweep_strategies
from conftest import ROOT
from small_networks import chain

from partitioners import options, strategies
from simulator import files
from simulator.cli._options import profile_on
from simulator.errors import InputError, ShardscopeError, UnknownNameError
from simulator.sweep.axes import MOST_POINTS, read_axes, read_values
from simulator.sweep.inputs import load_inputs
from simulator.sweep.points import Points, expand
from simulator.sweep.specification import Specification, read_specification

NEEDED = {"profile": "p.json", "cluster": "gcp-v100", "strategy": "turns"}


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    path = tmp_path / "chain.json"
    files.write_profile(chain([1.0, 2.0, 3.0]), path)
    return path


@pytest.mark.parametrize(
    ("name", "written", "values"),
    [
        ("devices", 4, (4,)),
        ("devices", [2, 4, 2], (2, 4)),
        ("devices", "1..64 by x2", (1, 2, 4, 8, 16, 32, 64)),
        ("devices", "1..60 by x2", (1, 2, 4, 8, 16, 32)),
        ("devices", "2..4", (2, 3, 4)),
        ("devices", [1, "4..8 by 2"], (1, 4, 6, 8)),
        ("inter_bandwidth_bytes_per_s", "1Gbps..4Gbps by x2", (1.25e8, 2.5e8, 5e8)),
        ("inter_bandwidth_bytes_per_s", ["8Gbps", 3e9], (1e9, 3e9)),
        ("inter_latency_s", "5us", (5e-6,)),
        ("inter_latency_s", "1us..3us by 1us", pytest.approx((1e-6, 2e-6, 3e-6))),
        ("bucket_bytes", "1MiB..4MiB by x2", (2**20, 2**21, 2**22)),
        ("imbalance", "0.01..0.04 by x2", (0.01, 0.02, 0.04)),
        ("profile", "../a..b.json", ("../a..b.json",)),
        ("overlap", [True, False], (True, False)),
    ],
)
def test_values_are_read_from_lists_and_ranges(name: str, written: Any, values: Any) -> None:
    assert read_values(name, written) == values


@pytest.mark.parametrize(
    ("name", "written", "complaint"),
    [
        ("devices", "8..4", "devices is the range '8..4', which is empty"),
        ("devices", [], "devices is an empty list"),
        ("devices", "1..8 by x1", "a factor is above 1"),
        ("devices", "1..8 by 0", "a step is above 0"),
        ("devices", "0..8 by x2", "starts above 0"),
        ("devices", "1..4 by x1.5", "devices is 1.5: it is a whole number"),
        ("devices", "2..many", "devices is '2..many': it is a whole number"),
        ("devices", "2..4GiB", "devices is a range with '4GiB' in it"),
        ("devices", True, "devices is True"),
        ("devices", {"from": 1}, "devices is a mapping"),
        ("batch_size", 0, "batch_size is 0: it is a whole number of at least 1"),
        ("speed", -1, "speed is -1: it is a finite number above 0"),
        ("speed", "fast", "speed is 'fast'"),
        ("inter_bandwidth_bytes_per_s", "quick", "bandwidth 'quick'"),
        ("strategy", 3, "strategy is 3: it is a name"),
        ("seed", "1..1000000000", "seed is the range '1..1000000000', which is too long"),
    ],
)
def test_bad_values_are_refused_in_one_line(name: str, written: Any, complaint: str) -> None:
    with pytest.raises(InputError) as caught:
        read_values(name, written)
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_combination_in_the_order_of_the_file(profile: Path) -> None:
    points = sweep_strategies.points(profile, devices=[2, 4], seed="0..2")
    assert [(p.values["devices"], p.values["seed"]) for p in points.points] == [
        (2, 0), (2, 1), (2, 2), (4, 0), (4, 1), (4, 2),
    ]  # fmt: skip
    assert [p.number for p in points.points] == [0, 1, 2, 3, 4, 5]


def test_zips_walk_in_step(profile: Path) -> None:
    written = Specification(
        parameters=NEEDED | {"profile": str(profile), "seed": [0, 1]},
        zip=({"devices": "2..8 by x2", "batch_size": [8, 16, 32]},),
    )
    points = expand(written, sweep_strategies.OPTIONS)
    pairs = [(p.values["devices"], p.values["batch_size"]) for p in points.points]
    assert pairs == 2 * [(2, 8), (4, 16), (8, 32)]


def test_defaults_are_filled_in(profile: Path) -> None:
    (point,) = expand(Specification(parameters=NEEDED | {"profile": str(profile)}), sweep_strategies.OPTIONS).points
    assert point.values == NEEDED | {"profile": str(profile), "devices": 4, "batch_size": 32, "seed": 0}


def test_what_makes_no_difference_is_empty_and_not_run_twice(profile: Path) -> None:
    """ "plain" has no micro-batches; of its three points one is left."""
    points = sweep_strategies.points(profile, strategy=["turns", "plain"], microbatches=[1, 2, 4])
    values = [(p.values["strategy"], p.values["microbatches"]) for p in points.points]
    assert values == [("turns", 1), ("turns", 2), ("turns", 4), ("plain", None)]


def test_tiers_that_a_cluster_lacks_make_no_difference(profile: Path) -> None:
    clusters = ["gcp-v100", "cpu-1g"]  # the latter has one device per node and so no links inside
    points = sweep_strategies.points(profile, cluster=clusters, intra_latency_s=[1e-6, 2e-6])
    values = [(p.values["cluster"], p.values["intra_latency_s"]) for p in points.points]
    assert values == [("gcp-v100", 1e-6), ("gcp-v100", 2e-6), ("cpu-1g", None)]


def test_constraints_keep_the_points_that_meet_them_all(profile: Path) -> None:
    where = ("devices <= 4", "microbatches >= devices OR seed == 7")
    points = sweep_strategies.points(
        profile, where, strategy=["turns", "plain"], devices="2..8 by x2", microbatches=[1, 2]
    )
    values = [(p.values["strategy"], p.values["devices"], p.values["microbatches"]) for p in points.points]
    assert values == [("turns", 2, 2), ("plain", 2, None), ("plain", 4, None)]
    assert not points.must_fit
    assert sweep_strategies.points(profile, ("fits",)).must_fit


def test_overrides_reach_the_cluster(profile: Path) -> None:
    points = sweep_strategies.points(
        profile, devices=8, inter_bandwidth_bytes_per_s="1Gbps", inter_latency_s="7us", speed=2
    )
    cluster = points.inputs.cluster(points.points[0].values)
    inter = [link for link in cluster.links if link.tier == "inter"]
    assert {(link.bandwidth_bytes_per_s, link.latency_s) for link in inter} == {(1.25e8, 7e-6)}
    assert cluster.speeds == (2.0,) * 8
    assert points.inputs.cluster(points.points[0].values) is cluster


def test_parameter_servers_appear_when_needed(profile: Path) -> None:
    points = sweep_strategies.points(profile, collective=["ring", "ps"])
    assert [len(points.inputs.cluster(point.values).servers) for point in points.points] == [0, 1]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"microbatch": [1]}, "unknown parameter 'microbatch', did you mean 'microbatches'?"),
        ({"middle_latency_s": [1]}, "unknown parameter 'middle_latency_s'"),
        ({"strategy": "turn"}, "unknown strategy 'turn', did you mean 'turns'?"),
        ({"collective": "rings"}, "unknown collective 'rings', did you mean 'ring'?"),
        ({"cluster": "gcp-v10"}, "unknown cluster (and no such file) 'gcp-v10'"),
        ({"profile": "vgg61"}, "unknown profile or model card (and no such file) 'vgg61'"),
        ({"synchronisation": "ring"}, "unknown parameter 'synchronisation'"),
        ({"where": ("devics < 4",)}, "no such column 'devics', did you mean 'devices'?"),
        ({"where": ("devices <",)}, "where is 'devices <'"),
        ({"where": ("devices > 99",)}, "where leaves none of 1 points"),
        ({"seed": "1..40000", "batch_size": "1..25000"}, "parameters make 1,000,000,000 points"),
    ],
)
def test_mistakes_are_told_before_anything_runs(profile: Path, change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ShardscopeError) as caught:
        sweep_strategies.points(profile, **change)
    assert complaint in str(caught.value)


def test_product_is_limited_before_it_is_made() -> None:
    with pytest.raises(InputError, match=f"at most {MOST_POINTS:,}"):
        read_axes(Specification(parameters=NEEDED | dict.fromkeys(("seed", "devices", "batch_size"), "1..1000")))


def test_zips_of_unequal_length() -> None:
    with pytest.raises(InputError, match="zip: seed has 2, devices has 3 values"):
        read_axes(Specification(parameters=NEEDED, zip=({"seed": [1, 2], "devices": [1, 2, 3]},)))


def test_a_parameter_stands_once() -> None:
    with pytest.raises(InputError, match="'seed' stands in parameters and in zip"):
        Specification(parameters=NEEDED | {"seed": 1}, zip=({"seed": [1]},))


def test_a_file_is_read_and_its_mistakes_are_named(tmp_path: Path) -> None:
    path = tmp_path / "sweep.yaml"
    path.write_text("schema: 1\nparameters: {profile: p, cluster: c, strategy: [a, b], seed: 1..3}\nwhere: [fits]\n")
    specification = read_specification(path)
    assert specification.parameters["strategy"] == ["a", "b"] and specification.where == ("fits",)
    path.write_text("schema: 1\nparameters: {profile: p, cluster: c}\n")
    with pytest.raises(InputError, match="parameters lacks 'strategy'"):
        read_specification(path)
    path.write_text("schema: 1\nparameter: {}\n")
    with pytest.raises(InputError, match="did you mean 'parameters'"):
        read_specification(path)


def test_strategies_see_only_their_options(profile: Path) -> None:
    points: Points = sweep_strategies.points(profile, strategy=["turns", "plain"], shift=[0, 1])
    assert [p.values["shift"] for p in points.points] == [0, 1, None]
    with pytest.raises(UnknownNameError, match="unknown parameter 'shift'"):
        sweep_strategies.points(profile, strategy="plain", shift=1)


SWEEPS = [path for path in sorted((ROOT / "examples").glob("*.yaml")) if "parameters:" in path.read_text()]


@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.stem)
def test_examples_are_sweeps(path: Path) -> None:
    points = expand(read_specification(path), {name: tuple(options(name)) for name in strategies()})
    assert 100 < len(points.points) < 1000


def test_a_model_card_is_modelled_on_the_gpus_of_each_cluster() -> None:
    """As `simulate` does; on a cluster without GPUs it is an H100's, and a measured profile is everywhere the same."""
    points = [
        {"profile": profile, "cluster": cluster}
        for profile in ("llama3-1b", "vgg_digits")
        for cluster in ("dgx-a100", "dgx-h100", "cpu-1g")
    ]
    inputs = load_inputs(points)
    a100, h100, none = (inputs.profile(point) for point in points[:3])
    assert (a100.device, h100.device) == ("NVIDIA A100 40GB SXM4", "NVIDIA H100 80GB SXM5") and none == h100
    assert a100 == profile_on("llama3-1b", "dgx-a100")
    # bf16 peaks of the data sheets: 312 and 989.4 TFLOP/s, and matrices take most of a step
    assert 1.5 < a100.layers_s / h100.layers_s < 3.5
    assert len({inputs.profile_hashes[name] for name in inputs.profile_hashes}) == 3
    assert {id(inputs.profile(point)) for point in points[3:]} == {id(inputs.profile(points[3]))}
