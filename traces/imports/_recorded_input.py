"""What a recording with shapes says of the network's input: batch size, one sample's shape, precision."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from simulator.errors import InputError
from traces.imports._imported import ImportOptions
from traces.imports._recording import Recording, Span
from traces.imports._structure import DTYPES
from traces.zoo.networks import Network, load

_TYPES = {"float": "float32", "c10::BFloat16": "bfloat16", "c10::Half": "float16", "double": "float64"}
_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8}
_FIRST = ("aten::conv", "aten::linear", "aten::embedding", "aten::addmm", "aten::matmul", "aten::_convolution")
"""How a network begins: the first of these reads the training data."""


def recorded_input(recordings: Sequence[Recording], options: ImportOptions) -> tuple[Network, list[int], str, int]:
    """The network, the batch size of every recording, its dtype, and how many times wider its parameters are.

    Options come first. Raises InputError for what neither they nor the recordings say.
    """
    shape, vocabulary = options.input_shape, options.vocabulary
    if ":" in options.model and shape is None:
        shape, vocabulary = _sample(recordings[0], vocabulary)
    network = load(options.model, shape, options.classes, vocabulary)
    sizes = []
    for number, recording in enumerate(recordings):
        size = options.batch_size(number, len(recordings)) or _batch_size(recording, network)
        if size is None:
            raise InputError(
                f"batch_size is missing: {recording.path} was recorded without record_shapes=True; give --batch-size"
            )
        sizes.append(size)
    dtype, wider = _dtype(recordings[0])
    dtype = options.dtype or dtype
    if dtype not in DTYPES:
        raise InputError(f"dtype is {dtype!r}: it is one of {', '.join(DTYPES)}")
    return network, sizes, dtype, wider


def _sample(recording: Recording, vocabulary: int | None) -> tuple[tuple[int, ...], int | None]:
    """Shape of one sample, and the vocabulary where the network begins with an embedding."""
    first = next(_beginning(recording), None)
    shapes = _shapes(first) if first is not None else []
    if first is None or not shapes:
        raise InputError(
            f"input_shape is missing: {recording.path} was recorded without record_shapes=True; give --input-shape"
        )
    if first.name == "aten::embedding" and len(shapes) > 1:
        return shapes[1][1:], vocabulary or shapes[0][0]
    return shapes[0][1:], vocabulary


def _batch_size(recording: Recording, network: Network) -> int | None:
    """The first dimension of the first tensor that is made of samples; None where no shapes were recorded."""
    for span in _beginning(recording):
        for shape in _shapes(span):
            if shape[1:] == network.input_shape and 0 < shape[0] <= 1 << 24:
                return shape[0]
    return None


def _dtype(recording: Recording) -> tuple[str, int]:
    """The type of a multiplication's operands, and of its parameters over it: more than 1 under mixed precision."""
    for span in _beginning(recording):
        types = [_TYPES[name] for name in _types(span) if name in _TYPES]
        if not types or span.name == "aten::embedding":
            continue
        inner = [
            _TYPES[_types(other)[0]]
            for other in recording.spans
            if other.parent is span and _types(other) and _types(other)[0] in _TYPES
        ]
        narrow = min([*types, *inner], key=lambda name: _BYTES[name])
        return narrow, max(_BYTES[types[-1]] // _BYTES[narrow], 1)
    return "float32", 1


def _beginning(recording: Recording) -> Iterator[Span]:
    return (span for span in recording.spans if span.name.startswith(_FIRST))


def _shapes(span: Span) -> list[tuple[int, ...]]:
    dims = span.arguments.get("Input Dims")
    shapes = [tuple(shape) for shape in dims if isinstance(shape, list) and shape] if isinstance(dims, list) else []
    return [shape for shape in shapes if all(type(side) is int and side > 0 for side in shape)]


def _types(span: Span) -> list[str]:
    types: Any = span.arguments.get("Input type")
    return [name for name in types if isinstance(name, str)] if isinstance(types, list) else []
