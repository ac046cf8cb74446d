"""The prediction of a check from a profile that was captured on the same device."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from benchmarks.device_card.cards import CHANNELS, MEMORY, Card, Check, stage_names
from simulator.cluster import Cluster, Device, Link
from simulator.files import read_profile
from simulator.lowering.costs.shard_costs import shard_seconds
from simulator.plan import Plan, Sharding
from simulator.run import run
from simulator.workload import Profile


def predicted(card: Card, profile_path: Path) -> Card:
    """The card with every check simulated from its profile's file. Raises InputError or OSError."""
    profile = read_profile(profile_path)
    checks = tuple(replace(check, predicted=prediction(profile, check)) for check in card.checks)
    return replace(card, checks=checks, unpredicted="")


def prediction(profile: Profile, check: Check) -> float:
    """The simulated seconds of a check, or bytes for "memory". Raises InputError where it cannot be planned."""
    if check.kind == CHANNELS:
        layer = profile.layers[profile.index[check.layer]]
        return sum(shard_seconds(profile, layer, check.batch_size, check.fraction))
    report = run(profile, one_device(check.stages), plan_of(profile, check)).report
    return report.peak_memory_bytes if check.kind == MEMORY else report.step_s


def plan_of(profile: Profile, check: Check) -> Plan:
    """Every layer whole, on the device of its stage."""
    times = [(layer.name, layer.forward_s + layer.backward_s) for layer in profile.layers]
    homes = {name: stage for stage, names in enumerate(stage_names(times, check.stages)) for name in names}
    return Plan(
        model=profile.model,
        batch_size=check.batch_size,
        microbatches=check.microbatches,
        placements={name: Sharding(devices=(stage,)) for name, stage in homes.items()},
        schedule="gpipe" if check.stages > 1 else "dataflow",
    )


def one_device(stages: int) -> Cluster:
    """`stages` devices that share one device's computing rate, between which transfers take no time."""
    names = [f"stage{number}" for number in range(stages)]
    pairs = zip([*names, *reversed(names)][:-1], [*names, *reversed(names)][1:], strict=True)
    return Cluster(
        name="one device",
        devices=tuple(Device(name=name, host="one") for name in names),
        links=tuple(Link(source=a, target=b, bandwidth_bytes_per_s=1e18) for a, b in dict.fromkeys(pairs) if a != b),
        host_cores={"one": 1.0},
    )
