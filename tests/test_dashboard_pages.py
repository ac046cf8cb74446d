"""What the other pages are made of: sweeps, comparisons, folded networks, profile figures. No browser, no Dash."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from plotly.utils import PlotlyJSONEncoder
from small_networks import branches, chain

from dashboard.figures.layers import layer_times, scaling
from dashboard.figures.sweep import parallel, quantity_over_parameters, trade_off
from dashboard.pages._sweep_layout import columns_of_table
from dashboard.pages.compare import Side, _sides
from dashboard.state import sweeps as sweeps_module
from dashboard.state.device_groups import block_in
from dashboard.state.store import Store
from dashboard.state.sweeps import (
    CANCELLED,
    DONE,
    PAUSED,
    RUNNING,
    EndableProcesses,
    Sweep,
    Sweeps,
    SweepStopped,
    configuration_of,
)
from dashboard.words.comparison import device_changes, device_time, moved_layers, results, settings
from dashboard.words.kpis import BAD, GOOD, SAME, difference
from dashboard.words.sweep import axis_title
from simulator.errors import InputError, UnknownNameError
from simulator.sweep.evaluate import SweepContext


@pytest.fixture(scope="module")
def store() -> Store:
    return Store({"small": branches()})


def ended(sweeps: Sweeps, number: int) -> Sweep:
    end = time.monotonic() + 600
    while True:
        sweep = sweeps.get(number)
        assert sweep is not None
        if sweep.state != RUNNING:
            return sweep
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_sweep_runs_and_its_rows_can_be_explored(store: Store) -> None:
    sweeps, base = Sweeps(store), replace(store.default(), devices=2)
    number = sweeps.start(
        base, ["data", "pipeline"], {"inter_bandwidth_bytes_per_s": "1Gbps, 4Gbps", "devices": "2..4 by x2"}
    )
    sweep = ended(sweeps, number)
    assert (sweep.state, len(sweep.rows)) == (DONE, 8)
    ran = [row for row in sweep.rows if row["status"] == "done"]
    assert len(ran) == 8
    for row in ran:
        run = store.outcome(configuration_of(row, base, store)).run
        assert run is not None and run.report.step_s == pytest.approx(row["step_s"])
    for figure in (
        quantity_over_parameters(ran, sweep.swept, "step_s"),
        trade_off(ran, "step_s", "communication_bytes"),
        parallel(ran, sweep.swept),
    ):
        json.dumps(figure, allow_nan=False)


def test_a_sweep_is_cancelled(store: Store) -> None:
    sweeps = Sweeps(store)
    number = sweeps.start(store.default(), ["data"], {"inter_bandwidth_bytes_per_s": "1Gbps..200Gbps by x1.02"})
    sweeps.cancel(number)
    sweep = ended(sweeps, number)
    assert sweep.state == CANCELLED and len(sweep.rows) < len(sweep.points.points)


def test_two_sweeps_run_at_once_and_a_cancelled_one_is_resumed_without_what_it_has(store: Store) -> None:
    sweeps = Sweeps(store)
    long = sweeps.start(store.default(), ["data"], {"inter_bandwidth_bytes_per_s": "1Gbps..200Gbps by x1.02"})
    short = sweeps.start(store.default(), ["data"], {"inter_bandwidth_bytes_per_s": "1Gbps, 4Gbps"})
    sweeps.cancel(long)
    cut = ended(sweeps, long)
    before = [dict(row) for row in cut.rows]
    assert cut.state == CANCELLED and len(before) < len(cut.points.points)
    sweeps.resume(long)
    whole = ended(sweeps, long)
    assert whole.state == DONE and whole.rows[: len(before)] == before
    assert sorted(row["number"] for row in whole.rows) == list(range(len(whole.points.points)))
    other = ended(sweeps, short)
    assert (other.state, len(other.rows)) == (DONE, 2) and other.points is not whole.points


@pytest.mark.parametrize("limit", ["GONE_S", "BUDGET_S"])
def test_a_sweep_pauses_when_no_page_asks_for_it_or_its_time_is_up(
    store: Store, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    sweeps = Sweeps(store)
    with monkeypatch.context() as short:
        short.setattr(sweeps_module, limit, 0.1)
        number = sweeps.start(store.default(), ["data"], {"inter_bandwidth_bytes_per_s": "1Gbps..200Gbps by x1.02"})
        sweep = sweeps.get(number)
        assert sweep is not None
        end = time.monotonic() + 600
        while sweep.state == RUNNING:
            if limit == "BUDGET_S":  # while its page is open
                sweeps.get(number)
            assert time.monotonic() < end
            time.sleep(0.02)
        assert sweep.state == PAUSED and len(sweep.rows) < len(sweep.points.points)
    sweeps.resume(number)
    assert ended(sweeps, number).state == DONE and len(sweep.rows) == len(sweep.points.points)


@pytest.mark.parametrize(
    ("strategies", "values", "complaint"),
    [
        (["data"], {"devices": "1..1000"}, "points is"),
        (["data"], {"devices": "many"}, "whole number"),
        (["data"], {"inter_bandwidth_bytes_per_s": "fast"}, "bandwidth"),
        ([], {"devices": "2"}, "strategies"),
        (["data"], {"devices": ""}, "the list of devices is empty: write values such as 2..8 by x2"),
    ],
)
def test_a_sweep_that_makes_no_sense_says_why(
    store: Store, strategies: list[str], values: dict[str, str], complaint: str
) -> None:
    with pytest.raises(InputError, match=complaint):
        Sweeps(store).start(store.default(), strategies, values)


def test_only_known_parameters_are_swept(store: Store) -> None:
    with pytest.raises(UnknownNameError, match="parameter"):
        Sweeps(store).start(store.default(), ["data"], {"profile": "/etc/passwd"})


def row(number: int, **values: Any) -> dict[str, Any]:
    return {"number": number, "strategy": "data", "fits": 1, "status": "done", **values}


def test_the_trade_off_joins_what_nothing_beats() -> None:
    rows = [row(0, step_s=1.0, peak_memory_bytes=2**30), row(1, step_s=2.0, peak_memory_bytes=2**29),
            row(2, step_s=2.5, peak_memory_bytes=2**31)]  # fmt: skip
    drawn = trade_off(rows, "step_s", "peak_memory_bytes")
    front = drawn["data"][-1]
    assert front["x"] == [1000, 2000] and front["y"] == [1, 0.5]
    assert drawn["layout"]["meta"]["table"] == {
        "columns": ["number", "strategy", "step_s", "peak_memory_bytes"],
        "rows": [[0, "data", 1.0, 2**30], [1, "data", 2.0, 2**29], [2, "data", 2.5, 2**31]],
    }


def test_two_numbers_make_a_heatmap() -> None:
    rows = [row(i, devices=d, speed=s, step_s=d * s) for i, (d, s) in enumerate([(1, 1.0), (2, 1.0), (1, 2.0)])]
    heat = quantity_over_parameters(rows, ("devices", "speed"), "step_s")["data"][0]
    assert heat["z"] == [[1000, 2000], [2000, None]]


def test_axes_are_titled_by_quantity_or_parameter() -> None:
    assert axis_title("step_s") == "step (ms)"
    assert axis_title("inter_bandwidth_bytes_per_s") == "inter bandwidth"
    assert axis_title("bucket_bytes") == "bucket"


def test_a_comparison_names_what_differs(store: Store) -> None:
    staged = replace(store.default(), devices=2, microbatches=2)
    replicated = replace(staged, strategy="data", microbatches=None)
    assert {r.name: (r.before, r.after) for r in settings(staged, replicated)} == {
        "strategy": ("pipeline", "data"), "microbatches": ("2", "automatic"),
    }  # fmt: skip
    rows = {r.name: r for r in results(store.outcome(staged), store.outcome(replicated))}
    assert rows["bytes synchronised"].before == "0 KiB" and rows["bytes synchronised"].change == "▲ from 0"
    outcome = store.outcome(replicated)
    assert outcome.run is not None and outcome.cluster is not None
    far = float(np.array(outcome.run.report.communication_bytes.matrix).sum())  # each device is a node of its own
    assert len({device.host for device in outcome.cluster.devices}) == 2
    number, unit = rows["bytes between nodes"].after.split()
    assert float(number.replace(",", "")) * {"KiB": 2**10, "MiB": 2**20}[unit] == pytest.approx(far, rel=5e-3)
    assert settings(staged, staged) == [] and all(
        r.tone == SAME for r in results(store.outcome(staged), store.outcome(staged))
    )


def test_unlike_runs_are_compared_without_per_cent() -> None:
    store = Store({"small": branches(), "chain": replace(chain([1.0] * 3), model="another")})
    base = replace(store.default(), profile="small", devices=2, strategy="data", microbatches=None)
    for other, word in (
        (replace(base, profile="chain"), "another model"),
        (replace(base, cluster="azure-v100-10g"), "another machine"),
    ):
        rows = results(store.outcome(base), store.outcome(other))
        assert rows and {(row.change, row.tone) for row in rows} == {(word, SAME)}
    same = results(store.outcome(base), store.outcome(replace(base, devices=3)))
    assert not {"another model", "another machine"} & {row.change for row in same}


def test_a_side_that_cannot_run_says_why_and_is_not_compared(store: Store) -> None:
    base = replace(store.default(), devices=2, strategy="data", microbatches=None)
    runs, fails = store.outcome(base), store.outcome(replace(base, batch_size=1))
    assert fails.run is None and fails.reason
    texts = [
        json.dumps(
            _sides(Side(name="Baseline", outcome=runs), Side(name="Now", outcome=now), None), cls=PlotlyJSONEncoder
        )
        for now in (runs, fails)
    ]
    assert [("Now cannot run" in text, '"results"' in text) for text in texts] == [(False, True), (True, False)]
    assert json.dumps(fails.reason)[1:-1] in texts[1]


def test_the_uses_of_device_time_add_up(store: Store) -> None:
    staged = replace(store.default(), devices=2, microbatches=2)
    both = store.outcome(staged), store.outcome(replace(staged, strategy="data", microbatches=None))
    rows = device_time(*both)
    for side in ("before", "after"):
        assert sum(float(getattr(row, side).rstrip("%")) for row in rows) == pytest.approx(100, abs=0.5)


def test_a_comparison_lists_layers_that_moved_and_every_device(store: Store) -> None:
    staged = replace(store.default(), devices=2, microbatches=2)
    before, after = store.outcome(staged), store.outcome(replace(staged, strategy="data", microbatches=None))
    assert before.run is not None and after.run is not None
    layers = len(before.profile.layers)
    sentence, rows = moved_layers(before, after)
    assert sentence.startswith(f"{layers} of {layers} layers") and "100% of the compute" in sentence
    first, last = (device.name for device in after.run.report.devices[:2])
    assert all(new == f"2 n on {first} to {last}" and old in (first, last) for _, old, new in rows)
    assert moved_layers(after, after) == (
        f"0 of {layers} layers are split or placed differently, 0% of the compute.",
        [],
    )
    changes = device_changes(before, after)
    assert [name for name, _ in changes] == [device.name for device in after.run.report.devices]
    sent_kib = before.run.report.devices[0].sent_bytes / 2**10
    assert changes[0][1][1][0].endswith(" KiB")  # in the unit of the plan that is shown
    assert float(changes[0][1][1][0].split()[0]) == pytest.approx(sent_kib, rel=5e-3)
    assert device_changes(before, store.outcome(replace(staged, devices=3, strategy="data"))) == []


@pytest.mark.parametrize(
    ("now", "before", "more", "points", "expected"),
    [
        (90.0, 100.0, False, False, ("▼ 10.0%", GOOD)),
        (90.0, 100.0, True, False, ("▼ 10.0%", BAD)),
        (0.25, 0.2, False, True, ("▲ 5.0 pt", BAD)),
        (1.0, 1.0, False, False, ("= 0%", SAME)),
        (5.0, 0.0, False, False, ("▲ from 0", BAD)),
        (0.0, 0.0, False, False, ("= 0%", SAME)),
    ],
)
def test_a_difference_has_direction_amount_and_tone(
    now: float, before: float, more: bool, points: bool, expected: tuple[str, str]
) -> None:
    assert difference(now, before, more=more, points=points) == expected


def test_the_block_that_repeats_is_found_in_the_middle() -> None:
    profile = chain([1.0] * 6)
    assert block_in(profile, tuple(range(6))) == range(3, 4) and block_in(profile, (0,)) == range(0)


def test_a_profiles_figures_show_its_layers() -> None:
    profile = branches()
    assert layer_times(profile)["data"][0]["y"] == [layer.forward_s * 1e3 for layer in profile.layers]
    assert scaling(profile, 0)["data"][1]["x"] == [profile.batch_size]
    times = [[layer.name, layer.forward_s, layer.backward_s] for layer in profile.layers]
    assert layer_times(profile)["layout"]["meta"]["table"]["rows"] == times
    measured = [[profile.batch_size, profile.layers[0].forward_s, profile.layers[0].backward_s]]
    assert scaling(profile, 0)["layout"]["meta"]["table"]["rows"] == measured
    for figure in (layer_times(profile), scaling(profile, 3)):
        json.dumps(figure, allow_nan=False)


def test_a_sweep_by_doublings_stands_evenly_on_its_axis() -> None:
    """Numbers over a factor of ten by their logarithms, those nearer to each other as they are."""
    for values, heights in (((1.0, 4.0, 16.0), [0.0, 0.5, 1.0]), ((1.0, 2.0, 5.0), [0.0, 0.25, 1.0])):
        rows = [{"number": i, "inter": value, "step_s": 1.0, "status": "done"} for i, value in enumerate(values)]
        strokes = [trace for trace in parallel(rows, ["inter"])["data"] if trace.get("customdata")]
        first = {trace["customdata"][i]: trace["y"][i] for trace in strokes for i, x in enumerate(trace["x"]) if x == 0}
        assert [first[i] for i in range(3)] == pytest.approx(heights)


def test_the_ends_of_parallel_coordinates_have_the_units_of_the_table() -> None:
    sizes = {
        "peak_memory_bytes": (2**28, 2**34),
        "communication_bytes": (3 * 2**20, 3 * 2**30),
        "bubble_ratio": (0.1, 0.25),
    }
    rows = [{"number": i, "step_s": 1.0, **{name: ends[i] for name, ends in sizes.items()}} for i in (0, 1)]
    ends = [note["text"] for note in parallel(rows, [])["layout"]["annotations"]]
    assert ends == ["1,000.00 ms"] * 2 + ["0.250 GiB", "16.000 GiB", "0.003 GiB", "3.000 GiB", "10.0%", "25.0%"]
    titles = {column["field"]: column["headerName"] for column in columns_of_table(())}
    assert [titles[name].partition(" (")[2] for name in sizes] == ["GiB)", "GiB)", "%)"]
    bar = next(trace for trace in parallel(rows, [])["data"] if trace.get("marker", {}).get("colorbar"))
    assert bar["marker"]["colorbar"]["title"]["text"] == titles["step_s"] == "step (ms)"
    assert bar["marker"]["colorbar"]["ticktext"] == ["1,000.00"]


@pytest.mark.parametrize(
    ("steps_s", "words", "places"),
    [
        ((3.0,), ["3,000.00"], [0]),
        ((1.0, 4.0, 2.0, 3.0), ["1,000.00", "2,000.00", "3,000.00", "4,000.00"], [0, 1 / 3, 2 / 3, 1]),
        ((1.0, 2.0, 2.0), ["1,000.00", "2,000.00"], [0, 1]),
        (range(1, 8), ["1,000.00", "3,000.00", "4,000.00", "5,000.00", "7,000.00"], [0, 0.25, 0.5, 0.75, 1]),
    ],
)
def test_every_tick_of_the_colour_bar_is_another_step(
    steps_s: Sequence[float], words: list[str], places: list[float]
) -> None:
    rows = [{"number": i, "step_s": step_s} for i, step_s in enumerate(steps_s)]
    bar = next(trace for trace in parallel(rows, [])["data"] if trace.get("marker", {}).get("colorbar"))
    shown = bar["marker"]["colorbar"]
    assert (shown["ticktext"], shown["tickvals"]) == (words, pytest.approx(places))


def test_a_sweep_without_prices_has_no_column_of_them() -> None:
    row = {"step_s": 1.0, "samples_per_s": 1.0, "dollars_per_sample": None}
    fields = [column["field"] for column in columns_of_table(("strategy", "devices"), [row])]
    assert fields == ["number", "strategy", "devices", "step_s", "expected", "samples_per_s", "status"]
    assert "dollars_per_sample" in [each["field"] for each in columns_of_table((), [{**row, "dollars_per_sample": 1}])]


def test_processes_that_were_ended_take_no_more_points() -> None:
    """Not even in a new pool, which the runner's own have for a process that died."""
    engine = EndableProcesses(cast(SweepContext, None), 1)  # no process starts before the first point
    engine.end()
    with pytest.raises(SweepStopped):
        engine.submit([])
    engine.close()
    engine.end()  # by a page that asks for it as it closes
