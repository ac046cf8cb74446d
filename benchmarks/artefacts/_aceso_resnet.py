"""Wide-ResNet out of Aceso's tables: a chain of operators through which the skip connections travel in the sizes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from benchmarks.artefacts._aceso_tables import MIB, OperatorTable, all_gathers, all_reduce_curve, is_a_share, rounded
from simulator.curve import Curve
from simulator.errors import InputError
from simulator.workload import Geometry, Layer, ScalingPoint
from traces.imports._imported import shown

_BYTES = 4
_SIDE = 224
_OPERATOR = re.compile(r"block-(\d)-(\d+)-(\w+)")


def resnet_layers(whole: Mapping[int, OperatorTable], split: Sequence[OperatorTable]) -> list[Layer]:
    """The network at the largest micro-batch. whole: tables of one device by micro-batch; split: those of more."""
    table = whole[max(whole)]
    shares = [_Shares(table=each, whole=whole[each.samples]) for each in split if each.samples in whole]
    layers: list[Layer] = []
    entry, skip_bytes, side = "", 0.0, _SIDE
    for name, row in table.rows.items():
        match = _OPERATOR.fullmatch(name)
        part = match.group(3) if match else name
        kind = _kind(part, row.weight_bytes)
        if match and part == "conv1":
            entry, skip_bytes = layers[-1].name, row.input_bytes
        joins = part == "downsample"
        stride = 2 if part == "maxpool" or name == "conv1" or _halves(match) else 1
        side = 1 if part in ("avgpool", "fc") else side if joins else max(side // stride, 1)
        carried = skip_bytes if match and part in ("conv1", "bn1", "conv2", "bn2", "conv3", "bn3") else 0.0
        output_bytes = row.output_bytes - carried
        channels = round(output_bytes / _BYTES / table.samples / side**2)
        if channels < 1:
            raise InputError(
                f"{table.path}: operator {shown(name)} puts out {output_bytes:.0f} bytes: less than a channel"
            )
        shape = (channels, side, side)
        inputs = (layers[-1].name, entry) if joins else (layers[-1].name,) if layers else ()
        outputs = math.prod(shape) * table.samples
        layers.append(
            Layer(
                name=name,
                kind=kind,
                inputs=inputs,
                output_shape=shape,
                forward_s=rounded(row.forward_s),
                backward_s=rounded(row.backward_s),
                parameter_bytes=round(row.weight_bytes),
                output_bytes=outputs * _BYTES,
                saved_bytes=round(row.activation_bytes),
                flops=_flops(kind, row.weight_bytes, channels, outputs),
                geometry=_geometry(part, kind, stride),
                scaling=(
                    *(whole[samples].point([name]) for samples in sorted(whole)[:-1]),
                    *(point for each in shares for point in each.points(name, shape, _elements_read(layers, inputs))),
                ),
            )
        )
    return layers


@dataclass(frozen=True)
class _Shares:
    """The table of several devices beside that of one, at the same micro-batch.

    A convolution is split by its output channels: each device makes some of them, forward gathers all, backward sums
    the gradient of what was read. The tables beside say how long these take, and it is taken off.
    """

    table: OperatorTable
    whole: OperatorTable

    @cached_property
    def gathers(self) -> Mapping[int, float]:
        return all_gathers(self.table)

    @cached_property
    def reduces(self) -> Curve | None:
        return all_reduce_curve(self.table)

    def points(self, name: str, shape: tuple[int, int, int], read: float) -> Iterator[ScalingPoint]:
        """The point of an operator, if it is split; `read`: elements of a sample that it reads, 0 of training data."""
        devices, samples, curve = self.table.devices, self.table.samples, self.reduces
        rows = self.table.rows.get(name), self.whole.rows.get(name)
        if self.table.variant or curve is None or rows[0] is None or rows[1] is None:
            return
        gather_s = self.gathers.get(int(math.prod(shape) * samples * _BYTES / devices / MIB))
        if gather_s is None or rows[0].weight_bytes > 0.75 * rows[1].weight_bytes:
            return
        reduce_s = curve.seconds(read * samples * _BYTES) if read else 0.0
        seconds = rows[0].forward_s - gather_s, rows[0].backward_s - reduce_s
        if is_a_share(seconds, self.whole.seconds([name]), devices):
            forward_s, backward_s = map(rounded, seconds)
            yield ScalingPoint(
                batch_size=samples, channel_fraction=1 / devices, forward_s=forward_s, backward_s=backward_s
            )


def _elements_read(layers: Sequence[Layer], inputs: Sequence[str]) -> float:
    """Elements of a sample that a layer's gradient has: of the input that a convolution reads, the last named."""
    shapes = {layer.name: layer.output_shape for layer in layers}
    return math.prod(shapes[inputs[-1]]) if inputs else 0.0


def _halves(match: re.Match[str] | None) -> bool:
    """The 3x3 convolution of the first block of a stage but the first halves the sides."""
    return match is not None and match.group(3) == "conv2" and match.group(2) == "0" and match.group(1) != "0"


def _kind(part: str, weight_bytes: float) -> str:
    if part == "downsample":
        return "downsample" if weight_bytes else "add"
    kinds = {"conv": "conv2d", "bn": "batchnorm2d", "relu": "relu", "maxpool": "maxpool2d", "avgpool": "avgpool2d"}
    return next((kind for prefix, kind in kinds.items() if part.startswith(prefix)), "linear")


def _flops(kind: str, weight_bytes: float, channels: int, outputs: int) -> float:
    """Two per multiply-add: every output takes the weights of its channel."""
    multiplies = kind in ("conv2d", "linear", "downsample")
    return 2.0 * outputs * round(weight_bytes / _BYTES / channels) if multiplies else 0.0


def _geometry(part: str, kind: str, stride: int) -> Geometry:
    if kind in ("avgpool2d", "linear"):
        return Geometry(kernel=None, mixes_channels=kind == "linear")
    side = {"conv2": 3, "maxpool": 3}.get(part, 7 if part == "conv1" and stride == 2 else 1)
    return Geometry(
        kernel=(side, side),
        stride=(stride, stride),
        padding=(side // 2, side // 2),
        mixes_channels=kind in ("conv2d", "downsample"),
    )
