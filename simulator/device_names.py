"""What the names of devices say of their models: profiles and clusters name products, each in words of its own."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simulator.cluster import Cluster


def alike(first: str, second: str) -> bool:
    """Whether two names share a word that tells a model, e.g. "v100"; so do those of which one is empty, so unknown."""
    return not first or not second or bool(_models(first) & _models(second))


def unlike(cluster: Cluster, name: str) -> tuple[str, ...]:
    """The kinds of a cluster's workers that are of another model than the device of that name, in their order."""
    kinds = dict.fromkeys(device.kind for device in cluster.devices[: cluster.workers])
    return tuple(kind for kind in kinds if not alike(kind, name))


def _models(name: str) -> set[str]:
    """The words of a device's name that tell its model, e.g. {"v100"}; {..., "thread"} for one core of a CPU."""
    words = set(re.findall(r"[a-z0-9]+", name.lower()))
    return {word for word in words if not re.fullmatch(r"nvidia|tesla|gpu|rtx|pcie|sxm\d?|\d+gb|\d+", word)}
