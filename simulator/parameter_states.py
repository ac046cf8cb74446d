"""Which states of a parameter its users share out among themselves: ZeRO and FSDP."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.errors import InputError, UnknownNameError, require
from simulator.workload import DTYPE_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterStates:
    """Which of a parameter's states its users share out among themselves, as the stages of ZeRO. Raises InputError."""

    stage: int = 0
    """0 none, 1 the optimizer's, 2 gradients too, 3 parameters too (Rajbhandari et al., SC 2020)."""
    group: int = 0
    """So many consecutive users share; 0: all. Groups of fewer are replicas of each other, as in hybrid FSDP."""
    each_microbatch: bool = False
    """From stage 2 on, gradients are summed after every micro-batch, not after the last alone."""
    gradient_dtype: str = ""
    """Precision in which gradients are kept and summed; empty: the profile's."""
    keep_gathered: bool = False
    """In stage 3, parameters gathered for the forward pass stay until the backward pass."""
    prefetch: int = 1
    """In stage 3, so many gathers run ahead of the computation."""

    def __post_init__(self) -> None:
        require(self.stage in (0, 1, 2, 3), "stage", self.stage, "it is 0, 1, 2 or 3")
        require(self.group >= 0, "group", self.group, "it is at least 0 (0: all users of a parameter)")
        require(self.prefetch >= 0, "prefetch", self.prefetch, "it is at least 0")
        if self.gradient_dtype and self.gradient_dtype not in DTYPE_BYTES:
            raise UnknownNameError.of("gradient_dtype", self.gradient_dtype, DTYPE_BYTES)
        if self.each_microbatch:
            require(self.stage >= 2, "stage", self.stage, "each_microbatch takes stage 2 or 3")
        if self.keep_gathered:
            require(self.stage == 3, "stage", self.stage, "keep_gathered takes stage 3")

    @property
    def words(self) -> str:
        """For people, such as "ZeRO-3 in groups of 8"."""
        return f"ZeRO-{self.stage}{f' in groups of {self.group}' if self.group else ''}"

    def shard_groups(self, users: tuple[int, ...]) -> list[tuple[int, ...]]:
        """The groups of devices that share the states of one parameter. Raises InputError on unequal groups."""
        size = self.shares(users)
        return [users[first : first + size] for first in range(0, len(users), size)]

    def gradient_ratio(self, dtype: str) -> float:
        """Bytes of a gradient per byte of its parameter, whose precision is `dtype`."""
        return DTYPE_BYTES[self.gradient_dtype or dtype] / DTYPE_BYTES[dtype]

    def shares(self, users: tuple[int, ...]) -> int:
        """Among how many devices each state is shared out. Raises InputError on unequal groups."""
        if self.stage == 0 or len(users) == 1:
            return 1
        size = self.group or len(users)
        if len(users) % size:
            raise InputError(
                f"states: groups of {size} devices do not divide the {len(users)} that use a parameter; "
                f"use a group of a divisor of {len(users)}"
            )
        return size


REPLICATED = ParameterStates()
"""Every user of a parameter holds all of its states."""
