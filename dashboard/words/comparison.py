"""Two runs side by side as rows of a table, with the difference and whether it is an improvement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

from dashboard.state.configuration import Configuration
from dashboard.state.flows import between_nodes_bytes
from dashboard.state.simulating import Outcome
from dashboard.words.kpis import SAME, difference, rate_words, seconds_range
from dashboard.words.volume import volume_unit
from simulator.report.metrics import Report
from simulator.units import format_bytes, format_time


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedQuantity:
    """One quantity of both; change as "▼ 12.0%"."""

    name: str
    before: str
    after: str
    change: str = ""
    tone: str = SAME


Read = Callable[[Report], float]
Quantity = tuple[str, Read, Callable[[float], str] | None, bool]
"""Name, how it is read and written (None: in the unit of what a step moves), whether more is better."""
_QUANTITIES: tuple[Quantity, ...] = (
    ("step time", lambda r: r.step_s, format_time, False),
    ("samples per second", lambda r: r.samples_per_s, rate_words, True),
    ("speed-up over one device", lambda r: r.speedup, lambda v: f"{v:.2f}", True),
    ("efficiency", lambda r: r.efficiency, lambda v: f"{v:.1%}", True),
    ("load balance ratio", lambda r: r.load_balance_ratio, lambda v: f"{v:.3f}", False),
    ("bytes forward", lambda r: r.communication_bytes.forward, None, False),
    ("bytes backward", lambda r: r.communication_bytes.backward, None, False),
    ("bytes synchronised", lambda r: r.communication_bytes.synchronisation, None, False),
    ("bytes in all", lambda r: r.communication_bytes.total, None, False),
    ("peak memory", lambda r: r.peak_memory_bytes, format_bytes, False),
    ("critical path", lambda r: r.critical_path_s, format_time, False),
    ("tasks", lambda r: float(r.tasks), lambda v: f"{v:,.0f}", False),
)
_MOST_DEVICES = 16


def settings(before: Configuration, after: Configuration) -> list[ComparedQuantity]:
    """The controls that differ."""
    values = [(field.name, getattr(before, field.name), getattr(after, field.name)) for field in fields(Configuration)]
    return [
        ComparedQuantity(name=name.replace("_", " "), before=_setting_words(old), after=_setting_words(new))
        for name, old, new in values
        if old != new
    ]


def results(before: Outcome, after: Outcome) -> list[ComparedQuantity]:
    """The quantities of both outcomes, without changes in per cent of unlike ones; empty unless both ran."""
    old, new = before.report, after.report
    if old is None or new is None:
        return []
    rows = _rows(_QUANTITIES, old, new)
    far = [between_nodes_bytes(side.run, side.cluster) for side in (before, after) if side.run and side.cluster]
    if len(far) == 2:  # tasks that are not held each are not looked at each
        at = next(i for i, row in enumerate(rows) if row.name == "bytes in all") + 1
        moved = volume_unit(new.communication_bytes.total).words
        rows.insert(at, _row("bytes between nodes", far[0], far[1], moved, more=False))
    fit = ComparedQuantity(name="memory", before=old.fit, after=new.fit)
    shown = [rows[0], *_expected(before, after), fit, *rows[1:]]
    return [replace(row, change=other, tone=SAME) for row in shown] if (other := unlike(after, before)) else shown


def unlike(outcome: Outcome, before: Outcome) -> str:
    """Why two outcomes cannot be compared in per cent: "another model" or "another machine"; empty where they can."""
    if outcome.profile.model != before.profile.model:
        return "another model"
    kinds = [{device.kind for device in side.cluster.devices} if side.cluster else set() for side in (outcome, before)]
    return "another machine" if all(kinds) and kinds[0] != kinds[1] else ""


def device_time(before: Outcome, after: Outcome) -> list[ComparedQuantity]:
    """Where the time of all devices goes; what takes none of it in both is left out. Empty unless both ran."""
    if before.shares is None or after.shares is None:
        return []
    rows = []
    for old, new in zip(before.shares.total, after.shares.total, strict=True):
        if max(old.ratio, new.ratio) >= 0.0005:
            words = {"before": f"{old.ratio:.1%}", "after": f"{new.ratio:.1%}"}
            change, tone = difference(new.ratio, old.ratio, more=not old.lost, points=True)
            rows.append(ComparedQuantity(name=old.name, **words, change=change, tone=tone))
    return rows


def _expected(before: Outcome, after: Outcome | None) -> list[ComparedQuantity]:
    """Between which times the steps are expected; `after` is None where it is no prediction."""
    old, new = (seconds_range(side.interval_s) if side else "" for side in (before, after))
    return [ComparedQuantity(name="90% sure of", before=old, after=new)] if old or new else []


def measured(predicted: Outcome, actual: Outcome) -> list[ComparedQuantity]:
    """The quantities of a prediction and of an actual run: times alone, as the rest is the plan's."""
    if predicted.run is None or actual.run is None or predicted.cluster is None or actual.cluster is None:
        return []
    old, new = predicted.run.report, actual.run.report
    rows = _rows(_QUANTITIES[:2], old, new)
    for before, after in list(zip(old.devices, new.devices, strict=True))[:_MOST_DEVICES]:
        rows.append(_row(f"{before.name} computes", before.compute_s, after.compute_s, format_time, more=False))
    return [rows[0], *_expected(predicted, None), *rows[1:]]


def _rows(quantities: Sequence[Quantity], old: Report, new: Report) -> list[ComparedQuantity]:
    moved = volume_unit(new.communication_bytes.total).words
    return [_row(name, read(old), read(new), show or moved, more=more) for name, read, show, more in quantities]


def _row(name: str, before: float, after: float, show: Callable[[float], str], *, more: bool) -> ComparedQuantity:
    change, tone = difference(after, before, more=more)
    return ComparedQuantity(
        name=name, before=show(before), after=show(after), change=change, tone=SAME if name == "tasks" else tone
    )


def _setting_words(value: object) -> str:
    if value is None:
        return "automatic"
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)
