"""What of a result depends on knowing the device: whether it is the profile's, and how much of its peak is used."""

from __future__ import annotations

import re

from simulator.cluster import Cluster
from simulator.language_models.accelerators import ACCELERATORS, accelerator
from simulator.language_models.training_stack import accelerator_of
from simulator.report.metrics import Report
from simulator.workload import Profile

_PRODUCTS = (
    *dict.fromkeys(name.partition("-")[0].upper() for name in ACCELERATORS), "P100", "T4", "A6000", "Xeon", "CPU"
)  # fmt: skip
_SEQUENCES = ("attention", "transformer", "embedding")


def product(name: str) -> str:
    """The product in a device's name, e.g. V100 of "Tesla V100-SXM2-32GB"; empty where it is none that is known."""
    known = next((candidate for candidate in _PRODUCTS if re.search(rf"(?<![A-Z0-9]){candidate}", name)), "")
    return "CPU" if known == "Xeon" else known


def mismatch(profile: Profile, cluster: Cluster) -> str:
    """A sentence where the profile was measured on another kind of device than the cluster's, else empty."""
    kinds = {device.kind for device in cluster.devices[: cluster.workers]}
    measured = product(profile.device)
    others = sorted(kind for kind in kinds if product(kind) != measured)
    if not others or not measured:
        return ""
    return f"measured on {profile.device}, simulated on {', '.join(others)}: set the device speed to what theirs is"


def utilisation(profile: Profile, cluster: Cluster, report: Report) -> float | None:
    """Model FLOP per second over the devices' peak; the backward pass counts twice the forward. None where unknown."""
    kind = product(cluster.devices[0].kind)
    flops = 3 * sum(layer.flops for layer in profile.layers) * report.batch_size / profile.batch_size
    if kind.lower() not in ACCELERATORS or kind != product(profile.device) or not flops or not report.step_s:
        return None
    sheet = accelerator(accelerator_of(cluster))
    others = {"float32": sheet.fp32_flops_per_s, "tf32": sheet.tf32_flops_per_s}
    peak = others.get(profile.dtype, sheet.flops_per_s)
    return flops / report.step_s / (peak * cluster.workers) if peak else None


def sequence_length(profile: Profile) -> int:
    """Tokens of a sample of a network over sequences, 0 of another."""
    if not any(layer.kind.lower().startswith(_SEQUENCES) for layer in profile.layers):
        return 0
    return max(layer.output_shape[1] for layer in profile.layers)
