"""Figures and columns as plain data: what they show is what the run says."""

from __future__ import annotations

import json
import re
import struct
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from small_networks import branches

import partitioners
from dashboard.figures import span_columns
from dashboard.figures.devices import breakdown, layer_balance, load_balance, memory
from dashboard.figures.network import link_use, topology, traffic_matrix, utilisation_over_time
from dashboard.figures.style import CONFIG, CUT, IDLE, KINDS, LINES, TIER_COLOURS, Figure, device_colours
from dashboard.state import measures
from dashboard.state.device_groups import device_groups, short_names
from dashboard.state.flows import layer_seconds
from dashboard.state.store import Outcome, Store
from simulator.report.step_totals import PHASES
from simulator.taskgraph import Kind

SHARED = {"hypergraph", "owt", "spatial"}


@pytest.fixture(scope="module")
def store() -> Store:
    return Store({"small": branches()})


@pytest.fixture(scope="module", params=partitioners.strategies())
def outcome(request: pytest.FixtureRequest, store: Store) -> Outcome:
    """Every strategy on 3 devices, whatever strategies there are."""
    configuration = replace(store.default(), strategy=request.param, devices=3, microbatches=2, effort=0.02)
    simulated = store.outcome(configuration)
    assert simulated.run is not None, simulated.reason
    return simulated


def parts(outcome: Outcome) -> tuple[Any, Any, Any]:
    return outcome.run, outcome.profile, outcome.cluster


def test_every_figure_of_every_strategy_is_json(outcome: Outcome) -> None:
    run, _, cluster = parts(outcome)
    shares = measures.shares(run, cluster)
    figures = [
        load_balance(run, cluster, run, 1),
        layer_balance(run, cluster, 2),
        traffic_matrix(run, cluster),
        traffic_matrix(run, cluster, "forward", logarithmic=True),
        breakdown([("now", shares.total), *zip(short_names(cluster), shares.devices, strict=False)]),
        memory(run, cluster, run),
        topology(run, cluster),
        link_use(run, cluster),
    ]
    for figure in figures:
        text = json.dumps(figure, allow_nan=False)
        assert not re.search(r"%\{[^}:]+:[^}]*[eg]\}", text), "a large number would be written as a power of ten"
        assert set(figure) == {"data", "layout"}


def test_cards_save_data_and_not_coordinates(outcome: Outcome) -> None:
    run, _, cluster = parts(outcome)

    def table(figure: Figure) -> tuple[list[str], list[list[Any]]]:
        kept = figure["layout"]["meta"]["table"]
        return kept["columns"], kept["rows"]

    if run.report.communication_bytes.total:
        columns, rows = table(traffic_matrix(run, cluster))
        assert columns == ["from", "to", "bytes"]
        assert sum(row[2] for row in rows) == pytest.approx(run.report.communication_bytes.total, abs=10)
    columns, rows = table(memory(run, cluster))
    for row, device in zip(rows, run.report.devices, strict=True):
        assert row[0] == device.name and sum(row[1:6]) == pytest.approx(device.peak_memory_bytes, abs=5)
    assert [row[1] for row in table(load_balance(run, cluster))[1]] == [
        device.compute_s for device in run.report.devices[: cluster.workers]
    ]
    columns, rows = table(topology(run, cluster))
    assert columns[:2] == ["from", "to"] and len(rows) == len(cluster.links)
    seconds = sum(row[2] for row in table(layer_balance(run, cluster))[1])
    assert seconds == pytest.approx(layer_seconds(run, cluster).sum())


def test_every_group_of_devices_is_named_in_peak_memory() -> None:
    store = Store({"small": branches()})
    now = replace(store.default(), profile="small", strategy="data", cluster="azure-v100-10g", batch_size=512)
    for devices in (8, 64):
        simulated = store.outcome(replace(now, devices=devices))
        assert simulated.run is not None and simulated.cluster is not None, simulated.reason
        run, cluster = simulated.run, simulated.cluster
        layout, bars = (memory(run, cluster)[part] for part in ("layout", "data"))
        assert bars[0]["x"] == [group.name for group in device_groups(cluster)]
        held = max(device.parameter_bytes for device in run.report.devices)
        assert max(bars[0]["y"]) in (held / 2**20, held / 2**30)
        assert layout["xaxis"]["dtick"] == 1


def test_switches_are_named_beside_themselves_where_no_link_passes() -> None:
    store = Store({"small": branches()})
    now = replace(store.default(), profile="small", strategy="data", cluster="azure-v100-10g", devices=8)
    run, _, cluster = parts(store.outcome(now))
    points = next(trace for trace in topology(run, cluster)["data"] if trace["mode"] == "markers+text")
    where = dict(zip(points["text"], points["textposition"], strict=True))
    assert (where["node0"], where["core"], where["node1"]) == ("middle left", "top center", "middle right")


def test_shares_add_up_and_agree_with_the_report(outcome: Outcome) -> None:
    run, _, cluster = parts(outcome)
    shares = measures.shares(run, cluster)
    assert sum(share.ratio for share in shares.total) == pytest.approx(1)
    for row, device in zip(shares.devices, run.report.devices, strict=True):
        seconds = {share.name: share.seconds for share in row}
        assert sum(seconds.values()) == pytest.approx(run.report.step_s)
        compute = seconds[measures.COMPUTE] + seconds[measures.OVERLAPPED]
        assert compute == pytest.approx(device.compute_s)
        exposed = sum(seconds[name] for name in measures.EXPOSED.values())
        assert exposed == pytest.approx(device.exposed_communication_s, abs=1e-12)


def test_phases_of_the_matrix_add_up_to_the_report(outcome: Outcome) -> None:
    run, _, cluster = parts(outcome)
    drawn = [traffic_matrix(run, cluster, phase) for phase in (None, *PHASES)]
    tables = [figure["layout"].get("meta", {}).get("table", {"rows": []}) for figure in drawn]
    whole, *sums = (sum(row[2] for row in table["rows"]) for table in tables)
    assert whole == pytest.approx(run.report.communication_bytes.total, abs=10)  # each cell is a whole number
    assert sum(sums) == pytest.approx(whole, abs=40)


def test_links_over_time_carry_what_the_report_says(outcome: Outcome) -> None:
    run, _, cluster = parts(outcome)
    mean = utilisation_over_time(run, cluster).mean(axis=1)
    assert mean == pytest.approx([link.utilisation for link in run.report.links], rel=1e-6, abs=1e-9)


def test_layer_loads_add_up_to_device_compute(outcome: Outcome) -> None:
    run, _, cluster = parts(outcome)
    kept = layer_seconds(run, cluster).sum(axis=0)
    updates = run.graph.kind == Kind.UPDATE
    for device in range(cluster.workers):
        update_s = run.graph.seconds[updates & (run.graph.device == device) & (run.graph.layer < 0)].sum()
        assert kept[device] + update_s == pytest.approx(run.report.devices[device].compute_s)


def decoded(raw: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray[Any, Any]]]:
    """What the canvas reads, in its own way: header length, header, columns one after the other."""
    (length,) = struct.unpack_from("<I", raw)
    header = json.loads(raw[4 : 4 + length])
    at, columns = 4 + length, {}
    assert at % 8 == 0
    for name, kind in header["columns"].items():
        columns[name] = np.frombuffer(raw, "<" + kind, header["spans"], at)
        at += columns[name].nbytes
    assert at == len(raw)
    return header, columns


def test_the_columns_hold_every_task(outcome: Outcome) -> None:
    run, _, cluster = parts(outcome)
    header, spans = decoded(span_columns.encode(run, cluster))
    assert set(spans["task"].tolist()) == set(range(len(run.graph)))
    assert header["tasks"] == len(run.graph) and header["step_s"] == run.report.step_s
    for lane, (first, last) in enumerate(zip(header["lane_start"], header["lane_start"][1:], strict=False)):
        assert set(spans["lane"][first:last].tolist()) <= {lane}
        assert np.all(np.diff(spans["start"][first:last]) >= 0)
    compute = spans["lane"] % 2 == 0
    assert np.array_equal(run.graph.device[spans["task"][compute]] * 2, spans["lane"][compute])
    critical = spans["flag"] & span_columns.CRITICAL > 0
    assert float((spans["start"] + spans["seconds"])[critical].max()) == pytest.approx(run.report.step_s)


def test_the_utilisation_strip_has_the_mean_of_the_report(outcome: Outcome) -> None:
    run, _, cluster = parts(outcome)
    busy_s = sum(device.compute_s for device in run.report.devices[: cluster.workers])
    mean = busy_s / cluster.workers / run.report.step_s
    assert span_columns.utilisation(run, range(cluster.workers)).mean() == pytest.approx(mean)


def test_a_task_says_what_it_waited_for(outcome: Outcome) -> None:
    run, _, cluster = parts(outcome)
    last = int(np.argmax(run.timeline.end_s))
    description = span_columns.describe_task(run, cluster, last)
    assert description["title"] == run.graph.describe(last, short_names(cluster))
    assert description["waited"] in run.graph.predecessors(last)


def test_the_table_sorts_and_pages(outcome: Outcome) -> None:
    run, _, cluster = parts(outcome)
    rows = span_columns.table_rows(run, cluster, 0, 5, "takes_ms", descending=True)
    longest = np.sort(run.timeline.end_s - run.timeline.start_s)[::-1][:5] * 1e3
    assert [row["takes_ms"] for row in rows] == pytest.approx(longest.tolist())
    assert len(span_columns.table_rows(run, cluster, 5, 8, "nonsense", descending=False)) == 3


def test_graphs_never_offer_the_cloud() -> None:
    assert CONFIG["showSendToCloud"] is False and CONFIG["displaylogo"] is False


def test_a_node_is_a_hue_until_there_are_five(store: Store) -> None:
    from simulator.network.catalogue import read_preset

    assert len(set(device_colours(read_preset("p3-8xlarge").build(12)))) == 12
    cluster = read_preset("p3-8xlarge").build(20)
    colours = device_colours(cluster)
    assert len(set(colours)) == 5 and len(set(colours[:4])) == 1
    assert short_names(cluster)[4] == "node1/gpu0"


def test_colours_of_groups_mean_nothing_else() -> None:
    """Lines and groups: far from the colour of a kind, a cut and a link, and from each other for any eyes."""
    others = {*KINDS.values(), CUT, IDLE, *TIER_COLOURS}
    assert len(set(LINES)) == 8
    assert min(distance(line, other) for line in LINES for other in others) > 20
    assert min(distance(a, b) for a, b in combinations(LINES, 2)) > 30
    assert min(distance(a, b, DEUTERANOPIA) for a, b in combinations(LINES, 2)) > 20


def distance(colour: str, other: str, seen: Any = 1.0) -> float:
    """CIE76 distance of two colours, `seen` the matrix on linear RGB of who looks, 1 of usual eyes."""
    return float(np.linalg.norm(lab(colour, seen) - lab(other, seen)))


def lab(colour: str, seen: Any) -> Any:
    """CIELAB under D65 of #rrggbb."""
    part = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.dot(seen, np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4))
    x, y, z = np.clip(SRGB_TO_XYZ @ np.clip(linear, 0, 1) / [0.9505, 1.0, 1.089], 1e-6, None)
    f = [np.cbrt(t) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x, y, z)]
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


SRGB_TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
DEUTERANOPIA = np.array([[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]])
"""Machado, Oliveira and Fernandes 2009, severity 1."""
