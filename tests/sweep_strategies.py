"""Strategies for the tests of sweeps, in a module that worker processes can import: some of them misbehave."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from simulator.cluster import Cluster
from simulator.errors import InputError
from simulator.plan import Partition, Plan, Sharding, StepSettings
from simulator.sweep.points import Points, expand
from simulator.sweep.specification import Specification
from simulator.workload import Profile

OPTIONS = dict.fromkeys(("turns", "dies", "raises", "refuses"), ("microbatches", "seed", "shift")) | {
    "dies_once": ("seed", "trace"),
    "plain": ("seed",),
}


def make_plan(name: str, profile: Profile, cluster: Cluster, step: StepSettings, /, **own: Any) -> Plan:
    strategies = {"dies": _dies, "dies_once": _dies_once, "raises": _raises, "refuses": _refuses}
    return strategies.get(name, _turns)(profile, cluster, step, **own)


def points(path: Path, /, where: tuple[str, ...] = (), **parameters: Any) -> Points:
    """The points of a sweep over the profile in `path` on presets of gcp-v100, unless `parameters` say otherwise."""
    common = {"profile": str(path), "cluster": "gcp-v100", "devices": 2, "strategy": "turns"}
    return expand(Specification(parameters=common | parameters, where=where), OPTIONS)


def _turns(profile: Profile, cluster: Cluster, step: StepSettings, *, shift: int = 0, **own: Any) -> Plan:
    """Layer i on worker i + shift, round and round."""
    turns = {layer.name: Sharding(devices=((i + shift) % cluster.workers,)) for i, layer in enumerate(profile.layers)}
    return step.plan(profile, Partition(placements=turns), "turns")


def _dies(profile: Profile, cluster: Cluster, step: StepSettings, **own: Any) -> Plan:
    os._exit(9)


def _dies_once(profile: Profile, cluster: Cluster, step: StepSettings, *, trace: str, **own: Any) -> Plan:
    """End the worker on the first call, which leaves the file `trace` behind."""
    if not Path(trace).exists():
        Path(trace).touch()
        os._exit(9)
    return _turns(profile, cluster, step, **own)


def _raises(profile: Profile, cluster: Cluster, step: StepSettings, **own: Any) -> Plan:
    raise ZeroDivisionError("an accident")


def _refuses(profile: Profile, cluster: Cluster, step: StepSettings, **own: Any) -> Plan:
    raise InputError("seed is 1: this strategy never agrees")
