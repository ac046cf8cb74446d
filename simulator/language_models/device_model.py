"""Seconds of an operator on a GPU: its data sheet, and what kernels reach of it."""

from __future__ import annotations

from dataclasses import dataclass, fields

from simulator.errors import require, require_from_0
from simulator.language_models.accelerators import Accelerator
from simulator.language_models.block import ACCUMULATION_TRAFFIC, BlockOperator

BACKWARD_TRAFFIC = 2 / 3
"""Of an operator's memory traffic, the part of its backward pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceModel:
    """What the kernels of a training runtime reach of a GPU's data sheet. Raises InputError on a share of 0 or less."""

    __pydantic_config__ = {"extra": "forbid"}

    matmul_efficiency: float = 0.6
    """Share of the dense 16-bit peak that matrix products reach."""
    attention_efficiency: float = 0.34
    """The same of the attention kernel; half of its products, under a causal mask, are not computed and counted."""
    matmul_gap_s: float = 1e-5
    """Seconds of every matrix product that do not shrink with it: waves of blocks that leave a device partly idle."""
    traffic_factor: float = 1.3
    """Memory traffic over what `block` counts."""
    memory_efficiency: float = 0.85
    """Share of the data sheet's memory bandwidth."""
    loss_bytes_per_logit: float = 50.0
    """Traffic of the loss, forward and backward: casts, the maximum, exponentials, their sum and the gradient."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            require_from_0(f"device: {field.name}", value, 1e30)
            divides = field.name.endswith("efficiency")
            require(value > 0 or not divides, f"device: {field.name}", value, "it is above 0")

    def memory_bytes_per_s(self, gpu: Accelerator) -> float:
        """The bandwidth that kernels get of `gpu`'s memory."""
        return gpu.memory_bytes_per_s * self.memory_efficiency


def operator_seconds(operator: BlockOperator, gpu: Accelerator, device: DeviceModel) -> tuple[float, float]:
    """(forward, backward) seconds of one operator without launches."""
    share = device.attention_efficiency if operator.kind == "attention" else device.matmul_efficiency
    rate = device.memory_bytes_per_s(gpu)
    forward_s = operator.flops / (gpu.flops_per_s * share)
    gaps_s = operator.products * device.matmul_gap_s
    traffic_s = operator.traffic_bytes * device.traffic_factor / rate
    accumulation_s = operator.parameters * ACCUMULATION_TRAFFIC / rate
    backward_s = operator.backward * forward_s + 2 * gaps_s + traffic_s * BACKWARD_TRAFFIC + accumulation_s
    return forward_s + gaps_s + traffic_s * (1 - BACKWARD_TRAFFIC), backward_s
