"""What a network's layers are, found without data and without a GPU: names, graph, shapes, bytes, geometry, flops.

The network is built and run once on torch's meta device, where tensors have shapes and no memory. Two of its habits
differ from a GPU's and are mended here or in the survey: storage is told apart by object, since all data lie at
address 0, and attention is given the fused kernel, since the meta device takes the one that stores the whole matrix of
scores. A second run under torch's profiler says which operators each layer calls, by the names that traces use.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from simulator.errors import InputError
from simulator.workload import Layer
from traces.capture.fx_steps import TracedStep, alias, aside, beginning, outputs, ready, release, trace
from traces.capture.layer_survey import survey
from traces.capture.measurement_rounds import trained_on
from traces.capture.network_inputs import Data, draw
from traces.zoo.networks import Network

DTYPES = {
    "float32": torch.float32,
    "tf32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float64": torch.float64,
}
_MARK = "shardscope layer "
Shape = tuple[int, ...]


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
            calls.append((event.time_range.start, Call(kind=kind_of(event.name), layer=_layer(parent), shapes=shapes)))
    return [call for _, call in sorted(calls, key=lambda each: each[0])]


def _layer(mark: Any) -> int:
    return int(mark.name.removeprefix(_MARK))


def _run(steps: Sequence[TracedStep], inputs: Data, layer_of: dict[Any, int]) -> None:
    environment = beginning(steps, inputs)
    for step in steps:
        layer = layer_of.get(step.node)
        if layer is None:
            environment[step.node] = aside(step, environment)
            continue
        value = alias(step, environment)
        if value is None:
            reads = ready(step, environment)
            with torch.profiler.record_function(f"{_MARK}{layer}"):
                result = step.call(*reads.args, **reads.kwargs)
            value, _ = outputs(result, layer)
        environment[step.node] = value
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
