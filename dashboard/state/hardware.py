"""What of a result depends on knowing the device: whether it is the profile's, and how much of its peak is used."""

from __future__ import annotations

import re

from simulator.cluster import Cluster
from simulator.report.metrics import Report
from simulator.workload import Profile

_PRODUCTS = ("V100", "A100", "GH200", "H100", "H200", "P100", "T4", "MI250", "A6000", "Xeon", "CPU")
_PEAK_FLOP_PER_S = {
    ("V100", "float32"): 15.7e12, ("V100", "float16"): 125e12,
    ("A100", "float32"): 19.5e12, ("A100", "tf32"): 156e12, ("A100", "float16"): 312e12, ("A100", "bfloat16"): 312e12,
    ("H100", "float32"): 67e12, ("H100", "tf32"): 494e12, ("H100", "float16"): 989e12, ("H100", "bfloat16"): 989e12,
    ("P100", "float32"): 10.6e12, ("P100", "float16"): 21.2e12, ("T4", "float32"): 8.1e12, ("T4", "float16"): 65e12,
}  # fmt: skip
"""Dense peaks of NVIDIA's data sheets (V100 SXM2, A100 SXM4, H100 SXM5, P100 SXM2, T4), by precision."""
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
    peak = _PEAK_FLOP_PER_S.get((kind, profile.dtype))
    flops = 3 * sum(layer.flops for layer in profile.layers) * report.batch_size / profile.batch_size
    if peak is None or not flops or not report.step_s or kind != product(profile.device):
        return None
    return flops / report.step_s / (peak * cluster.workers)


def sequence_length(profile: Profile) -> int:
    """Tokens of a sample of a network over sequences, 0 of another."""
    if not any(layer.kind.lower().startswith(_SEQUENCES) for layer in profile.layers):
        return 0
    return max(layer.output_shape[1] for layer in profile.layers)
