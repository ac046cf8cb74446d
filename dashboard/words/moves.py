"""Two plans of one network: which layers stand elsewhere, and what that changes for each device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby, pairwise

from dashboard.state.columns import Split, effective_split
from dashboard.state.device_groups import device_groups
from dashboard.state.simulating import Outcome
from dashboard.words.kpis import difference
from dashboard.words.volume import volume_unit
from simulator.report.resource_use import DeviceUse
from simulator.units import format_bytes, format_time

MOST_ROWS = 40
"""Stretches of layers that are listed; the sentence counts all of them."""
Change = tuple[str, str, str, str]
"""Before, after, difference as "▼ 12.0%", and its tone."""


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
