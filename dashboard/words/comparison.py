"""Two runs side by side as rows of a table, each difference with whether it is an improvement; which layers moved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import groupby, pairwise

from dashboard.state.columns import Split, effective_split
from dashboard.state.configuration import Configuration
from dashboard.state.device_groups import device_groups
from dashboard.state.flows import between_nodes_bytes
from dashboard.state.simulating import Outcome
from dashboard.words.kpis import SAME, difference, rate_words, seconds_range
from dashboard.words.volume import volume_unit
from simulator.report.metrics import Report
from simulator.report.resource_use import DeviceUse
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
MOST_ROWS = 40
"""Stretches of layers that are listed; the sentence counts all of them."""
Change = tuple[str, str, str, str]
"""Before, after, difference as "▼ 12.0%", and its tone."""


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


def moved_layers(before: Outcome, after: Outcome) -> tuple[str, list[tuple[str, str, str]]]:
    """How many layers stand elsewhere, in a sentence, and (layers, before, after) of each stretch of them in order."""
    plans = [side.plan for side in (before, after) if side.plan]
    reports = [side.report for side in (before, after) if side.report]
    if len(plans) < 2 or len(reports) < 2:
        return "", []
    names = [layer.name for layer in after.profile.layers]
    if names != [layer.name for layer in before.profile.layers]:
        return "The two networks are not the same, so their layers cannot be set side by side.", []
    old, new = ([effective_split(plan.placements[name]) for name in names] for plan in plans)
    moved = [i for i in range(len(names)) if old[i] != new[i]]
    seconds = [layer.forward_s + layer.backward_s for layer in after.profile.layers]
    share = sum(seconds[i] for i in moved) / (sum(seconds) or 1.0)
    stretches = [
        [i for _, i in same]
        for _, same in groupby(
            enumerate(moved), key=lambda ranked: (ranked[1] - ranked[0], old[ranked[1]], new[ranked[1]])
        )
    ]
    devices = [[use.name for use in report.devices] for report in reports]
    rows = [
        (_between(names, same), _where(old[same[0]], devices[0]), _where(new[same[0]], devices[1]))
        for same in stretches
    ]
    rest = f"; the first {MOST_ROWS} of {len(rows)} stretches are listed" if len(rows) > MOST_ROWS else ""
    sentence = f"{len(moved)} of {len(names)} layers are split or placed differently, {share:.0%} of the compute{rest}."
    return sentence, rows[:MOST_ROWS]


def device_changes(before: Outcome, after: Outcome) -> list[tuple[str, tuple[Change, ...]]]:
    """For each device (of many: for each group, its largest) compute seconds, bytes sent and peak memory.

    Empty unless both ran on as many workers.
    """
    if before.report is None or after.report is None or before.cluster is None or after.cluster is None:
        return []
    if before.cluster.workers != after.cluster.workers:
        return []
    old, new = before.report.devices, after.report.devices
    quantities: tuple[tuple[Callable[[DeviceUse], float], Callable[[float], str]], ...] = (
        (lambda use: use.compute_s, format_time),
        (lambda use: use.sent_bytes, volume_unit(after.report.communication_bytes.total).words),
        (lambda use: use.peak_memory_bytes, format_bytes),
    )
    rows = []
    for group in device_groups(after.cluster, servers=False):
        changes = []
        for read, show in quantities:
            then, now = (max(read(uses[device]) for device in group.devices) for uses in (old, new))
            changes.append((show(then), show(now), *difference(now, then)))
        rows.append((group.name, tuple(changes)))
    return rows


def _between(names: Sequence[str], stretch: Sequence[int]) -> str:
    first, last = names[stretch[0]], names[stretch[-1]]
    return first if len(stretch) == 1 else f"{first} to {last} ({len(stretch)})"


def _where(split: Split, names: Sequence[str]) -> str:
    """e.g. "4 n on node0/gpu0 to node0/gpu3"; names: of all devices."""
    devices = sorted(split.device_set)
    first, last = names[devices[0]], names[devices[-1]]
    if len(devices) == 1:
        return first
    if all(after - before == 1 for before, after in pairwise(devices)):
        return f"{split.words} on {first} to {last}"
    listed = ", ".join(names[device] for device in devices)
    return f"{split.words} on {listed if len(devices) <= 6 else f'{len(devices)} of {first} to {last}'}"
