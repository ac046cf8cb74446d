"""Seconds of an operator on a GPU: what its kernels take, and what software adds to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Literal

from simulator.errors import InputError, require, require_from_0, require_name
from simulator.language_models.accelerators import Accelerator
from simulator.language_models.block import ACCUMULATION_TRAFFIC, AttentionShape, BlockOperator, ProductShape
from simulator.language_models.kernels import (
    ATTENTION_SHARES,
    ELEMENT_BYTES,
    EXPERT_CALL_S,
    attention_seconds,
    product_seconds,
    scored_attention_seconds,
)

BACKWARD_TRAFFIC = 2 / 3
"""Of an operator's memory traffic, the part of its backward pass."""
SUMMED_BYTES = 8
"""Of an element of a sum in fp32, read and written."""
SCORES = "scores"
"""The attention that writes its scores to memory, as before FlashAttention."""
CASTS: Mapping[str, float] = {"bf16": 0.0, "fp8": 6.0, "fp8-block": 4.0, "mxfp8": 4.0}
"""Bytes per element of what products multiply, by their precision. A cast to 8 bits reads 2 and writes 1 in each of two
layouts, by rows and by columns; one scale for a whole tensor is known only once all of it has been read, another 2;
blocks (DeepSeek-V3, arXiv 2412.19437, section 3.3; OCP's MX) find theirs as they are cast. Products of a Blackwell read
either layout of a tensor with one scale, which is written once."""
IN_8_BITS = ("qkv", "output", "gate_up", "down")
"""Products of these operators; head, router and attention stay in 16 bits, as in Transformer Engine and torchao."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceModel:
    """What a training runtime makes of a GPU's kernels. Raises InputError on a share of 0 or less, unknown names."""

    matmul_efficiency: float = 1.0
    """Rate of matrix products over what `kernels` says of them: their neighbours take power, memory and processors."""
    precision: Literal["bf16", "fp8", "fp8-block", "mxfp8"] = "bf16"
    """Of the products of IN_8_BITS, one of CASTS; parameters, gradients and activations stay in 16 bits."""
    attention_kernel: Literal["flash-1", "flash-2", "fused", "scores"] = "fused"
    """One of `kernels.ATTENTION_SHARES`, or "scores"."""
    attention_efficiency: float = 1.0
    """Rate of the attention over what `kernels` says of this kernel."""
    sequence_first: bool = True
    """Whether activations are (sequence, batch, channel), as in Megatron-LM: attentions then change their layout."""
    fused_accumulation: bool = False
    """Whether weight gradients are added up by the products that make them, as in Megatron-LM, or scattered first, as
    in FSDP, and not by kernels of their own."""
    fused_experts: bool = False
    """Whether a host calls all experts of a device at once, and what scales their biases and fills their rows up to
    the blocks of products of 8 bits is part of these products: Transformer Engine's fused operations, which NeMo's
    recipes have from 26.06 on."""
    traffic_factor: float = 1.0
    """Memory traffic over what `block` counts."""
    memory_efficiency: float = 0.85
    """Share of the data sheet's memory bandwidth."""
    loss_bytes_per_logit: float = 50.0
    """Traffic of the loss, forward and backward: casts, the maximum, exponentials, their sum and the gradient."""

    def __post_init__(self) -> None:
        kernels = (*ATTENTION_SHARES, SCORES)
        require_name("attention kernel", self.attention_kernel, kernels)
        require_name("precision", self.precision, CASTS)
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, str | bool):
                continue
            require_from_0(f"device: {field.name}", value, 1e30)
            divides = field.name.endswith(("efficiency", "factor"))
            require(value > 0 or not divides, f"device: {field.name}", value, "it is above 0")

    @property
    def keeps_scores(self) -> bool:
        """Whether the attention's scores are kept for its backward pass."""
        return self.attention_kernel == SCORES

    def memory_bytes_per_s(self, gpu: Accelerator) -> float:
        """The bandwidth that kernels get of `gpu`'s memory."""
        return gpu.memory_bytes_per_s * gpu.memory_share * self.memory_efficiency


def operator_seconds(
    operator: BlockOperator, gpu: Accelerator, device: DeviceModel, parts: tuple[int, int] = (1, 1)
) -> tuple[float, float]:
    """(forward, backward) seconds of one operator without launches. Raises InputError where `gpu` has no 8 bits.

    parts: in how many parts of its rows a product makes its outputs, and the gradients of its inputs.
    """
    rate = device.memory_bytes_per_s(gpu)
    if operator.name not in IN_8_BITS:
        device = replace(device, precision="bf16")
    elif device.precision != "bf16" and not gpu.fp8_flops_per_s:
        raise InputError(f"precision is {device.precision}: {gpu.name} multiplies no numbers of 8 bits")
    forward_s, backward_s = _kernel_seconds(operator.shape, gpu, device, rate, parts)
    traffic_s = operator.traffic_bytes * device.traffic_factor / rate
    return forward_s + traffic_s * (1 - BACKWARD_TRAFFIC), backward_s + traffic_s * BACKWARD_TRAFFIC


def accumulation_seconds(parameters: int, gpu: Accelerator, device: DeviceModel) -> float:
    """Of adding a micro-batch's gradients to the sum of those before."""
    return 0.0 if device.fused_accumulation else parameters * ACCUMULATION_TRAFFIC / device.memory_bytes_per_s(gpu)


def _kernel_seconds(
    shape: ProductShape | AttentionShape | None,
    gpu: Accelerator,
    device: DeviceModel,
    rate: float,
    parts: tuple[int, int],
) -> tuple[float, float]:
    """Of a product: its input's gradient sums over its outputs, its weight's over its rows."""
    if isinstance(shape, ProductShape):
        rows, inputs, outputs, groups = shape.rows, shape.inputs, shape.outputs, shape.groups
        summed, eight = SUMMED_BYTES if device.fused_accumulation else ELEMENT_BYTES, device.precision != "bf16"
        if eight:
            share = gpu.sustained_share * gpu.fp8_gain
            gpu = replace(gpu, flops_per_s=gpu.fp8_flops_per_s, sustained_share=share)
        orders = (
            (rows, inputs, outputs, ELEMENT_BYTES, parts[0]),
            (rows, outputs, inputs, ELEMENT_BYTES, parts[1]),
            (inputs, rows, outputs, summed, 1),
        )
        forward_s, data_s, weights_s = (
            times
            * product_seconds(
                height / times,
                *order,
                gpu,
                rate,
                groups,
                element_bytes=size,
                operand_bytes=1 if eight else ELEMENT_BYTES,
                call_s=0.0 if groups == 1 or device.fused_experts else EXPERT_CALL_S,
            )
            / device.matmul_efficiency
            for height, *order, size, times in orders
        )
        once = device.precision == "fp8" and gpu.architecture == "blackwell"
        cast_s = (CASTS[device.precision] - once) * device.traffic_factor * groups / rate  # of an element
        return forward_s + cast_s * (rows + outputs) * inputs, data_s + weights_s + cast_s * rows * outputs
    if isinstance(shape, AttentionShape):
        sizes = (shape.sequences, shape.length, shape.heads, shape.width)
        if device.keeps_scores:
            forward_s, backward_s = scored_attention_seconds(*sizes, gpu, rate)
        else:
            forward_s, backward_s = attention_seconds(*sizes, gpu, device.attention_kernel)
        share = shape.share / device.attention_efficiency
        return forward_s * share, backward_s * share
    return 0.0, 0.0
