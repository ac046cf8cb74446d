"""Measured runs of language models from a CSV: one run per row, as the Ultra-Scale Playbook's benchmark has them.

Columns: model, layers, hidden, heads, ffn, vocab, seq, tied_embeddings, dp, tp, pp, zero, mbs, grad_acc, step_s, mem_gb
(GiB; may be empty). What else a plan has may be there: kv_heads, experts, experts_per_token, cp, ep, chunks (virtual
stages) and recomputation; and status, suspect and note: rows that failed, are suspect or have a note tell nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from partitioners._grids.calibration import MeasuredPlan
from simulator import file_gate
from simulator.errors import MOST_BYTES, MOST_SECONDS, InputError, require
from simulator.language_models.accelerators import GIB
from simulator.language_models.model_card import ModelCard
from simulator.language_models.training_grid import TrainingGrid

Row = Mapping[str, str]
COLUMNS = (
    "model", "layers", "hidden", "heads", "ffn", "vocab", "seq", "tied_embeddings", "dp", "tp", "pp", "zero", "mbs",
    "grad_acc", "step_s",
)  # fmt: skip


def read_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV. Raises InputError where columns are missing, OSError where it cannot be read."""
    names, rows = file_gate.table(path)
    missing = [name for name in COLUMNS if name not in names]
    if missing:
        raise InputError(f"{path}: it has {len(rows)} rows and lacks the columns {', '.join(missing)}")
    return rows


def measured_plans(path: Path) -> list[MeasuredPlan]:
    """The usable rows of a CSV. Raises InputError naming row, counted from 1, and column, OSError as `read_rows`."""
    plans = []
    for number, row in enumerate(read_rows(path), 1):
        try:
            plans += [measured_plan(each) for each in usable([row])]
        except InputError as error:
            raise InputError(f"{path}, row {number}: {error}") from None
    if not plans:
        raise InputError(f"{path}: no row is measured and free of suspicion; a calibration needs at least one")
    return plans


def card_of(row: Row) -> ModelCard:
    """The network of a row. Raises InputError on a value that is no whole number."""
    number, tied = _numbers(row), row["tied_embeddings"]
    require(tied in ("0", "1"), "column tied_embeddings", repr(tied), "it is 0 or 1")
    return ModelCard(
        name=row["model"], layers=number("layers"), hidden=number("hidden"), heads=number("heads"), ffn=number("ffn"),
        vocabulary=number("vocab"), sequence=number("seq"), tied_embeddings=tied == "1",
        kv_heads=number("kv_heads", 0), experts=number("experts", 0), experts_per_token=number("experts_per_token", 0),
    )  # fmt: skip


def grid_of(row: Row) -> TrainingGrid:
    """The plan of a row. Raises InputError on a value that is no whole number."""
    number = _numbers(row)
    return TrainingGrid(
        data=number("dp"), tensor=number("tp"), pipeline=number("pp"), zero_stage=number("zero"),
        microbatch=number("mbs"), accumulation=number("grad_acc"), context=number("cp", 1), expert=number("ep", 1),
        chunks=number("chunks", 1), recomputation=row.get("recomputation") or "none",
    )  # fmt: skip


def measured_plan(row: Row) -> MeasuredPlan:
    """A row that was measured, for a calibration. Raises InputError on a value that no run has."""
    peak = _quantity(row, "mem_gb", MOST_BYTES / GIB) * GIB if row.get("mem_gb") else None
    step_s = _quantity(row, "step_s", MOST_SECONDS)
    return MeasuredPlan(card=card_of(row), grid=grid_of(row), step_s=step_s, peak_bytes=peak)


def usable(rows: Iterable[Row]) -> list[Row]:
    """The measured rows that are neither suspect nor mislabelled."""
    return [
        row
        for row in rows
        if row.get("status", "measured") == "measured" and row.get("suspect") != "1" and not row.get("note")
    ]


def _quantity(row: Row, column: str, most: float) -> float:
    """A measured number above 0, and at most `most`."""
    try:
        value = float(row[column])
    except ValueError:
        value = math.nan
    require(0 < value <= most, f"column {column}", repr(row[column]), f"it is a number above 0, at most {most:g}")
    return value


def _numbers(row: Row) -> Callable[..., int]:
    def number(column: str, absent: int | None = None) -> int:
        if absent is not None and not row.get(column):
            return absent
        try:
            return int(row[column])
        except ValueError:
            raise InputError(f"column {column} is {row[column]!r}: it is a whole number") from None

    return number
