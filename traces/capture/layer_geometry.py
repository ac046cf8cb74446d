"""What kind of layer a step is, and what part of its input a part of its output needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from simulator.workload import Geometry
from traces.capture.checkpointed_call import CheckpointedCall
from traces.capture.fx_steps import TracedStep, channel_axis, tensors
from traces.zoo.blocks import Add, Attention, First, Positions, QueryKeyValueAttention, Tokens

Pair = tuple[int, int]

EVERYTHING = Geometry(kernel=None, mixes_channels=True)
"""The safe geometry of an unknown layer: each output needs the whole input."""

_ELEMENTWISE_MODULES = (
    Add,
    Positions,
    nn.modules.batchnorm._BatchNorm,
    nn.modules.dropout._DropoutNd,
    nn.Identity,
    *(nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Mish),
    *(nn.Sigmoid, nn.Tanh, nn.Hardswish, nn.Hardsigmoid, nn.Hardtanh),
)
_ELEMENTWISE_FUNCTIONS = (
    *("add", "iadd", "sub", "isub", "mul", "imul", "truediv", "itruediv", "neg", "pow", "relu", "relu_", "relu6"),
    *("leaky_relu", "elu", "gelu", "silu", "mish", "sigmoid", "tanh", "hardswish", "hardsigmoid", "hardtanh"),
    *("dropout", "dropout1d", "dropout2d", "clone", "contiguous", "float", "to"),
)
CHANNELS_SECOND = (
    *(nn.Conv1d, nn.ConvTranspose1d, nn.BatchNorm1d, nn.InstanceNorm1d, nn.GroupNorm),
    *(nn.MaxPool1d, nn.AvgPool1d, nn.AdaptiveAvgPool1d, nn.AdaptiveMaxPool1d),
)
"""Modules whose sequences are (sample, channel, position)."""
CHANNELS_LAST = (
    nn.Linear,
    nn.Embedding,
    nn.LayerNorm,
    nn.RMSNorm,
    nn.RNNBase,
    nn.MultiheadAttention,
    Attention,
    QueryKeyValueAttention,
)
"""Modules whose sequences are (sample, position, channel)."""
_POOL_ARGUMENTS = {
    "max_pool2d": ("input", "kernel_size", "stride", "padding", "dilation"),
    "avg_pool2d": ("input", "kernel_size", "stride", "padding"),
}


def describe(step: TracedStep, args: Any, kwargs: Mapping[str, Any], result: Any) -> tuple[str, Geometry]:
    """The kind and geometry of a step, from the arguments that it was called with and what it returned."""
    inputs, output = list(tensors((args, kwargs))), next(tensors(result))
    module = step.module
    if isinstance(step.call, CheckpointedCall):
        return step.call.__name__.lower(), EVERYTHING
    kind = type(module).__name__.lower() if module is not None else step.name.rpartition(".")[2].partition("#")[0]
    if kind in ("concat", "cat", "concatenate") and _joins_channels(inputs, output):
        return "concat", Geometry()
    if kind in ("flatten", "view", "reshape", "squeeze") and _flattens(inputs[0], output):
        return "flatten", Geometry()
    if module is not None:
        return kind, _of_module(module, inputs, output)
    if step.functions:
        return kind, Geometry() if all(name in _ELEMENTWISE_FUNCTIONS for name in step.functions) else EVERYTHING
    named = {**dict(zip(_POOL_ARGUMENTS.get(kind, ()), args, strict=False)), **kwargs}
    return kind, _of_function(kind, named, inputs, output)


def keeps_axes(step: TracedStep) -> bool:
    """Whether what a step makes has its axes in the order of what it reads."""
    functions = step.functions or (step.name.rpartition(".")[2].partition("#")[0],)
    if step.module is not None:
        return isinstance(step.module, (*_ELEMENTWISE_MODULES, nn.Upsample))
    return all(name in (*_ELEMENTWISE_FUNCTIONS, "cat", "interpolate", "getitem") for name in functions)


def _joins_channels(inputs: list[Tensor], output: Tensor) -> bool:
    """Whether the output has as many channels as all inputs together."""
    axis = channel_axis(output)
    return output.dim() > 1 and output.shape[axis] == sum(tensor.shape[axis] for tensor in inputs)


def _flattens(value: Tensor, output: Tensor) -> bool:
    """Whether channels, height and width of one sample become channels."""
    return value.dim() in (2, 4) and output.dim() == 2 and value[0].numel() == output.shape[1]


def _of_module(module: nn.Module, inputs: list[Tensor], output: Tensor) -> Geometry:
    match module:
        case nn.Conv1d() | nn.Conv2d():
            return _of_convolution(module)
        case nn.Conv3d() | nn.ConvTranspose1d() | nn.ConvTranspose2d() | nn.ConvTranspose3d():
            return Geometry(kernel=None, groups=module.groups, mixes_channels=True)
        case nn.Linear() | nn.Embedding() | nn.LayerNorm() | nn.RMSNorm():
            return Geometry(mixes_channels=True)
        case nn.Upsample():
            return Geometry(kernel=None)
        case nn.MaxPool2d():
            return _window(module.kernel_size, module.stride, module.padding, module.dilation)
        case nn.AvgPool2d():
            return _window(module.kernel_size, module.stride, module.padding)
        case nn.AdaptiveAvgPool2d() | nn.AdaptiveMaxPool2d():
            return _adaptive(inputs[0], output)
        case Tokens() | First():
            return Geometry(kernel=None)
        case Attention() | QueryKeyValueAttention():
            return Geometry(kernel=None, groups=module.heads, mixes_channels=True)
        case nn.GroupNorm():
            return Geometry(kernel=None, groups=module.num_groups, mixes_channels=True)
    if isinstance(module, _ELEMENTWISE_MODULES):
        return Geometry()
    return _by_name(module, inputs, output)


def _by_name(module: nn.Module, inputs: list[Tensor], output: Tensor) -> Geometry:
    """Of modules that libraries of transformers write themselves and name alike."""
    name = type(module).__name__.lower()
    if len(inputs) != 1 or output.dim() != 3:
        return EVERYTHING
    if inputs[0].shape == output.shape and name.endswith(("rmsnorm", "layernorm")):
        return Geometry(mixes_channels=True)
    if inputs[0].shape == output.shape and name.endswith(("gelu", "geluactivation", "siluactivation")):
        return Geometry()
    return Geometry(mixes_channels=True) if is_transposed_linear(module) else EVERYTHING


def is_transposed_linear(module: nn.Module) -> bool:
    """Whether it is GPT-2's linear layer, whose weight is (inputs, outputs)."""
    return type(module).__name__ == "Conv1D" and hasattr(module, "nf") and hasattr(module, "nx")


def _of_function(kind: str, named: Mapping[str, Any], inputs: list[Tensor], output: Tensor) -> Geometry:
    if kind in _ELEMENTWISE_FUNCTIONS:
        return Geometry()
    if kind in _POOL_ARGUMENTS:
        stride, padding, dilation = named.get("stride"), named.get("padding", 0), named.get("dilation", 1)
        return _window(named["kernel_size"], stride, padding, dilation)
    if kind in ("adaptive_avg_pool2d", "adaptive_max_pool2d"):
        return _adaptive(inputs[0], output)
    if kind in ("linear", "layer_norm", "embedding"):
        return Geometry(mixes_channels=True)
    over_plane = kind == "mean" and inputs[0].dim() == 4 and inputs[0].shape[:2] == output.shape[:2]
    if kind == "scaled_dot_product_attention" or over_plane:
        return Geometry(kernel=None)
    return EVERYTHING


def _of_convolution(module: _ConvNd) -> Geometry:
    """Of a convolution over a plane, or over a sequence, which is a plane one wide."""
    kernel, dilation = _pair(module.kernel_size, 1), _pair(module.dilation, 1)
    if module.padding == "same":
        padding = (dilation[0] * (kernel[0] - 1) // 2, dilation[1] * (kernel[1] - 1) // 2)
    else:
        padding = (0, 0) if isinstance(module.padding, str) else _pair(module.padding, 0)
    return Geometry(
        kernel=kernel,
        stride=_pair(module.stride, 1),
        padding=padding,
        dilation=dilation,
        groups=module.groups,
        mixes_channels=True,
    )


def _window(kernel: Any, stride: Any, padding: Any, dilation: Any = 1) -> Geometry:
    """Of a pooling; without a stride, its windows lie side by side."""
    stride = kernel if stride is None or stride == [] else stride
    return Geometry(kernel=_pair(kernel), stride=_pair(stride), padding=_pair(padding), dilation=_pair(dilation))


def _adaptive(value: Tensor, output: Tensor) -> Geometry:
    """Of an adaptive pooling: windows side by side where the sides divide, otherwise the whole plane."""
    before, after = _pair(value.shape[-2:]), _pair(output.shape[-2:])
    if after == (1, 1) or before[0] % after[0] or before[1] % after[1]:
        return Geometry(kernel=None)
    side = (before[0] // after[0], before[1] // after[1])
    return Geometry(kernel=side, stride=side)


def _pair(value: Any, lacking: int | None = None) -> Pair:
    """(height, width) from one number for both, or from two; `lacking` is the width of a sequence's."""
    if isinstance(value, int):
        return value, value
    height, width = value if len(value) == 2 else (value[0], value[0] if lacking is None else lacking)
    return int(height), int(width)
