"""Networks and clusters small enough to work out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from simulator.cluster import Cluster, Device, Link
from simulator.workload import Geometry, Layer, Profile

BATCH = 8
FULLY_CONNECTED = Geometry(kernel=None, mixes_channels=True)
CONVOLUTION = Geometry(kernel=(3, 3), padding=(1, 1), mixes_channels=True)


def layer(
    name: str,
    *inputs: str,
    kind: str = "conv",
    shape: tuple[int, int, int] = (8, 4, 4),
    seconds: float = 3.0,
    parameter_bytes: int = 0,
    geometry: Geometry = CONVOLUTION,
) -> Layer:
    """A layer of `seconds` for the whole batch, two thirds of them in backward."""
    return Layer(
        name=name,
        kind=kind,
        inputs=inputs,
        output_shape=shape,
        forward_s=seconds / 3,
        backward_s=seconds * 2 / 3,
        parameter_bytes=parameter_bytes,
        output_bytes=BATCH * prod(shape) * 4,
        geometry=geometry,
    )


def network(*layers: Layer) -> Profile:
    return Profile(model="small", device="none", batch_size=BATCH, layers=layers)


def chain(seconds: Sequence[float], channels: Sequence[int] | None = None) -> Profile:
    """Layers a, b, c, ... in a row, of these seconds and 64 bytes per sample of output for each channel."""
    names = "abcdefghijklmnopqrstuvwxyz"[: len(seconds)]
    widths = channels or [8] * len(seconds)
    return network(
        *(
            layer(name, *names[max(0, i - 1) : i], seconds=second, shape=(width, 4, 4))
            for i, (name, second, width) in enumerate(zip(names, seconds, widths, strict=True))
        )
    )


def branches() -> Profile:
    """A residual block, two branches joined along channels, and a classifier."""
    return network(
        layer("stem", parameter_bytes=900),
        layer("left", "stem", parameter_bytes=2304),
        layer("add", "left", "stem", kind="add", seconds=0.3, geometry=Geometry()),
        layer("wide", "add", shape=(16, 4, 4), seconds=6.0, parameter_bytes=4608),
        layer("narrow", "add", shape=(4, 4, 4), seconds=1.5, parameter_bytes=1152),
        layer("concat", "wide", "narrow", kind="concat", shape=(20, 4, 4), seconds=0.3, geometry=Geometry()),
        layer("pool", "concat", kind="pool", shape=(20, 1, 1), seconds=0.3, geometry=Geometry(kernel=None)),
        layer("hidden", "pool", kind="linear", shape=(12, 1, 1), parameter_bytes=10**5, geometry=FULLY_CONNECTED),
        layer("relu", "hidden", kind="relu", shape=(12, 1, 1), seconds=0.3, geometry=Geometry()),
        layer("classes", "relu", kind="linear", shape=(3, 1, 1), parameter_bytes=10**4, geometry=FULLY_CONNECTED),
    )


def switched(
    speeds: Sequence[float], *, servers: int = 0, bandwidth_bytes_per_s: float = 1e9, latency_s: float = 0.0
) -> Cluster:
    """Workers of these speeds, then servers, on one switch; a message between two waits `latency_s`."""
    workers = tuple(Device(name=f"d{i}", host=f"h{i}", speed=speed) for i, speed in enumerate(speeds))
    devices = workers + tuple(Device(name=f"s{i}", host=f"s{i}", role="server") for i in range(servers))
    links = tuple(
        Link(source=a, target=b, bandwidth_bytes_per_s=bandwidth_bytes_per_s, latency_s=latency_s / 2)
        for device in devices
        for a, b in ((device.name, "switch"), ("switch", device.name))
    )
    return Cluster(name="switched", devices=devices, links=links)
