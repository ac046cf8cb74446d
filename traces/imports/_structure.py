"""What a network's layers are, found without data and without a GPU: names, graph, shapes, bytes, geometry, flops.

The network is built and run once on torch's meta device, where tensors have shapes and no memory. Two of its habits
differ from a GPU's and are mended here or in the survey: storage is told apart by object, since all data lie at
address 0, and attention is given the fused kernel, since the meta device takes the one that stores the whole matrix of
scores. A second run under torch's profiler says which operators each layer calls, by the names that traces use.

What its input is, batch size, one sample's shape and precision, a recording with shapes says.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from simulator.errors import InputError
from simulator.workload import DTYPE_BYTES, Layer
from traces.capture.fx_steps import TracedStep, aside, beginning, outputs, ready, release, trace
from traces.capture.layer_survey import survey
from traces.capture.measurement_rounds import trained_on
from traces.imports._imported import ImportOptions
from traces.imports._recording import Recording, Span
from traces.zoo.networks import Network, load
from traces.zoo.own_network import Data, draw

DTYPES = {
    "float32": torch.float32,
    "tf32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float64": torch.float64,
}
_MARK = "shardscope layer "
Shape = tuple[int, ...]
_TYPES = {"float": "float32", "c10::BFloat16": "bfloat16", "c10::Half": "float16", "double": "float64"}
_FIRST = ("aten::conv", "aten::linear", "aten::embedding", "aten::addmm", "aten::matmul", "aten::_convolution")
"""How a network begins: the first of these reads the training data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One operator that a layer calls: its kind, the layer's position, and the shapes of the tensors that it reads."""

    kind: str
    layer: int
    shapes: tuple[Shape, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Structure:
    """The layers of a network with its loss, without times, and the operators that they call, in execution order."""

    layers: tuple[Layer, ...]
    calls: tuple[Call, ...]


def structure(network: Network, batch_size: int, dtype: str) -> Structure:
    """The structure of a network for `batch_size` samples of `dtype`. Raises InputError when it cannot be run."""
    device = torch.device("meta")
    try:
        trained = trained_on(network, device, DTYPES[dtype])
        inputs = draw(network, batch_size, device, DTYPES[dtype])
        steps = trace(trained)
        with FusedAttention():
            surveyed = survey(steps, inputs, [*trained.parameters(), *trained.buffers()], ())
        return Structure(layers=tuple(surveyed.layers), calls=tuple(_calls(steps, inputs, surveyed.layer_of)))
    except InputError:
        raise
    except Exception as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise InputError(
            f"model: it does not run on the meta device for {batch_size} samples of {network.input_shape} ({reason}); "
            "see that it builds and reads tensors of that shape without looking at their values"
        ) from None


def kind_of(operator: str) -> str:
    """The kind of an operator of a trace: without its namespace, in place or not."""
    kind = operator.removeprefix("aten::")
    return kind[:-1] if kind.endswith("_") and not kind.endswith("__") else kind


def _calls(steps: Sequence[TracedStep], inputs: Data, layer_of: dict[Any, int]) -> list[Call]:
    """The outermost operators of every layer, as torch's profiler records them."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # otherwise the profiler says on stderr that it starts and stops
    with torch.autograd.profiler.profile(record_shapes=True) as recorded:
        _run(steps, inputs, layer_of)
    calls = []
    for event in recorded.function_events or ():
        parent = event.cpu_parent
        if parent is not None and parent.name.startswith(_MARK):
            shapes = tuple(tuple(shape) for shape in event.input_shapes if shape)
            layer = int(parent.name.removeprefix(_MARK))
            calls.append((event.time_range.start, Call(kind=kind_of(event.name), layer=layer, shapes=shapes)))
    return [call for _, call in sorted(calls, key=lambda each: each[0])]


def _run(steps: Sequence[TracedStep], inputs: Data, layer_of: dict[Any, int]) -> None:
    environment = beginning(steps, inputs)
    for step in steps:
        layer = layer_of.get(step.node)
        if layer is None:
            environment[step.node] = aside(step, environment)
            continue
        reads = ready(step, environment)
        with torch.profiler.record_function(f"{_MARK}{layer}"):
            result = step.call(*reads.args, **reads.kwargs)
        environment[step.node], _ = outputs(result, layer)
        release(step, environment)


class FusedAttention(TorchFunctionMode):
    """Attention without a mask keeps what a fused kernel keeps: queries, keys, values, the output and its norms."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = dict(kwargs or {})
        if func is functional.scaled_dot_product_attention and len(args) == 3 and set(options) <= {"is_causal"}:
            query, key, value = args
            kernel = torch.ops.aten._scaled_dot_product_flash_attention
            return kernel(query, key, value, 0.0, options.get("is_causal", False))[0]
        return func(*args, **options)


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
        narrow = min([*types, *inner], key=lambda name: DTYPE_BYTES[name])
        return narrow, max(DTYPE_BYTES[types[-1]] // DTYPE_BYTES[narrow], 1)
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
