"""Random profiles, clusters and plans, small enough to simulate thousands of times and shaped like real networks."""

from __future__ import annotations

from math import prod

from hypothesis import strategies as st

from simulator import collectives
from simulator.cluster import Cluster, Device, Link
from simulator.plan import Plan, Sharding, Synchronisation
from simulator.workload import Geometry, Layer, Profile, ScalingPoint

Shape = tuple[int, int, int]
SECONDS = st.integers(0, 20).map(lambda count: count * 1e-4)
ITEM_BYTES = 4


@st.composite
def profiles(draw: st.DrawFn, min_layers: int = 1, max_layers: int = 6) -> Profile:
    """A DAG of convolutions, pools, activations, joins and fully connected layers whose shapes agree.

    At most 8 samples of at most 8 channels of 6 x 6; times are multiples of 0.1 ms up to 2 ms, zero included.
    """
    batch_size = draw(st.integers(1, 8))
    layers = [_layer(draw, "layer0", "conv", (), _first_shape(draw), batch_size, parameters=27)]
    for i in range(1, draw(st.integers(min_layers, max_layers))):
        layers.append(_next_layer(draw, f"layer{i}", layers, batch_size))
    return Profile(model="random", device="none", batch_size=batch_size, layers=tuple(layers))


@st.composite
def clusters(
    draw: st.DrawFn, min_workers: int = 1, max_workers: int = 5, max_servers: int = 0, symmetric: bool = False
) -> Cluster:
    """Devices on one switch, on hosts of two under a common switch, or in a two-way ring.

    `symmetric` makes it one switch with devices and links all alike. Parameter servers stand where workers do.
    """
    workers, servers = draw(st.integers(min_workers, max_workers)), draw(st.integers(0, max_servers))
    speeds = st.just(1.0) if symmetric else st.sampled_from((0.5, 1.0, 1.0, 2.0))
    devices = tuple(
        Device(name=f"d{i}", host=f"h{i // 2}", speed=draw(speeds), role="worker" if i < workers else "server")
        for i in range(workers + servers)
    )
    shape = _switch_joins if symmetric else draw(st.sampled_from((_switch_joins, _two_tier_joins, _ring_joins)))
    alike = (draw(_bandwidths), draw(_latencies))
    links = []
    for a, b in shape(devices):
        for source, target in ((a, b), (b, a)):
            bandwidth, latency = alike if symmetric else (draw(_bandwidths), draw(_latencies))
            links.append(Link(source=source, target=target, bandwidth_bytes_per_s=bandwidth, latency_s=latency))
    return Cluster(name="random", devices=devices, links=tuple({link.name: link for link in links}.values()))


@st.composite
def plans(
    draw: st.DrawFn,
    profile: Profile,
    cluster: Cluster,
    spatial: bool = True,
    every_collective: bool = False,
    every_axis: bool = False,
) -> Plan:
    """Any degrees that the extents allow (at most 8 shards a layer) on any workers; micro-batches; "dataflow".

    Without `spatial` layers are split by sample and channel only. With `every_axis` layers that are sums may be split
    by reduce, and any may have copies. The batch may differ from the profile's.
    """
    microbatches = draw(st.integers(1, 3))
    batch_size = microbatches * draw(st.integers(1, 6))
    placements = {}
    for layer in profile.layers:
        extents = (batch_size // microbatches, *layer.output_shape)
        degrees = _degrees(draw, extents if spatial else (*extents[:2], 1, 1))
        count, reduce, copy = prod(degrees), 1, 1
        if every_axis:
            fewest = min((profile.layers[profile.index[name]].channels for name in layer.inputs), default=3)
            reduce = draw(st.integers(1, min(3, fewest))) if layer.sums_inputs else 1
            copy = draw(st.integers(1, min(3, cluster.workers)))
        workers = st.permutations(range(cluster.workers)).map(lambda order, copy=copy: order[:copy])
        if copy == 1:
            workers = st.integers(0, cluster.workers - 1).map(lambda worker: [worker])
        terms = draw(st.lists(workers, min_size=count * reduce, max_size=count * reduce))
        devices = tuple(device for copies in terms for device in copies)
        placements[layer.name] = Sharding(degrees=degrees, reduce=reduce, copy=copy, devices=devices)
    return Plan(
        model=profile.model,
        batch_size=batch_size,
        microbatches=microbatches,
        placements=placements,
        synchronisation=draw(synchronisations(cluster, every_collective)),
        strategy="random",
    )


@st.composite
def synchronisations(draw: st.DrawFn, cluster: Cluster, every_collective: bool = False) -> Synchronisation:
    """Ring, or parameter servers where the cluster has any; no bucket, small or large ones; overlapped or not.

    With `every_collective` any of them, and gradients in 16 bits or compressed.
    """
    names = collectives.names() if every_collective else ("ring", "ps")
    known = [name for name in names if cluster.servers or not collectives.load(name).needs_server]
    return Synchronisation(
        collective=draw(
            st.sampled_from([name for name in known if cluster.servers or not collectives.load(name).needs_server])
        ),
        bucket_bytes=draw(st.sampled_from((0, 500, 25 * 2**20))),
        overlap=draw(st.booleans()),
        half_precision=every_collective and draw(st.booleans()),
        compression_ratio=draw(st.sampled_from((1.0, 1.0, 7.0))) if every_collective else 1.0,
    )


_bandwidths = st.sampled_from((1e5, 1e6, 3e6, 1e7))
_latencies = st.sampled_from((0.0, 1e-5, 2e-4))


def _switch_joins(devices: tuple[Device, ...]) -> list[tuple[str, str]]:
    return [(device.name, "switch") for device in devices]


def _two_tier_joins(devices: tuple[Device, ...]) -> list[tuple[str, str]]:
    hosts = sorted({device.host for device in devices})
    return [(device.name, device.host) for device in devices] + [(host, "switch") for host in hosts]


def _ring_joins(devices: tuple[Device, ...]) -> list[tuple[str, str]]:
    names = [device.name for device in devices]
    return [(a, b) for a, b in zip(names, names[1:] + names[:1], strict=True) if a != b]


def _degrees(draw: st.DrawFn, extents: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
    """A degree of 1 to 3 for each extent, eight shards at most, the dimensions taking turns at being first."""
    degrees, left = [1, 1, 1, 1], 8
    for dimension in draw(st.permutations(range(4))):
        degrees[dimension] = draw(st.integers(1, max(1, min(3, extents[dimension], left))))
        left //= degrees[dimension]
    return degrees[0], degrees[1], degrees[2], degrees[3]


def _first_shape(draw: st.DrawFn) -> Shape:
    return draw(st.sampled_from((1, 2, 4))), draw(st.integers(1, 6)), draw(st.integers(1, 6))


def _layer(
    draw: st.DrawFn,
    name: str,
    kind: str,
    inputs: tuple[str, ...],
    shape: Shape,
    batch_size: int,
    *,
    geometry: Geometry | None = None,
    parameters: int = 0,
) -> Layer:
    """A layer with drawn times and, half the time, scaling points; sizes follow from the shape."""
    output_bytes = batch_size * prod(shape) * ITEM_BYTES
    times = {"forward_s": draw(SECONDS), "backward_s": draw(SECONDS)}
    scaling: tuple[ScalingPoint, ...] = ()
    if draw(st.booleans()):
        half = {key: value * draw(st.sampled_from((0.5, 0.8))) for key, value in times.items()}
        scaling = (ScalingPoint(batch_size=max(1, batch_size // 2), **half),) if batch_size > 1 else ()
        if shape[0] > 1:
            scaling = (*scaling, ScalingPoint(batch_size=batch_size, channel_fraction=0.5, **half))
    return Layer(
        name=name,
        kind=kind,
        inputs=inputs,
        output_shape=shape,
        **times,
        update_s=draw(SECONDS) if parameters else 0.0,
        parameter_bytes=parameters * ITEM_BYTES,
        output_bytes=output_bytes,
        saved_bytes=draw(st.sampled_from((0, output_bytes))),
        flops=float(output_bytes),
        geometry=geometry or (_window(draw, shape[1:], mixes=True) if kind == "conv" else Geometry()),
        scaling=scaling,
    )


def _next_layer(draw: st.DrawFn, name: str, layers: list[Layer], batch_size: int) -> Layer:
    """A layer that reads one or two earlier ones, most often the last."""
    source = layers[-1] if draw(st.integers(0, 3)) else draw(st.sampled_from(layers))
    make = draw(
        st.sampled_from((_convolution, _convolution, _pool, _activation, _join, _join, _flatten, _linear, _reader))
    )
    return make(draw, name, source, layers, batch_size)


def _convolution(draw: st.DrawFn, name: str, source: Layer, layers: list[Layer], batch_size: int) -> Layer:
    groups = draw(st.sampled_from([g for g in (1, 1, 2, source.channels) if source.channels % g == 0]))
    channels = groups * draw(st.integers(1, max(1, 4 // groups)))
    geometry = _window(draw, source.output_shape[1:], mixes=True, groups=groups)
    shape = (channels, *_plane(source.output_shape[1:], geometry))
    weights = channels * (source.channels // groups) * prod(geometry.kernel or (1, 1))
    return _layer(draw, name, "conv", (source.name,), shape, batch_size, geometry=geometry, parameters=weights)


def _reader(draw: st.DrawFn, name: str, source: Layer, layers: list[Layer], batch_size: int) -> Layer:
    """A second layer that reads the training data."""
    return _layer(draw, name, "conv", (), _first_shape(draw), batch_size, parameters=27)


def _pool(draw: st.DrawFn, name: str, source: Layer, layers: list[Layer], batch_size: int) -> Layer:
    if draw(st.booleans()):
        geometry, plane = Geometry(kernel=None), (1, 1)
    else:
        geometry = _window(draw, source.output_shape[1:], mixes=False)
        plane = _plane(source.output_shape[1:], geometry)
    return _layer(draw, name, "pool", (source.name,), (source.channels, *plane), batch_size, geometry=geometry)


def _activation(draw: st.DrawFn, name: str, source: Layer, layers: list[Layer], batch_size: int) -> Layer:
    parameters = draw(st.sampled_from((0, 2 * source.channels)))  # 2 per channel: a batch norm
    return _layer(draw, name, "activation", (source.name,), source.output_shape, batch_size, parameters=parameters)


def _join(draw: st.DrawFn, name: str, source: Layer, layers: list[Layer], batch_size: int) -> Layer:
    """An add of equal shapes or a concat of equal planes; with nothing to join, an add of a layer to itself."""
    same_plane = [layer for layer in layers if layer.output_shape[1:] == source.output_shape[1:]]
    other = draw(st.sampled_from(same_plane))
    if other is not source and source.channels + other.channels <= 8 and draw(st.booleans()):
        shape = (source.channels + other.channels, *source.output_shape[1:])
        return _layer(draw, name, "concat", (source.name, other.name), shape, batch_size)
    if other.output_shape != source.output_shape:
        other = source
    return _layer(draw, name, "add", (source.name, other.name), source.output_shape, batch_size)


def _flatten(draw: st.DrawFn, name: str, source: Layer, layers: list[Layer], batch_size: int) -> Layer:
    return _layer(draw, name, "flatten", (source.name,), (prod(source.output_shape), 1, 1), batch_size)


def _linear(draw: st.DrawFn, name: str, source: Layer, layers: list[Layer], batch_size: int) -> Layer:
    """Fully connected over the whole image, or position by position as in a transformer's projections."""
    channels, per_position = draw(st.integers(1, 4)), draw(st.booleans())
    geometry = Geometry(kernel=(1, 1) if per_position else None, mixes_channels=True)
    inputs = source.channels if per_position else prod(source.output_shape)
    shape = (channels, *(source.output_shape[1:] if per_position else (1, 1)))
    return _layer(
        draw, name, "linear", (source.name,), shape, batch_size, geometry=geometry, parameters=channels * inputs
    )


def _window(draw: st.DrawFn, plane: tuple[int, ...], *, mixes: bool, groups: int = 1) -> Geometry:
    """A sliding window that fits into `plane` with at least one output position, none of which sees only padding."""
    rows, columns = (_window_side(draw, extent) for extent in plane)
    kernel, stride, padding, dilation = ((rows[k], columns[k]) for k in range(4))
    return Geometry(
        kernel=kernel, stride=stride, padding=padding, dilation=dilation, groups=groups, mixes_channels=mixes
    )


def _window_side(draw: st.DrawFn, extent: int) -> tuple[int, int, int, int]:
    """Kernel, stride, padding and dilation along one side of the plane."""
    kernel = draw(st.integers(1, min(3, extent)))
    dilation = draw(st.integers(1, 2)) if kernel > 1 and 2 * (kernel - 1) < extent else 1
    return kernel, draw(st.integers(1, 2)), draw(st.sampled_from((0, dilation * (kernel - 1) // 2))), dilation


def _plane(plane: tuple[int, ...], geometry: Geometry) -> tuple[int, int]:
    """Output (height, width) of a window over `plane`, rounded down as torch does by default."""
    height, width = (
        (extent + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
        for extent, kernel, stride, padding, dilation in zip(
            plane, geometry.kernel or plane, geometry.stride, geometry.padding, geometry.dilation, strict=True
        )
    )
    return height, width
