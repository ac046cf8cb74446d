"""Constants of training stacks: recovered from simulated steps, held to bounds, told apart or not."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import astuple, replace
from math import log
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from command_line import shardscope

from partitioners._grids.calibration import (
    CONSTANTS,
    Floats,
    MeasuredPlan,
    calibrated,
    constant_of,
    predicted_steps_s,
    remarks_on,
    with_constants,
)
from partitioners._grids.measured_rows import COLUMNS, measured_plan, measured_plans, read_rows, usable
from simulator.errors import InputError
from simulator.files import write_json
from simulator.language_models.model_card import ModelCard
from simulator.language_models.modelled_profile import modelled_profile
from simulator.language_models.training_grid import TrainingGrid
from simulator.language_models.training_stack import read_stack
from simulator.network.catalogue import read_preset
from simulator.plan import Synchronisation

NANOTRON = read_stack("nanotron-h100")
CARD = ModelCard(name="small", layers=2, hidden=4096, heads=32, ffn=16_384, vocabulary=32_000, sequence=2048)
NODES = read_preset("dgx-h100").build
TINY = replace(CARD, name="tiny", hidden=256, ffn=512, vocabulary=512, sequence=256)
"""So small that launches decide."""


RUNS = [
    (TINY, TrainingGrid()),
    (TINY, TrainingGrid(accumulation=2)),
    (TINY, TrainingGrid(microbatch=4)),
    (CARD, TrainingGrid(microbatch=4)),
    (CARD, TrainingGrid(data=2, microbatch=4)),
    (CARD, TrainingGrid(tensor=2, microbatch=4)),
]


def test_constants_are_recovered_from_steps_that_were_made_with_them() -> None:
    wanted = {"device.matmul_efficiency": 0.8, "runtime.forward_launch_s": 5e-5, "runtime.step_overhead_s": 0.01}
    made = with_constants(NANOTRON, wanted)
    plans = [MeasuredPlan(card=card, grid=grid, step_s=1.0) for card, grid in RUNS]
    steps_s = predicted_steps_s(made, plans, NODES)
    plans = [replace(plan, step_s=step_s) for plan, step_s in zip(plans, steps_s.tolist(), strict=True)]
    fitted = calibrated(NANOTRON, plans, NODES)
    again_s = predicted_steps_s(fitted, plans, NODES)
    assert again_s == pytest.approx(steps_s, rel=0.05)
    for name, value in wanted.items():
        error = 0.1 * (CONSTANTS[name].high - CONSTANTS[name].low)
        assert constant_of(fitted, name) == pytest.approx(value, abs=error), name
    assert fitted.runtime.backward_launch_s == 2 * fitted.runtime.forward_launch_s
    assert any("collective_check_s: hardly told" in remark for remark in fitted.remarks)  # no pipeline among them
    assert all(known.low <= constant_of(fitted, name) <= known.high for name, known in CONSTANTS.items())


def test_a_constant_on_a_bound_that_nobody_expects_is_named_and_so_is_one_that_steps_hardly_told() -> None:
    """The check of collectives may take nothing, as is expected of it; steps tell the others where their standard
    errors are below 0.7 of half the width that was expected to begin with."""
    names, known = list(CONSTANTS), list(CONSTANTS.values())
    expected = np.array([(each.expected - each.low) / (each.high - each.low) for each in known])
    half = np.array([each.width / (each.high - each.low) / 2 for each in known])
    assert remarks_on(expected, 0.69 * half) == ()
    assert remarks_on(expected, 0.71 * half) == tuple(f"{name}: hardly told by these steps" for name in names)
    for share in (0.0, 0.0009, 1.0, 0.9991):
        unexpected = [name for name in names if share > 0.5 or name != "runtime.collective_check_s"]
        assert remarks_on(np.full(len(names), share), 0 * half) == tuple(f"{name}: on a bound" for name in unexpected)
    for share in (0.0011, 0.9989):
        assert remarks_on(np.full(len(names), share), 0 * half) == ()


def test_what_a_fit_makes_little_and_how_it_says_what_it_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logarithms of predicted over measured, and a tenth for each width that a constant is off; from the stack's values
    on, a thousandth within the bounds. Standard errors are those of residuals of LOSS_SCALE."""
    low, high, expected, width = (np.array(each) for each in zip(*map(astuple, CONSTANTS.values()), strict=True))
    span, half = high - low, width / (high - low) / 2
    is_told = np.arange(len(half)) % 2 == 0
    known = replace(NANOTRON, runtime=replace(NANOTRON.runtime, step_overhead_s=0.05, collective_check_s=0.0))
    of_expected = with_constants(known, dict(zip(CONSTANTS, expected.tolist(), strict=True)))
    plan = MeasuredPlan(card=TINY, grid=TrainingGrid(), step_s=1.0)
    step_s = float(predicted_steps_s(of_expected, [plan], NODES)[0])

    def fit(residuals: Callable[[Floats], Floats], start: Floats, **options: object) -> SimpleNamespace:
        at_expected = residuals((expected - low) / span)
        assert at_expected == pytest.approx([log(2.0), *[0.0] * len(low)], abs=1e-9)
        wider = residuals((expected + 2 * width - low) / span)[1:]
        assert wider == pytest.approx([0.2] * len(low))
        current = [(constant_of(known, name) - a) / b for name, a, b in zip(CONSTANTS, low, span, strict=True)]
        assert start.tolist() == pytest.approx([min(max(share, 0.001), 0.999) for share in current])
        assert start[-1] == 0.001 and start[-2] == 0.999
        assert options == {
            "bounds": (0.0, 1.0), "loss": "cauchy", "f_scale": 0.05, "diff_step": 0.01, "xtol": 0.001, "ftol": 0.001,
        }  # fmt: skip
        return SimpleNamespace(x=(expected - low) / span, jac=np.diag(0.05 / (half * np.where(is_told, 0.69, 0.71))))

    monkeypatch.setattr("scipy.optimize.least_squares", fit)
    fitted = calibrated(known, [replace(plan, step_s=step_s / 2)], NODES)
    assert [constant_of(fitted, name) for name in CONSTANTS] == pytest.approx(expected.tolist())
    assert fitted.remarks == tuple(
        f"{name}: hardly told by these steps"
        for name, known_well in zip(CONSTANTS, is_told, strict=True)
        if not known_well
    )


def test_constants_are_looked_for_where_the_page_says() -> None:
    """Bounds, and what is expected give or take."""
    page = (Path(__file__).parent.parent / "docs/language_models.md").read_text()
    rows = re.findall(r"^\| `(\w+\.\w+)` \| \S+ \| (\S+) to (\S+) \| (\S+) \+- (\S+) \|$", page, re.MULTILINE)
    assert {name: tuple(map(float, said)) for name, *said in rows} == {
        name: astuple(known) for name, known in CONSTANTS.items()
    }


def test_the_stacks_of_nanotron_differ_in_how_hosts_wait_alone() -> None:
    checked, older = read_stack("nanotron-checked-h100"), read_stack("nanotron-2024-h100")
    assert checked.runtime == replace(older.runtime, message_pause_s=0.0) and older.runtime.message_pause_s == 0.26
    assert NANOTRON.runtime == replace(checked.runtime, collective_check_s=0.0)
    for each in (checked, older):
        assert replace(each, name=NANOTRON.name, runtime=NANOTRON.runtime, source=NANOTRON.source) == NANOTRON


def test_a_run_may_differ_from_its_stack_in_the_runtime() -> None:
    checked = with_constants(NANOTRON, {"runtime.collective_check_s": 1e-3})
    plan = MeasuredPlan(card=TINY, grid=TrainingGrid(tensor=4), step_s=1.0)
    unchecked = replace(plan, runtime={"collective_check_s": 0.0})
    slow_s, fast_s, plain_s = (
        predicted_steps_s(stack, [each], NODES)[0]
        for stack, each in ((checked, plan), (checked, unchecked), (NANOTRON, plan))
    )
    assert fast_s == plain_s < slow_s


def test_a_stack_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_json(NANOTRON, tmp_path / "stack.json")
    assert read_stack(tmp_path / "stack.json") == NANOTRON
    assert NANOTRON.source and "Apache-2.0" in NANOTRON.source


@pytest.mark.parametrize("name", CONSTANTS)
def test_a_constant_that_ships_is_within_its_bounds(name: str) -> None:
    assert CONSTANTS[name].low <= constant_of(NANOTRON, name) <= CONSTANTS[name].high


def test_a_calibration_needs_steps(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at least one measured step"):
        calibrated(NANOTRON, [], NODES)
    path = tmp_path / "runs.csv"
    path.write_text("model,layers\n8B,32\n")
    with pytest.raises(InputError, match="lacks the columns hidden"):
        read_rows(path)
    path.write_text("")
    with pytest.raises(InputError, match="it has 0 rows and lacks the columns model, layers, hidden"):
        measured_plans(path)
    path.write_text(",".join(COLUMNS) + "\n")
    with pytest.raises(InputError, match="no row is measured"):
        measured_plans(path)


RUN = dict(zip(COLUMNS, ("1B", 4, 256, 4, 512, 512, 256, 1, 1, 1, 1, 0, 1, 2, 0.5), strict=True)) | {"mem_gb": ""}


def runs(folder: Path, *rows: dict[str, object]) -> Path:
    """A CSV of runs."""
    path = folder / "runs.csv"
    path.write_text("\n".join(",".join(map(str, cells)) for cells in (rows[0], *(row.values() for row in rows))) + "\n")
    return path


SECONDS, GIBIBYTES = (f"it is a number above 0, at most {most}" for most in ("1e+09", "6.71089e+07"))


@pytest.mark.parametrize(
    ("column", "value", "rule"),
    [
        *(("step_s", value, SECONDS) for value in ("0", "-1", "abc", "", "n/a", "nan", "inf", "1e300")),
        *(("mem_gb", value, GIBIBYTES) for value in ("0", "-3", "abc", "nan", "inf", "1e300")),
        *(("dp", value, "it is a whole number") for value in ("", "2.5", "n/a")),
        ("tied_embeddings", "maybe", "it is 0 or 1"),
    ],
)
def test_a_wrong_cell_is_one_line_with_row_and_column(
    column: str, value: str, rule: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = runs(tmp_path, RUN, RUN | {column: value})
    assert shardscope("model", "--calibrate", path, "--stack-output", tmp_path / "stack.json") == 2
    assert capsys.readouterr().err == f"shardscope: {path}, row 2: column {column} is {value!r}: {rule}\n"
    assert not (tmp_path / "stack.json").exists()


def test_a_grid_that_is_none_names_its_row_and_a_row_that_failed_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"runs\.csv, row 1: zero_stage is 7"):
        measured_plans(runs(tmp_path, RUN | {"zero": 7}))
    failed = RUN | {"step_s": "", "status": "oom"}
    assert len(measured_plans(runs(tmp_path, RUN | {"status": "measured"}, failed))) == 1
    with pytest.raises(InputError, match="no row is measured"):
        measured_plans(runs(tmp_path, failed))


@pytest.mark.parametrize("column", COLUMNS)
def test_a_missing_column_is_named(column: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"lacks the columns {column}"):
        measured_plans(runs(tmp_path, {name: value for name, value in RUN.items() if name != column}))


@pytest.mark.parametrize(("ranks", "parameters"), [(2, 40e6), (40, 40e6), (64, 64e6), (484, 484e6)])
def test_megatron_scatters_a_million_parameters_a_rank(ranks: int, parameters: float) -> None:
    """At least 40 million, as its `bucket_size` says; their gradients are of 4 bytes."""
    sums = read_stack("megatron-a100").synchronisation(1, modelled_profile(CARD, read_stack("megatron-a100")))
    assert sums.filled_bytes(ranks) == 4 * parameters


def test_a_stack_says_what_is_scattered_at_once() -> None:
    """nanotron's ZeRO-1 scatters and gathers all parameters in one call, DistributedDataParallel sums in buckets."""
    profile = modelled_profile(CARD, NANOTRON)
    assert NANOTRON.synchronisation(0, profile) == Synchronisation()
    assert NANOTRON.synchronisation(1, profile).bucket_bytes > profile.parameter_bytes
    assert NANOTRON.synchronisation(2, profile).bucket_bytes == 2 * CARD.block_parameters


def test_columns_that_may_be_there_say_the_rest_of_a_plan(tmp_path: Path) -> None:
    more = {"kv_heads": "2", "experts": "8", "experts_per_token": "2", "cp": "2", "ep": "2", "recomputation": "full"}
    plain, mixture = measured_plans(runs(tmp_path, RUN | dict.fromkeys(more, ""), RUN | more))
    assert plain == measured_plans(runs(tmp_path, RUN))[0]
    assert mixture.card == replace(plain.card, kv_heads=2, experts=8, experts_per_token=2)
    assert mixture.grid == replace(plain.grid, context=2, expert=2, recomputation="full")


def test_measured_runs_within_what_the_page_says(shared_data: Path) -> None:
    """Some clean runs of the benchmark inside a node, where the network is that of any DGX."""
    rows = [row for row in usable(read_rows(shared_data / "ultrascale" / "visible.csv")) if row["nodes"] == "1"][::6]
    plans = [measured_plan(row) for row in rows]
    steps_s = predicted_steps_s(NANOTRON, plans, NODES)
    errors = np.abs(steps_s / [plan.step_s for plan in plans] - 1)
    assert len(plans) > 5 and np.median(errors) < 0.05
