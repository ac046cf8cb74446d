"""What is to be trained: a Profile is a network measured layer by layer on one device."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from operator import attrgetter
from typing import Any

from simulator.errors import MOST_COUNT, require, require_count, require_from_0, require_name, require_time
from simulator.expert_routing import Routing
from simulator.kept import Kept
from simulator.ordered_sum import ordered_sum
from simulator.profile_rules import in_order, require_geometry, require_layer, require_layers

DTYPE_BYTES: Mapping[str, int] = {
    "float64": 8,
    "float32": 4,
    "tf32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float8": 1,
}
"""Bytes of an element in memory, by the precision of a profile."""

SUMMING_KINDS = ("linear", "conv", "embedding", "downsample", "cross_entropy")
"""How the kinds of layers begin whose outputs are put together from parts of their input channels: linear layers, an
embedding over its vocabulary, and the three numbers of each token that a cross entropy needs of all logits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """What part of a layer's input one part of its output depends on."""

    kernel: tuple[int, int] | None = (1, 1)
    """(height, width) of the input around an output's position; None: the whole plane, as an attention, a global
    pooling, a fully connected layer over an image."""
    stride: tuple[int, int] = (1, 1)
    """(height, width)."""
    padding: tuple[int, int] = (0, 0)
    """(height, width)."""
    dilation: tuple[int, int] = (1, 1)
    """(height, width)."""
    groups: int = 1
    """Of channels, each of which reads its part of the input channels alone."""
    mixes_channels: bool = False
    """Whether an output channel needs all input channels of its group, as in a convolution or fully connected layer, or
    only its own, as in an activation, pooling or batch norm."""
    aligned_inputs: tuple[str, ...] = ()
    """Inputs of which an output needs its own position and channel alone although `kernel` is None and channels mix:
    the queries of an attention, whose keys and values are needed whole."""

    def __post_init__(self) -> None:
        require_geometry(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingPoint:
    """Measured times of a layer at another batch size, or at a fraction of its output or of its input channels."""

    batch_size: int
    """Samples."""
    channel_fraction: float = 1.0
    """Of the output's channels that were computed."""
    input_channel_fraction: float = 1.0
    """Of the input channels that were read, as by a row-parallel shard, which makes a partial sum of all outputs."""
    forward_s: float
    """Median of the forward pass."""
    backward_s: float
    """Median of the backward pass."""

    def __post_init__(self) -> None:
        require_count("batch_size", self.batch_size)
        for name in ("channel_fraction", "input_channel_fraction"):
            require(0 < getattr(self, name) <= 1, name, getattr(self, name), "it is in (0, 1]")
        for name in ("forward_s", "backward_s"):
            require_time(name, getattr(self, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One layer, measured at the profile's batch size. Times are medians; bytes and flops are for the whole batch."""

    name: str
    """Its own."""
    kind: str
    """For people, but for "concat" (inputs joined along channels), "flatten" (channels, height and width become
    channels) and SUMMING_KINDS."""
    inputs: tuple[str, ...] = ()
    """Layers whose output it reads; empty: the training data."""
    output_shape: tuple[int, int, int]
    """(channels, height, width) of one sample; a sequence's length is its height, what a layer lacks is 1."""
    forward_s: float
    """The forward pass."""
    backward_s: float
    """The backward pass."""
    update_s: float = 0.0
    """The optimizer's step of its parameters."""
    forward_spread_s: float = 0.0
    """Interquartile range of the forward pass."""
    backward_spread_s: float = 0.0
    """The same of the backward pass."""
    recompute_s: float = 0.0
    """Part of backward_s in which a layer under activation checkpointing runs forward again."""
    accumulate_s: float | None = None
    """What adding the gradients of a later micro-batch to those of the earlier ones takes; None: not measured."""
    varying_share: float = 1.0
    """Part of its passes that takes in proportion to a sample's work (`Plan.work`); the rest, of a size to which
    samples are padded, takes the same for all."""
    parameter_bytes: int = 0
    """Of its own parameters, once."""
    output_bytes: int
    """Of its output."""
    saved_bytes: int = 0
    """Storage that its forward pass newly keeps for the backward pass."""
    saved_output_bytes: int = 0
    """What of saved_bytes is its own output."""
    working_bytes: int = 0
    """What its backward pass holds beside the gradient of its output, such as the gradients of its inputs."""
    tied_to: tuple[str, ...] = ()
    """Earlier layers with which it shares parameters, whose bytes and update are theirs."""
    flops: float = 0.0
    """Of the forward pass, as MFU counts them: two per multiply-add, and what a causal mask hides is not subtracted."""
    geometry: Geometry = Geometry()
    """What of its input a part of its output needs."""
    routing: Routing | None = None
    """Of a layer of a mixture's experts, which stand as its width: of each the output of as many tokens as are expected
    to come to it. A split by width shares the experts out; times are those of all together, with equal loads."""
    scaling: tuple[ScalingPoint, ...] = ()
    """Its times at other sizes."""

    def __post_init__(self) -> None:
        require_layer(self)

    @property
    def channels(self) -> int:
        return self.output_shape[0]

    @property
    def sums_inputs(self) -> bool:
        """Whether an output is a sum over input channels, whose parts are terms that can be computed apart."""
        linear = self.kind.lower().startswith(SUMMING_KINDS)
        return linear and self.geometry.mixes_channels and self.geometry.groups == 1


@dataclass(frozen=True, kw_only=True)
class Profile:
    """A network measured on one device. Raises InputError on duplicate or unknown names, a cycle, or no layers."""

    model: str
    """The network's name."""
    device: str
    """The product that it was measured on."""
    batch_size: int
    """Samples of the measured step."""
    dtype: str = "float32"
    """Precision of the arithmetic, in DTYPE_BYTES."""
    step_s: float | None = None
    """Measured time of one whole step: forward, backward and update, end to end; None: not measured."""
    step_spread_s: float = 0.0
    """Interquartile range of it."""
    layers_to_step: float | None = None
    """Sum of the layers over step_s, as found when captured, before any scaling."""
    work_deviation: float = 0.0
    """Relative standard deviation of the work of a sample, from which plans draw it; 0: all alike."""
    software: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Versions by name."""
    command: str = ""
    """What made it."""
    date: str = ""
    """Of the capture."""
    source: str = ""
    """Whose measurements an imported profile holds."""
    licence: str = ""
    """Under which terms."""
    attribution: str = ""
    """What these ask to be said."""
    notes: str = ""
    """For people."""
    doubt: str = ""
    """Why these times are not to be trusted, and what to do; empty where nothing speaks against them."""
    layers: tuple[Layer, ...]
    """In topological order; sorted here if they are not."""

    def __post_init__(self) -> None:
        require_count("batch_size", self.batch_size)
        require_name("dtype", self.dtype, DTYPE_BYTES)
        if self.step_s is not None:
            require_time("step_s", self.step_s)
        require_time("step_spread_s", self.step_spread_s)
        require_from_0("layers_to_step", self.layers_to_step or 0.0, MOST_COUNT)
        require_from_0("work_deviation", self.work_deviation, 100)
        require_layers(self.layers, self.batch_size)
        object.__setattr__(self, "layers", in_order(self.layers))

    @cached_property
    def index(self) -> Mapping[str, int]:
        """Position of each layer by name."""
        return {layer.name: i for i, layer in enumerate(self.layers)}

    @cached_property
    def consumers(self) -> tuple[tuple[int, ...], ...]:
        """For each layer, the positions of the layers that read its output."""
        positions: list[list[int]] = [[] for _ in self.layers]
        for i, layer in enumerate(self.layers):
            for name in dict.fromkeys(layer.inputs):
                positions[self.index[name]].append(i)
        return tuple(map(tuple, positions))

    @cached_property
    def alike(self) -> tuple[int, ...]:
        """For each layer, the first that is the same but for names, and so costs the same: blocks are repeated."""
        names = ("name", "inputs", "tied_to", "geometry")
        values = attrgetter(*(field.name for field in fields(Layer) if field.name not in names))
        return _first_alike((values(layer), _unnamed(layer.geometry)) for layer in self.layers)

    @cached_property
    def read_alike(self) -> tuple[int, ...]:
        """For each layer, the first whose output is as large and is read in the same way, whatever either costs."""
        regions = [
            (layer.kind, layer.output_shape, layer.output_bytes, layer.routing, _unnamed(layer.geometry))
            for layer in self.layers
        ]
        readings = (
            tuple((regions[reader], *self._reading(reader, layer)) for reader in readers)
            for layer, readers in zip(self.layers, self.consumers, strict=True)
        )
        return _first_alike(zip(regions, readings, strict=True))

    def _reading(self, reader: int, producer: Layer) -> tuple[bool, int]:
        """Where in what a layer reads the output of `producer` stands."""
        layer = self.layers[reader]
        before = layer.inputs[: layer.inputs.index(producer.name)]
        offset = sum(self.layers[self.index[name]].channels for name in before) if layer.kind == "concat" else 0
        return producer.name in layer.geometry.aligned_inputs, offset

    @cached_property
    def kept(self) -> Kept:
        """What others have worked out of these layers and keep for as long as the profile; by how many shards it is
        about."""
        return Kept(budget=1_000_000, largest=4096)

    @cached_property
    def _hash(self) -> int:
        return hash((self.model, self.device, self.batch_size, self.layers))

    def __hash__(self) -> int:
        """Found once: tables that searches keep by profile ask for it over and over."""
        return self._hash

    def __getstate__(self) -> dict[str, Any]:
        """Other processes work it out for themselves; texts have another hash there."""
        return {name: value for name, value in self.__dict__.items() if name not in ("kept", "_hash")}

    def element_bytes(self, position: int) -> float:
        """Bytes of one output element of the layer at `position`."""
        layer = self.layers[position]
        channels, height, width = layer.output_shape
        return layer.output_bytes / (self.batch_size * channels * height * width)

    @cached_property
    def measured_directions(self) -> frozenset[str]:
        """Along which of "batch" and "channels" any layer has scaling points that leave the other whole."""
        points = [point for layer in self.layers for point in layer.scaling if point.input_channel_fraction == 1]
        whole, others = self.batch_size, [point for point in points if point.channel_fraction < 1]
        batch = any(point.channel_fraction == 1 and point.batch_size != whole for point in points)
        channels = any(point.batch_size == whole for point in others)
        return frozenset(name for name, measured in (("batch", batch), ("channels", channels)) if measured)

    def batch_for(self, workers: int) -> int:
        """Samples of a step on `workers` devices when nobody says: the profile's batch on each, which is weak scaling.

        Engineers add devices to train on more samples at once, and a device keeps the size at which it was measured.
        """
        return self.batch_size * workers

    @property
    def layers_s(self) -> float:
        """Sum over layers of forward, backward and update seconds."""
        return ordered_sum(layer.forward_s + layer.backward_s + layer.update_s for layer in self.layers)

    @property
    def flops_per_sample(self) -> float:
        """Model FLOP of forward and backward, which takes twice the forward; recomputation does not count."""
        return 3 * sum(layer.flops for layer in self.layers) / self.batch_size

    @property
    def parameter_bytes(self) -> int:
        return sum(layer.parameter_bytes for layer in self.layers)


def _first_alike(keys: Iterable[Hashable]) -> tuple[int, ...]:
    """For each of `keys`, the position of the first that equals it."""
    first: dict[Hashable, int] = {}
    return tuple(first.setdefault(key, position) for position, key in enumerate(keys))


_unnamed = attrgetter(*(field.name for field in fields(Geometry) if field.name != "aligned_inputs"))
"""A geometry without names of layers."""
