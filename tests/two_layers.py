"""Two fully connected layers, a switch of slow links, and what else the tests of layer-wise parallelism share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from partitioners._layerwise.elimination import sum_of
from partitioners._layerwise.optcnn import CostTables
from simulator.cluster import Cluster, Device, Link
from simulator.curve import Curve
from simulator.plan import StepSettings
from simulator.workload import Geometry, Layer, Profile


def switch(workers: int, servers: int = 0, *, memory_bytes: int | None = None, curve: Curve | None = None) -> Cluster:
    """Devices on one switch at 1 MB/s each way and 0.1 ms a link."""
    roles = ["worker"] * workers + ["server"] * servers
    devices = tuple(
        Device(name=f"d{i}", host=f"h{i}", role=role, memory_bytes=memory_bytes) for i, role in enumerate(roles)
    )
    ends = [pair for device in devices for pair in ((device.name, "switch"), ("switch", device.name))]
    links = [Link(source=a, target=b, bandwidth_bytes_per_s=1e6, latency_s=1e-4, curve=curve) for a, b in ends]
    return Cluster(name="switch", devices=devices, links=tuple(links))


def linear(name: str, inputs: tuple[str, ...], channels: int, parameter_bytes: int, seconds: float) -> Layer:
    return Layer(
        name=name,
        kind="linear",
        inputs=inputs,
        output_shape=(channels, 1, 1),
        forward_s=seconds,
        backward_s=2 * seconds,
        parameter_bytes=parameter_bytes,
        output_bytes=4 * 8 * channels,
        saved_bytes=4 * 8 * channels,
        geometry=Geometry(kernel=None, mixes_channels=True),
    )


def two_layers(parameter_bytes: int = 0) -> Profile:
    """8 samples through 16 and then 4 channels."""
    layers = linear("a", (), 16, 0, 0.004), linear("b", ("a",), 4, parameter_bytes, 0.002)
    return Profile(model="two", device="none", batch_size=8, layers=layers)


def settings_of(batch_size: int = 8, **changes: Any) -> StepSettings:
    return StepSettings(batch_size=batch_size, **changes)


def total_s(tables: CostTables, strategy: Sequence[int]) -> float:
    """OptCNN's cost in seconds (equation 1) of the strategy that gives layer i its configuration strategy[i]."""
    nodes = [compute + synchronise for compute, synchronise in zip(tables.compute_s, tables.synchronise_s, strict=True)]
    return sum_of(nodes, tables.transfer_s, strategy)
