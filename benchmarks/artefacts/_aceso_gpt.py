"""GPT out of Aceso's tables: one block of operators, repeated, with points at fractions of the channels."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from benchmarks.artefacts._aceso_tables import OperatorRow, OperatorTable, all_reduce_curve, is_a_share, rounded
from simulator.curve import Curve
from simulator.errors import InputError
from simulator.workload import Geometry, Layer, ScalingPoint

BLOCKS = {"350M": 24, "1_3B": 24}
"""Layers of the GPT-3 models of these sizes (arXiv 2005.14165, table 2.1); the tables hold one."""
_ATTENTION = ("enc-attention-score", "enc-attention-softmax", "enc-attention-dropout", "enc-attention-context")
_BYTES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Split:
    """How tensor parallelism splits an operator, and which of its passes ends in an all-reduce of its hidden state."""

    by_input: bool = False
    forward_reduces: bool = False
    backward_reduces: bool = False


_SPLITS = {
    ("enc-attention-qkv", 0): _Split(backward_reduces=True),
    ("enc-attention-dense", 0): _Split(by_input=True, forward_reduces=True),
    ("enc-MLP-GEMM-1", 0): _Split(backward_reduces=True),
    ("enc-MLP-GEMM-2", 0): _Split(by_input=True, forward_reduces=True),
    ("enc-MLP-gelu", 0): _Split(),
    **{(name, 0): _Split() for name in _ATTENTION},
}
_BLOCK = (
    ("norm1", "layernorm", ("enc-1st-layernorm",), 1),
    ("qkv", "linear", ("enc-attention-qkv",), 3),
    ("attention", "attention", _ATTENTION, 1),
    ("out", "linear", ("enc-attention-dense",), 1),
    ("add1", "add", ("enc-post-attention-dropout",), 1),
    ("norm2", "layernorm", ("enc-2nd-layernorm",), 1),
    ("fc", "linear", ("enc-MLP-GEMM-1",), 4),
    ("gelu", "gelu", ("enc-MLP-gelu",), 4),
    ("proj", "linear", ("enc-MLP-GEMM-2",), 1),
    ("add2", "add", ("enc-post-MLP-dropout",), 1),
)
"""Layer, kind, its operators, and its output in hidden states."""


def gpt_layers(whole: Mapping[int, OperatorTable], split: Sequence[OperatorTable]) -> list[Layer]:
    """The network at the largest micro-batch. whole: tables of one device by micro-batch; split: those of more."""
    table = whole[max(whole)]
    blocks = BLOCKS.get(table.size)
    if blocks is None:
        raise InputError(f"{table.path}: the depth of a GPT of {table.size} is unknown; known: {', '.join(BLOCKS)}")
    gpt = _Gpt(whole=whole, split=split, curves={each.path.name: all_reduce_curve(each) for each in split})
    hidden, vocabulary = gpt.hidden, gpt.vocabulary
    layers = [gpt.layer("embedding", "embedding", ("encoder-embedding",), 1, ())]
    block = [gpt.layer(name, kind, operators, width, ()) for name, kind, operators, width in _BLOCK]
    entry = layers[0].name
    for number in range(blocks):
        for layer in block:
            reads: tuple[str, ...] = (layers[-1].name,)
            if layer.kind == "add":
                reads += (entry,)
                entry = f"blocks.{number}.{layer.name}"
            layers.append(replace(layer, name=f"blocks.{number}.{layer.name}", inputs=reads))
    layers.append(gpt.layer("norm", "layernorm", ("final-layernorm",), 1, (layers[-1].name,)))
    head = gpt.layer("head", "loss", ("gpt-post-process",), 0, ("norm",))
    flops = 2.0 * table.samples * gpt.positions * hidden * vocabulary
    return [*layers, replace(head, parameter_bytes=0, flops=flops)]  # its weights are the embedding's


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gpt:
    """The tables of one network, and what their sizes say of it."""

    whole: Mapping[int, OperatorTable]
    split: Sequence[OperatorTable]
    curves: Mapping[str, Curve | None]

    @property
    def table(self) -> OperatorTable:
        return self.whole[max(self.whole)]

    @property
    def hidden(self) -> int:
        """Channels, from the weights of the square layer behind the attention."""
        return max(round(math.sqrt(self._row("enc-attention-dense").weight_bytes / _BYTES)), 1)

    @property
    def positions(self) -> int:
        return max(round(self._row("final-layernorm").output_bytes / _BYTES / self.table.samples / self.hidden), 1)

    @property
    def heads(self) -> int:
        scores = self._row("enc-attention-softmax").activation_bytes / _BYTES
        return max(round(scores / self.table.samples / self.positions**2), 1)

    @property
    def vocabulary(self) -> int:
        return max(round(self._row("gpt-post-process").weight_bytes / _BYTES / self.hidden), 1)

    def layer(self, name: str, kind: str, operators: Sequence[str], width: int, inputs: tuple[str, ...]) -> Layer:
        """One layer; `width` is its output in hidden states, 0 for the loss."""
        forward_s, backward_s = self.table.seconds(operators)
        rows = [self._row(operator) for operator in operators]
        channels = max(width * self.hidden, 1)
        positions = self.positions if width else 1
        samples = self.table.samples
        weights = sum(row.weight_bytes for row in rows)
        return Layer(
            name=name,
            kind=kind,
            inputs=inputs,
            output_shape=(channels, positions, 1),
            forward_s=rounded(forward_s),
            backward_s=rounded(backward_s),
            parameter_bytes=round(weights),
            output_bytes=_BYTES * samples * positions * channels,
            saved_bytes=round(sum(row.activation_bytes for row in rows)),
            flops=self._flops(kind, weights),
            geometry=self._geometry(kind),
            scaling=tuple(self._points(operators)),
        )

    def _row(self, operator: str) -> OperatorRow:
        self.table.seconds([operator])
        return self.table.rows[operator]

    def _flops(self, kind: str, weight_bytes: float) -> float:
        tokens = self.table.samples * self.positions
        if kind == "attention":
            return 4.0 * tokens * self.positions * self.hidden
        return 2.0 * tokens * round(weight_bytes / _BYTES) if kind == "linear" else 0.0

    def _geometry(self, kind: str) -> Geometry:
        if kind == "attention":
            return Geometry(kernel=None, groups=self.heads, mixes_channels=True)
        return Geometry(mixes_channels=kind in ("linear", "layernorm", "embedding", "loss"))

    def _points(self, operators: Sequence[str]) -> Iterator[ScalingPoint]:
        for samples in sorted(self.whole)[:-1]:
            yield self.whole[samples].point(operators)
        for table in sorted(self.split, key=lambda each: (each.samples, each.devices, each.variant)):
            if table.samples in self.whole and all((name, table.variant) in _SPLITS for name in operators):
                yield from self._split_point(table, operators)

    def _split_point(self, table: OperatorTable, operators: Sequence[str]) -> Iterator[ScalingPoint]:
        """The share of one device, without the all-reduces that its row holds."""
        split = _SPLITS[operators[0], table.variant]
        curve = self.curves[table.path.name]
        if curve is None and (split.forward_reduces or split.backward_reduces):
            return
        state_bytes = _BYTES * table.samples * self.positions * self.hidden
        reduce_s = curve.seconds(state_bytes) if curve else 0.0
        forward_s, backward_s = table.seconds(operators)
        forward_s -= reduce_s * split.forward_reduces
        backward_s -= reduce_s * split.backward_reduces
        if is_a_share((forward_s, backward_s), self.whole[table.samples].seconds(operators), table.devices):
            fraction = 1 / table.devices
            yield ScalingPoint(
                batch_size=table.samples,
                channel_fraction=1.0 if split.by_input else fraction,
                input_channel_fraction=fraction if split.by_input else 1.0,
                forward_s=rounded(forward_s),
                backward_s=rounded(backward_s),
            )
