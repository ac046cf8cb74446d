"""What a reader of a report should know of the profile and the links that it was made from, a line or two each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.device_names import unlike
from simulator.errors import InputError

if TYPE_CHECKING:
    from simulator.cluster import Cluster
    from simulator.workload import Profile

LAYERS_TO_STEP = (0.85, 1.15)
"""Layers over the measured step: outside, a profile is worth a note."""


def machine_notes(profile: Profile, cluster: Cluster, strict: bool = False) -> list[str]:
    """What makes times look better or other than they will be, first of all that layers were modelled.

    strict: raise InputError where the devices are not the profiled one and nobody said how fast they are.
    """
    device_note = _device_note(profile, cluster)
    if strict and device_note and set(cluster.speeds[: cluster.workers]) == {1.0}:
        raise InputError(f"--strict: {device_note}")
    modelled = profile.notes.partition(" (")[0] if profile.notes.startswith("modelled") else ""
    return list(filter(None, [modelled, device_note, _layers_note(profile), _links_note(cluster)]))


def _layers_note(profile: Profile) -> str:
    """What speaks against the profile: its own doubt, or layers that add up to something else than its step."""
    if profile.doubt:
        return f"the profile is doubtful: {profile.doubt}"
    ratio = profile.layers_to_step
    if ratio is None or LAYERS_TO_STEP[0] <= ratio <= LAYERS_TO_STEP[1]:
        return ""
    return f"the profile's layers add up to {ratio:.2f} of its measured step, so times may be off by as much"


def _links_note(cluster: Cluster) -> str:
    """What share of their line rate the links between the first and the last worker give, where it was measured."""
    crossed = [cluster.links[number] for number in cluster.route(0, cluster.workers - 1)]
    shares = [
        f"{tier} {share.median:.0%} ({share.low:.0%} to {share.high:.0%})"
        for tier, share in dict.fromkeys((link.tier, link.achieved) for link in crossed)
        if share is not None and share.median != 1
    ]
    if not shares:
        return ""
    names = [name.replace("_", "-") for name in sorted(cluster.collectives)]
    which = names[0] if len(names) == 1 else f"{len(names)} collectives"
    measured = f"; {which} as measured" if names else ""
    return (
        f"links at their measured share of line rate: {', '.join(shares)}{measured}; --efficiency TIER=1: at full rate"
    )


def _device_note(profile: Profile, cluster: Cluster) -> str:
    """A sentence when the cluster's devices are not the profiled one, otherwise nothing."""
    other = unlike(cluster, profile.device)
    if not other:
        return ""
    scaled = set(cluster.speeds[: cluster.workers]) != {1.0}
    advice = "they are scaled by the cluster's speed" if scaled else "scale them with --speed"
    return f"compute times were captured on {profile.device}, not {', '.join(other)}; {advice}"
