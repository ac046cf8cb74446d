"""How a decoder is spread: degrees, ZeRO stage, recomputation and micro-batches."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.errors import require

DEGREES = ("data", "context", "tensor", "pipeline", "expert")
RECOMPUTATION = ("none", "selective", "full")
"""What a search tries, from the least recomputation to the most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingGrid:
    """data x context x tensor x pipeline devices; neighbours are of one tensor group, then context, replicas, stages.

    Raises InputError on a count below 1, or where expert does not divide the devices that it says.
    """

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    """Devices that share the tokens of a sequence."""
    expert: int = 1
    """Of the data x context devices with the same tensor rank, so many share the experts of a block."""
    expert_tensor: int = 0
    """Devices of a tensor group that share each expert: all (0), or 1; then `expert` are of all tensor ranks."""
    zero_stage: int = 0
    """Replicas share optimizer state (1), gradients too (2), parameters too (3)."""
    shard_group: int = 0
    """So many neighbouring replicas share these, groups are copies of each other (0: all share)."""
    sequence_parallel: bool = True
    """Whether a tensor group shares the tokens of what lies between its matrices; otherwise each has all of it."""
    recomputation: str = "none"
    """What is computed again before its backward pass, as the strategies megatron and fsdp name it."""
    microbatch: int = 1
    """Sequences of a micro-batch of one replica."""
    accumulation: int = 1
    """Micro-batches of a step."""
    chunks: int = 1
    """Virtual stages of a device, interleaved."""
    schedule: str = ""
    """Of its passes; empty: 1F1B, interleaved where a device has several stages, one micro-batch after the other where
    all blocks are on one."""
    layout: str = ""
    """Blocks by stage, see the strategy megatron; empty: as the runtime lays stages out."""
    node_devices: int = 8
    """Devices of a node."""

    def __post_init__(self) -> None:
        counts = ("data", "tensor", "pipeline", "context", "expert", "microbatch", "accumulation", "chunks",
                  "node_devices")  # fmt: skip
        for name in counts:
            require(getattr(self, name) >= 1, name, getattr(self, name), "it is at least 1")
        require(self.zero_stage in (0, 1, 2, 3), "zero_stage", self.zero_stage, "it is 0, 1, 2 or 3")
        rule = f"it divides data x context, {self.replicas}, and is 0 where all share"
        shared = self.shard_group == 0 or (self.shard_group > 0 and self.replicas % self.shard_group == 0)
        require(shared, "shard_group", self.shard_group, rule)
        rule = f"it is 1, or the tensor degree, {self.tensor}"
        require(self.expert_tensor in (0, 1, self.tensor), "expert_tensor", self.expert_tensor, rule)
        among = self.replicas * self.expert_parts // self.context
        rule = f"it divides data x context{' x tensor' * self.whole_experts}, {among}"
        require(among % self.expert == 0, "expert", self.expert, rule)

    @property
    def strategy(self) -> str:
        """What places it: fsdp with shared gradients, megatron with other degrees or recomputation, else data."""
        others = self.tensor * self.pipeline * self.context * self.expert > 1
        if others or (self.zero_stage < 2 and self.recomputation != "none"):
            return "megatron"
        return "fsdp" if self.zero_stage >= 2 else "data"

    @property
    def devices(self) -> int:
        return self.replicas * self.tensor * self.pipeline

    @property
    def replicas(self) -> int:
        """Devices that hold the same parameters (experts apart) and sum their gradients."""
        return self.data * self.context

    @property
    def whole_experts(self) -> bool:
        """Whether the devices of a tensor group have experts of their own, instead of parts of each."""
        return self.expert_tensor == 1 < self.tensor

    @property
    def expert_parts(self) -> int:
        """Devices that share the tokens of a sequence on their way to experts."""
        return self.context * (self.tensor if self.whole_experts else 1)

    @property
    def expert_ranks(self) -> int:
        """Devices that hold all experts of a block once."""
        return self.expert * (1 if self.whole_experts else self.tensor)

    @property
    def degrees(self) -> dict[str, str]:
        """Those of DEGREES above 1, in words; experts that tensor groups do not split are "whole"."""
        words = {name: str(getattr(self, name)) for name in DEGREES if getattr(self, name) > 1}
        return {**words, "expert": f"{self.expert} whole"} if self.whole_experts and self.expert > 1 else words

    @property
    def nodes(self) -> int:
        return -(-self.devices // self.node_devices)

    @property
    def batch(self) -> int:
        """Sequences of a step."""
        return self.data * self.microbatch * self.accumulation
