"""The partition figure: where bytes go, how the network folds, and what is drawn at 4, 64 and 1,024 devices."""

from __future__ import annotations

import re
from csv import DictReader
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import laws
import numpy as np
import pytest
from small_networks import branches, chain

from dashboard.figures.candidates import candidates
from dashboard.figures.network import topology
from dashboard.figures.partition import partition, strategies
from dashboard.figures.partition_graph import LEFT, RIGHT, WIDTH, ColumnGrid, _Anchors, _column, _title_lines, frame_of
from dashboard.figures.partition_rows import STRIP, balance
from dashboard.figures.shades import shades_of
from dashboard.figures.style import KINDS, device_colours
from dashboard.frame.routes import partition_csv
from dashboard.state.candidates import Candidate
from dashboard.state.columns import MOST_COLUMNS, Column, Glyph, _glyphs, by_column, columns_of, effective_split
from dashboard.state.configuration import Configuration
from dashboard.state.device_groups import device_groups
from dashboard.state.flows import BETWEEN, flows_of
from dashboard.state.folding import stretches
from dashboard.state.simulating import Glance, Outcome
from dashboard.state.store import Store
from dashboard.words.partition import against, heaviest_nets, moved_words
from dashboard.words.volume import volume_unit
from simulator.files import library, read_profile
from simulator.network.catalogue import read_preset
from simulator.plan import Plan, Sharding
from simulator.taskgraph import Floats
from simulator.workload import Layer, Profile

V100 = "azure-v100-10g"
needs_library = pytest.mark.skipif("gpt_1_3b_v100" not in library(), reason="the library has no profile gpt_1_3b_v100")


def deeper(profile: Profile, first: str, last: str, times: int) -> Profile:
    """`profile` with its layers from `first` to `last` standing `times` times behind each other."""
    index = profile.index
    head, block = profile.layers[: index[first]], profile.layers[index[first] : index[last] + 1]
    tail = profile.layers[index[last] + 1 :]
    layers: list[Layer] = list(head)
    before = head[-1].name
    for number in range(times):
        names = {head[-1].name: before} | {layer.name: f"{layer.name}.{number}" for layer in block}
        layers += [
            replace(part, name=names[part.name], inputs=tuple(names.get(i, i) for i in part.inputs)) for part in block
        ]
        before = names[last]
    names = {last: before}
    layers += [replace(part, inputs=tuple(names.get(i, i) for i in part.inputs)) for part in tail]
    return replace(profile, layers=tuple(layers))


def transformer(blocks: int) -> Profile:
    """GPT 1.3B with as many blocks."""
    profile = read_profile("gpt_1_3b_v100")
    adds = [layer.name for layer in profile.layers if layer.kind == "add"]
    first = profile.layers[profile.index[adds[1]] + 1].name  # after the first block
    return deeper(profile, first, adds[3], blocks - 23)


@pytest.fixture(scope="module")
def store() -> Store:
    profiles: dict[str, Profile] = {"branches": branches(), "chain": chain([3.0, 2.0, 1.0, 2.0])}
    if "gpt_1_3b_v100" in library():
        profiles |= {name: read_profile(name) for name in ("inception_v3", "resnet50_v100", "vgg16_v100")}
        profiles["gpt80"] = transformer(80)
    return Store(profiles)


def outcome_of(store: Store, profile: str, strategy: str, devices: int, **more: Any) -> Outcome:
    outcome = store.outcome(Configuration(profile=profile, cluster=V100, strategy=strategy, devices=devices, **more))
    assert outcome.run is not None, outcome.reason
    return outcome


@pytest.mark.parametrize("strategy", ["data", "pipeline", "owt", "model", "spatial", "layerwise", "hypergraph"])
def test_the_flows_are_the_communication_volume(store: Store, strategy: str) -> None:
    outcome = outcome_of(store, "branches", strategy, 8, batch_size=16, effort=0.02)
    assert outcome.run is not None and outcome.cluster is not None and outcome.flows is not None
    flows, volume = outcome.flows, outcome.run.report.communication_bytes
    assert flows.edge_bytes.sum() == pytest.approx(volume.forward + volume.backward)
    assert flows.gradient_bytes.sum() == pytest.approx(volume.synchronisation)
    hosts = [device.host for device in outcome.cluster.devices]
    between = sum(
        size for a, b, size in zip(volume.source, volume.target, volume.size_bytes, strict=True) if hosts[a] != hosts[b]
    )
    assert flows.between_bytes == pytest.approx(between)
    consumers = outcome.profile.consumers
    assert all(r in consumers[p] for p, r in zip(flows.producer.tolist(), flows.reader.tolist(), strict=True))
    assert flows.seconds.sum() == pytest.approx(sum(use.compute_s for use in outcome.run.report.layers))


def test_a_saved_partition_has_the_communication_volume(store: Store) -> None:
    outcome = outcome_of(store, "branches", "data", 4, zero_stage=1)
    assert outcome.run is not None
    rows = list(DictReader(partition_csv(outcome).splitlines()))
    moved = sum(float(size) for row in rows for name, size in row.items() if name.endswith("_nodes"))
    assert moved == pytest.approx(outcome.run.report.communication_bytes.total)
    assert sum(float(row["gathered_bytes_inside_nodes"]) for row in rows) > 0


def test_replicas_hold_what_data_parallelism_repeats(store: Store) -> None:
    outcome = outcome_of(store, "branches", "data", 4)
    assert outcome.flows is not None and outcome.run is not None
    state = 2 + outcome.run.plan.optimizer_state
    assert outcome.flows.replicated_bytes.sum() == 3 * state * outcome.profile.parameter_bytes


@pytest.mark.parametrize(
    ("stage", "group", "of_states"),
    [(1, 0, (3, 3, 0)), (2, 0, (3, 0, 0)), (3, 0, (0, 0, 0)), (3, 2, (1, 1, 1))],
    ids=["optimizer", "gradients", "all", "all of two"],
)
def test_what_zero_shares_out_is_not_replicated(
    store: Store, stage: int, group: int, of_states: tuple[int, int, int]
) -> None:
    outcome = outcome_of(store, "branches", "data", 4, zero_stage=stage, shard_group=group)
    assert outcome.flows is not None and outcome.run is not None
    copies = of_states[0] + of_states[1] + of_states[2] * outcome.run.plan.optimizer_state
    assert outcome.run.plan.optimizer_state
    assert outcome.flows.replicated_bytes.sum() == pytest.approx(copies * outcome.profile.parameter_bytes)


def test_columns_and_nets_add_up(store: Store) -> None:
    outcome = outcome_of(store, "branches", "hypergraph", 8, batch_size=16, effort=0.02)
    assert outcome.run is not None and outcome.flows is not None
    columns = columns_of(outcome.profile, outcome.run.plan)
    sums = (
        by_column(columns, outcome.flows.activation_bytes).sum()
        + by_column(columns, outcome.flows.gradient_bytes).sum()
    )
    assert sums == pytest.approx(outcome.flows.total_bytes)
    nets = heaviest_nets(outcome.profile, outcome.flows, columns)
    assert sum(net.bytes for net in nets) <= outcome.flows.total_bytes * (1 + 1e-9)
    assert [net.bytes for net in nets] == sorted((net.bytes for net in nets), reverse=True)
    assert all(0 <= net.between <= net.bytes for net in nets)
    if len(nets) < 10:  # all of them
        assert sum(net.between for net in nets) == pytest.approx(outcome.flows.between_bytes)
    one_node = outcome_of(store, "branches", "data", 2, batch_size=16)
    assert one_node.flows is not None and one_node.flows.total_bytes > 0
    assert {net.between for net in heaviest_nets(one_node.profile, one_node.flows, columns)} == {0}
    assert {net.producer for net in nets} <= {column.title for column in columns}  # as the figure names them
    assert all(outcome.profile.layers[net.layers[0]].name == net.layer for net in nets)


@pytest.mark.parametrize(
    ("sharding", "words", "cells"),
    [
        (Sharding(devices=(3,)), "1 device", ((3,),)),
        (Sharding(degrees=(4, 1, 1, 1), devices=(0, 1, 0, 1)), "2 n", ((0,), (1,))),
        (Sharding(degrees=(2, 2, 1, 1), devices=(0, 1, 0, 1)), "2 c", ((0, 1),)),
        (Sharding(degrees=(2, 2, 1, 1), devices=(0, 1, 2, 3)), "2n × 2c", ((0, 1), (2, 3))),
        (Sharding(degrees=(1, 1, 4, 1), devices=(0, 1, 2, 3)), "4 s", ((0, 1, 2, 3),)),
    ],
)
def test_equal_shards_are_one_cell(sharding: Sharding, words: str, cells: tuple[tuple[int, ...], ...]) -> None:
    split = effective_split(sharding)
    assert (split.words, split.devices) == (words, cells)
    assert sum(split.rows) == pytest.approx(1) and sum(split.columns) == pytest.approx(1)


def test_unequal_parts_by_sample_keep_their_shares() -> None:
    split = effective_split(Sharding(degrees=(3, 1, 1, 1), devices=(0, 1, 0), samples=(5, 2, 1)))
    assert split.rows == pytest.approx((6 / 8, 2 / 8))


def test_of_a_lane_with_many_splits_the_heaviest_is_drawn_and_the_others_are_counted() -> None:
    profile = chain([1.0, 5.0, 2.0, 3.0])
    lane = tuple((i,) for i in range(4))
    whole = {layer.name: Sharding(devices=(i,)) for i, layer in enumerate(profile.layers)}
    glyphs = _glyphs(profile, Plan(model="small", batch_size=8, placements=whole), lane)
    assert [(glyph.layers, glyph.more) for glyph in glyphs] == [((1,), 3)]
    fewer = Plan(model="small", batch_size=8, placements=whole | {"b": whole["a"]})
    few = _glyphs(profile, fewer, lane)
    assert [(glyph.layers, glyph.more) for glyph in few] == [((0, 1), 0), ((2,), 0), ((3,), 0)]


@needs_library
@pytest.mark.parametrize(
    ("name", "count", "first", "last"),
    [
        ("vgg16_v100", 16, "conv1", "fc3"),
        ("resnet50_v100", 18, "conv1", "fc1"),
        ("inception_v3", 17, "conv1", "fc1"),
        ("gpt_1_3b_v100", 49, "emb1", "mlp24"),
    ],
)
def test_networks_fold_into_what_people_draw(name: str, count: int, first: str, last: str) -> None:
    profile = read_profile(name)
    folded = stretches(profile)
    assert (len(folded), folded[0].title, folded[-1].title) == (count, first, last)
    assert sorted(layer for stretch in folded for layer in stretch.layers) == list(range(len(profile.layers)))


@pytest.mark.parametrize(("wide", "narrow", "first"), [((3, 1), (1, 2), 0), ((1, 4), (2, 2), 0), ((2, 2), (1, 4), 1)])
def test_of_two_lanes_the_heavier_comes_first(wide: tuple[int, int], narrow: tuple[int, int], first: int) -> None:
    """By the seconds of both passes: either alone would turn one of these round."""
    both = {"wide": wide, "narrow": narrow}
    layers = [
        replace(layer, forward_s=float(both[layer.name][0]), backward_s=float(both[layer.name][1]))
        if layer.name in both
        else layer
        for layer in branches().layers
    ]
    profile = replace(branches(), layers=tuple(layers))
    (two,) = (stretch for stretch in stretches(profile) if len(stretch.lanes) == 2)
    names = [[profile.layers[i].name for chain in lane for i in chain] for lane in two.lanes]
    assert names == [["wide"], ["narrow"]] if first == 0 else names == [["narrow"], ["wide"]]


@needs_library
def test_a_branch_is_a_lane_and_a_shortcut_an_arch(store: Store) -> None:
    folded = {stretch.title: stretch for stretch in stretches(store.profiles.get("inception_v3"))}
    assert len(folded["mix1"].lanes) == 4 and not folded["mix1"].skips
    resnet = {stretch.title: stretch for stretch in stretches(store.profiles.get("resnet50_v100"))}
    assert len(resnet["res1"].lanes) == 2 and resnet["res2"].skips


CASES = [
    ("inception_v3", "data", 4), ("inception_v3", "owt", 64), ("inception_v3", "data", 1024),
    ("resnet101", "pipeline", 4), ("resnet101", "owt", 64), ("resnet101", "data", 1024),
    ("gpt80", "pipeline", 4), ("gpt80", "pipeline", 16), ("gpt80", "data", 64), ("gpt80", "data", 1024),
]  # fmt: skip


@needs_library
@pytest.mark.parametrize(("name", "strategy", "devices"), laws.some(CASES, *range(7), 8))
def test_large_networks_on_many_devices_stay_readable(store: Store, name: str, strategy: str, devices: int) -> None:
    if name == "resnet101" and all(not key.startswith(name) for key in store.profiles.everything()):
        resnet = store.profiles.get("resnet50_v100")
        store.profiles.put(name, deeper(resnet, *_third_stage(resnet), 18))
    layers = len(store.profiles.get(name).layers)
    outcome = outcome_of(store, name, strategy, devices, batch_size=max(devices, 64))
    assert outcome.run is not None and outcome.flows is not None and outcome.cluster is not None
    columns = columns_of(outcome.profile, outcome.run.plan)
    assert len(columns) <= MOST_COLUMNS
    for most in range(len(columns), 5, -1):
        fewer = columns_of(outcome.profile, outcome.run.plan, most)
        assert len(fewer) <= most and sorted(x for column in fewer for x in column.layers) == list(range(layers))
    drawing = partition(columns, outcome.flows, outcome.cluster, device=devices - 1)
    tree = ElementTree.fromstring(drawing)
    marks = list(tree.iter())
    assert len(marks) < 4000 and len(drawing) < 400_000
    width = float(tree.attrib["viewBox"].split()[2])
    for mark in marks:
        if mark.tag.endswith("rect"):
            assert float(mark.attrib["x"]) >= 0
            assert float(mark.attrib["x"]) + float(mark.attrib["width"]) <= width + 0.1
    titles = [mark for mark in marks if mark.tag.endswith("text") and "name" in mark.attrib.get("class", "").split()]
    assert not _smeared(titles)
    assert not re.search(r"nan|inf", drawing.replace("inception", ""))


def _third_stage(profile: Profile) -> tuple[str, str]:
    """The first and the last layer of one block of the third stage."""
    adds = [layer.name for layer in profile.layers if layer.kind == "add"]
    relu = profile.layers[profile.index[adds[8]] + 1].name
    return profile.layers[profile.index[relu] + 1].name, profile.layers[profile.index[adds[9]] + 1].name


def _smeared(titles: list[ElementTree.Element]) -> list[str]:
    """Texts of one line that overlap, with 6.6 px a letter."""
    lines: dict[str, list[tuple[float, float, str]]] = {}
    for title in titles:
        x, half = float(title.attrib["x"]), 3.2 * len(title.text or "")
        lines.setdefault(title.attrib["y"], []).append((x - half, x + half, title.text or ""))
    pairs = [pair for line in lines.values() for pair in zip(sorted(line), sorted(line)[1:], strict=False)]
    return [f"{a[2]} {b[2]}" for a, b in pairs if a[1] > b[0] + 2]


def test_letters_of_splits_are_explained(store: Store) -> None:
    for strategy, said in (("data", ""), ("spatial", "s: height or sequence")):
        outcome = outcome_of(store, "branches", strategy, 4, effort=0.02)
        assert outcome.run is not None and outcome.flows is not None and outcome.cluster is not None
        drawn = partition(columns_of(outcome.profile, outcome.run.plan), outcome.flows, outcome.cluster)
        assert ("s: height or sequence" in drawn) == bool(said)


def moving(sizes: Floats) -> Glance:
    """What is known of a plan that moves these bytes, shape (layers, 2)."""
    now = Configuration(profile="p@0", cluster="cpu-1g", strategy="data", devices=4)
    return Glance(configuration=now, by_layer=sizes, total_bytes=float(sizes.sum()), plan=PLAN)


def test_strategies_are_drawn_on_the_same_columns(store: Store) -> None:
    outcome = outcome_of(store, "branches", "data", 4)
    assert outcome.run is not None and outcome.flows is not None
    columns = columns_of(outcome.profile, outcome.run.plan)
    sizes = np.stack([outcome.flows.activation_bytes.sum(axis=1), outcome.flows.state_bytes.sum(axis=1)], axis=1)
    shown = outcome.configuration
    late = replace(shown, strategy="owt")
    drawn = strategies(columns, {shown: moving(sizes), late: Glance(configuration=late, reason="<later>")})
    assert "&lt;later&gt;" in drawn and ElementTree.fromstring(drawn) is not None


def test_the_bar_of_a_column_far_above_all_others_is_broken_and_the_others_stay_readable(store: Store) -> None:
    outcome = outcome_of(store, "branches", "data", 4)
    assert outcome.run is not None
    columns = columns_of(outcome.profile, outcome.run.plan)

    def drawn(tall: float) -> tuple[list[float], int]:
        """Heights of gradients' bars, and how many are broken."""
        sizes = np.zeros((len(outcome.profile.layers), 2))
        for number, column in enumerate(columns):
            sizes[column.layers[0], 1] = tall if number == 1 else 10.0 * 2**20
        marks = list(ElementTree.fromstring(strategies(columns, {outcome.configuration: moving(sizes)})).iter())
        bars = [float(mark.attrib["height"]) for mark in marks if mark.attrib.get("class") == "gradient-between"]
        return bars, sum(mark.attrib.get("class") == "break" for mark in marks)

    even, broken = drawn(30.0 * 2**20)
    assert broken == 0 and even[0] == pytest.approx(even[1] / 3, abs=0.1)
    cut, broken = drawn(3000.0 * 2**20)
    assert broken == 1 and cut[1] == max(even) and cut[0] == pytest.approx(cut[1] / 1.5, abs=0.1)


def test_best_trade_offs_are_joined() -> None:
    now = Configuration(profile="p@0", cluster="cpu-1g", strategy="data", devices=4)
    pairs = {"data": (0.1, 2**34), "owt": (0.2, 2**30), "pipeline": (0.3, 2**32)}  # the last is beaten in both
    plans = {
        name: Glance(configuration=now, step_s=step_s, total_bytes=size, between_bytes=0.0, plan=PLAN, fit="fits")
        for name, (step_s, size) in pairs.items()
    }
    moved, between = (line for line in candidates((), plans, "data")["data"] if line["mode"] == "lines")
    assert moved["y"] == [200.0, 100.0] and between["y"] == [100.0]


def test_why_a_strategy_has_no_strip_is_written_whole(store: Store) -> None:
    outcome = outcome_of(store, "branches", "data", 4)
    assert outcome.run is not None
    reason = "the step may have 2,408,354 tasks: this page simulates up to 2,000,000; " * 4
    now = outcome.configuration
    drawn = strategies(columns_of(outcome.profile, outcome.run.plan), {now: Glance(configuration=now, reason=reason)})
    lines = [text for text in ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text") if text.text]
    assert reason.strip() in " ".join(line.text or "" for line in lines)
    ends = [float(line.attrib["x"]) + 5.6 * len(line.text or "") for line in lines if "text-anchor" not in line.attrib]
    assert max(ends) < WIDTH and max(float(line.attrib["y"]) for line in lines) < STRIP + 36


def test_plans_that_coincide_share_one_label() -> None:
    now = Configuration(profile="p@0", cluster="cpu-1g", strategy="data", devices=4)

    def plan(step_s: float, moved: float) -> Glance:
        return Glance(configuration=now, step_s=step_s, total_bytes=moved, between_bytes=moved, load_balance_ratio=1.0)

    plans = {"hypergraph": plan(0.1, 2**30), "owt": plan(0.1, 2**30), "pipeline": plan(0.9, 2**34)}
    *both, _, _ = candidates((), plans, "hypergraph")["data"]
    for dots in both:
        assert list(dots["text"]) == ["hypergraph", "", "pipeline"] and len(dots["x"]) == 3


def test_a_step_that_was_counted_alone_is_left_out() -> None:
    """Where its bytes go is not known."""
    now = Configuration(profile="p@0", cluster="cpu-1g", strategy="data", devices=4)
    known = Glance(configuration=now, step_s=0.1, total_bytes=2.0**30, between_bytes=2.0**20, load_balance_ratio=1.0)
    counted = replace(known, between_bytes=None)
    dots = [each for each in candidates((), {"data": known, "owt": counted}, "data")["data"] if "text" in each]
    assert [list(each["text"]) for each in dots] == [["data"], ["data"]]
    assert not candidates((), {"owt": counted}, "data")["data"]


def test_plans_tried_that_are_far_slower_are_told_of_and_not_drawn() -> None:
    now = Configuration(profile="p@0", cluster="cpu-1g", strategy="hypergraph", devices=4)
    best = Glance(configuration=now, step_s=0.1, total_bytes=2**30, between_bytes=0.0, load_balance_ratio=1.0)
    tried = [
        Candidate(label="x", total_bytes=2**30, between_bytes=0.0, step_s=s, load_balance_ratio=1.0, best=False)
        for s in (0.2, 0.3, 0.5, 60.0)
    ]
    drawn = candidates(tried, {"hypergraph": best}, "hypergraph")
    assert drawn["data"][0]["y"] == pytest.approx([200.0, 300.0])
    assert "not drawn: 2 tried with over 4 × the shortest step" in drawn["layout"]["annotations"][0]["text"]


def test_bytes_of_plans_have_one_unit_without_powers_of_ten_and_a_zero() -> None:
    now = Configuration(profile="p@0", cluster="cpu-1g", strategy="data", devices=4)
    best = Glance(configuration=now, step_s=0.1, total_bytes=2.0**50, between_bytes=0.0, load_balance_ratio=1.0)
    layout = candidates((), {"data": best, "owt": replace(best, between_bytes=2.0**48)}, "data")["layout"]
    assert layout["xaxis"]["title"]["text"] == "TiB moved" and layout["xaxis"]["ticktext"] == ["1,000"]
    assert layout["xaxis2"]["ticktext"][0] == "0" and "200" in layout["xaxis2"]["ticktext"]


def test_a_page_has_one_unit_which_the_shown_plan_decides() -> None:
    cases = {0.0: "MiB", 1.0: "KiB", 2.0**20: "MiB", 9998 * 2.0**20: "MiB", 9999 * 2.0**20: "GiB", 2.0**50: "TiB"}
    assert {count: volume_unit(count).name for count in cases} == cases
    unit = volume_unit(600 * 2.0**20)
    amounts = (0.0, 0.004 * 2**20, 4.98 * 2**20, 559.4 * 2**20, 1.33 * 2**30, 20 * 2**30)
    assert [unit.words(count) for count in amounts] == [
        "0 MiB", "0.00400 MiB", "4.98 MiB", "559 MiB", "1,362 MiB", "20,480 MiB",
    ]  # fmt: skip


def test_the_partition_and_its_strips_write_bytes_in_the_page_s_unit(store: Store) -> None:
    outcome = outcome_of(store, "resnet50_v100", "data", 64)
    assert outcome.run is not None and outcome.flows is not None and outcome.cluster is not None
    columns = columns_of(outcome.profile, outcome.run.plan)
    unit = volume_unit(outcome.flows.total_bytes)
    drawn = partition(columns, outcome.flows, outcome.cluster)
    written = [text for text in ElementTree.fromstring(drawn).itertext() if re.fullmatch(r"[\d.,]+ [KMGT]iB", text)]
    totals = (outcome.flows.activation_bytes, outcome.flows.gradient_bytes, outcome.flows.replicated_bytes)
    assert written == [unit.words(float(sizes.sum())) for sizes in totals] and unit.name == "GiB"
    assert f"{unit.name} that cross" in drawn
    moved = {outcome.configuration: moving(np.ones((len(outcome.profile.layers), 2)) * 2.0**30)}
    assert f"the same bytes under each strategy, in {unit.name}" in strategies(columns, moved)


PLAN = Plan(model="m", placements={"a": Sharding(devices=(0,))}, batch_size=1)


def test_a_sentence_says_what_moves_and_where() -> None:
    now = Configuration(profile="p@0", cluster="cpu-1g", strategy="owt", devices=4)
    here = Glance(configuration=now, total_bytes=2**20, between_bytes=2**19, by_layer=np.ones((1, 2)), plan=PLAN)
    data = replace(here, configuration=replace(now, strategy="data"), total_bytes=2**22)
    assert moved_words(here, None) == "It moves 1.00 MiB a step, 0.500 MiB of it between nodes. "
    assert moved_words(replace(here, between_bytes=0.0), data) == (
        "It moves 1.00 MiB a step, none of it between nodes (data parallelism: 4.00 MiB, 0.500 MiB between nodes). "
    )


def test_balance_is_per_block(store: Store) -> None:
    outcome = outcome_of(store, "chain", "pipeline", 4, microbatches=2)
    assert outcome.run is not None and outcome.flows is not None
    columns = columns_of(outcome.profile, outcome.run.plan)
    on = {len(sharding.devices) for sharding in outcome.run.plan.placements.values()}
    assert balance(columns, outcome.flows) == pytest.approx([4 / on.pop()] * len(columns)) and not on


def test_devices_are_grouped_by_node_and_opened() -> None:
    alone = device_groups(read_preset(V100).build(16))
    assert [len(group.devices) for group in alone] == [1] * 16
    cluster = read_preset(V100).build(64)
    nodes = device_groups(cluster)
    assert [group.name for group in nodes[:2]] == ["node0", "node1"] and len(nodes) == 16
    assert [group.devices for group in device_groups(cluster, opened=3)] == [(12,), (13,), (14,), (15,)]
    many = device_groups(read_preset(V100).build(1024))
    assert len(many) == 32 and many[1].name == "node8–15" and sum(len(group.devices) for group in many) == 1024
    shades = shades_of(read_preset(V100).build(1024))
    assert shades.by_node and len(shades.bars) == 16


def test_colours_of_link_tiers_are_those_of_nothing_else(store: Store) -> None:
    outcome = outcome_of(store, "branches", "data", 64)
    assert outcome.run is not None and outcome.cluster is not None
    drawn = {bars["marker"]["color"] for bars in topology(outcome.run, outcome.cluster)["data"]}
    assert len(drawn) == 2 and drawn.isdisjoint({*KINDS.values(), *device_colours(outcome.cluster)})


def test_differences_in_words() -> None:
    assert against(10.0, 104.0) == "10.4× faster than data parallelism"
    assert against(4.22, 1.0) == "4.2× slower than data parallelism"
    assert against(1.05, 1.0) == "5% slower than data parallelism"
    assert against(1.0, 1.0) == "as fast as data parallelism"


def test_inside_and_between_nodes_are_told_apart(store: Store) -> None:
    alone = outcome_of(store, "branches", "data", 4, batch_size=16).flows
    two_nodes = outcome_of(store, "branches", "data", 8, batch_size=16).flows
    assert alone is not None and two_nodes is not None
    assert alone.between_bytes == 0 < two_nodes.between_bytes < two_nodes.total_bytes
    assert two_nodes.gradient_bytes[:, BETWEEN].sum() == two_nodes.between_bytes


def test_flows_are_made_of_any_run(store: Store) -> None:
    outcome = outcome_of(store, "branches", "pipeline", 4)
    assert outcome.run is not None and outcome.cluster is not None and outcome.flows is not None
    again = flows_of(outcome.run, outcome.profile, outcome.cluster)
    assert again.total_bytes == outcome.flows.total_bytes


def test_a_narrow_column_says_its_repeats_and_how_many_splits_it_holds() -> None:
    """Where the name has no room for the repeats they stand before the split."""
    split = [effective_split(Sharding(degrees=(n, 1, 1, 1), devices=tuple(range(n)))) for n in (2, 4, 8)]
    glyph = Glyph(layers=(0, 1, 2), splits=tuple(split))
    column = Column(title="res9…30", layers=(0, 1, 2), lanes=((glyph,),), lane_layers=((0, 1, 2),), times=22)
    assert column.words == "2 n +2" and replace(column, lanes=((replace(glyph, splits=(split[1],)),),)).words == "4 n"
    assert _title_lines(column, 110.0) == ("res9…30 ×22",) and _title_lines(column, 40.0) == ("res", "9…30")
    shades = shades_of(read_preset(V100).build(8))
    for pitch, words in (
        (110.0, ["res9…30 ×22", "2 n +2"]),
        (60.0, ["res", "9…30", "×22, 2 n +2"]),
        (40.0, ["res", "9…30", "×22"]),
    ):
        geometry = ColumnGrid(middles=(200.0,), glyph=pitch / 2, pitch=pitch)
        marks, _ = _column(column, 0, shades, _Anchors([column], geometry, frame_of([column], 0.0)), {}, 1.0)
        assert [re.sub("<.*?>", "", mark) for mark in marks if mark.startswith("<text")] == words


@pytest.mark.parametrize("count", [1, 3, 8, MOST_COLUMNS])
def test_columns_fill_the_width_however_few_they_are(count: int) -> None:
    grid = ColumnGrid.of(count)
    assert grid.middles[0] - grid.pitch / 2 == pytest.approx(LEFT)
    assert grid.middles[-1] + grid.pitch / 2 == pytest.approx(RIGHT)
    assert grid.glyph == pytest.approx(min(120.0, 0.62 * (RIGHT - LEFT) / count))
