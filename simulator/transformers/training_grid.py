"""How a decoder is spread: degrees, ZeRO stage and micro-batches."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.errors import require


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingGrid:
    """data x tensor x pipeline devices; neighbours are of one tensor group, then replicas, then stages.

    zero_stage: 0, or 1 where replicas share the optimizer state. microbatch: sequences of a micro-batch of one replica;
    accumulation: micro-batches of a step. node_devices: devices of a node. Raises InputError on a count below 1.
    """

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    zero_stage: int = 0
    microbatch: int = 1
    accumulation: int = 1
    node_devices: int = 8

    def __post_init__(self) -> None:
        for name in ("data", "tensor", "pipeline", "microbatch", "accumulation", "node_devices"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "it is at least 1")
        require(self.zero_stage in (0, 1), "zero_stage", self.zero_stage, "it is 0 or 1")

    @property
    def devices(self) -> int:
        return self.data * self.tensor * self.pipeline

    @property
    def nodes(self) -> int:
        return -(-self.devices // self.node_devices)

    @property
    def batch(self) -> int:
        """Sequences of a step."""
        return self.data * self.microbatch * self.accumulation

    @property
    def tensor_nodes(self) -> int:
        """Nodes over which a tensor-parallel group reaches."""
        return max(1, self.tensor // self.node_devices)

    @property
    def replicas_per_node(self) -> int:
        """Members of one data-parallel group in a node."""
        return max(1, min(self.data, self.node_devices // self.tensor))

    @property
    def data_crosses_nodes(self) -> bool:
        return self.data > 1 and self.data * self.tensor > self.node_devices

    @property
    def pipeline_crosses_nodes(self) -> bool:
        return self.pipeline > 1 and self.devices > self.node_devices
