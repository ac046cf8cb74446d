"""The software that runs a plan: what it adds to compute, and how its messages meet. Hardware is the Cluster's."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.errors import require, require_bytes, require_time


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """Habits of a training runtime, each a number that can be measured.

    task_overhead_s, pass_overhead_s: added to every compute task, and to every pass of a schedule over a stage,
    whatever the speed of the device. overlap_slowdown (>= 1): a device's compute takes that many times longer while
    a transfer from or to it is in flight. send_cpu_s_per_byte, receive_cpu_s_per_byte: core seconds that a transfer
    takes at its ends, on hosts in `Cluster.host_cores`, evenly over the time that it would last alone, but for
    bytes that find a token in a link's bucket; what computes there gets the rest. busy_latency_s: each round of a
    transfer that starts while all devices on its hosts compute waits that much longer, in proportion where only
    some do, not at all where a core is free, and no longer than any computes. rendezvous: what a pass of a pipeline
    sends leaves together, when it has ended and its receives are posted. gradient_scaling: share of an update that
    pipelines take to divide gradients by the number of micro-batches. context_bytes, workspace_bytes: what it holds
    on every device that it uses, such as a CUDA context and the buffers of communicators, and what its operators
    work in. full_schedules: those that it refuses with fewer micro-batches than stages. Raises InputError on a
    negative number or a slowdown below 1.
    """

    __pydantic_config__ = {"extra": "forbid"}

    name: str = "ideal"
    task_overhead_s: float = 0.0
    pass_overhead_s: float = 0.0
    overlap_slowdown: float = 1.0
    send_cpu_s_per_byte: float = 0.0
    receive_cpu_s_per_byte: float = 0.0
    busy_latency_s: float = 0.0
    rendezvous: bool = False
    gradient_scaling: float = 0.0
    context_bytes: float = 0.0
    workspace_bytes: float = 0.0
    full_schedules: tuple[str, ...] = ()
    overlaps_weight_gradients: bool = False
    """Layers cut by output channels send their input gradients on before they compute their weight gradients, and what
    is received again for those arrives meanwhile: Megatron-LM's tensor parallelism, nanotron's asynchronous one."""

    def __post_init__(self) -> None:
        require(1 <= self.overlap_slowdown <= 1e6, "overlap_slowdown", self.overlap_slowdown, "it is at least 1")
        for name in ("context_bytes", "workspace_bytes"):
            require_bytes(name, getattr(self, name))
        for name in (
            "task_overhead_s", "pass_overhead_s", "send_cpu_s_per_byte", "receive_cpu_s_per_byte", "busy_latency_s",
            "gradient_scaling",
        ):  # fmt: skip
            require_time(name, getattr(self, name))


IDEAL = Runtime()
"""Compute takes what was measured, messages leave when they are ready."""

TORCH_PIPELINING = Runtime(name="torch-pipelining", rendezvous=True, gradient_scaling=2 / 8, full_schedules=("1f1b",))
"""torch.distributed.pipelining over gloo or NCCL. It divides gradients by the number of micro-batches before the
update, which reads and writes one tensor, where an update of SGD with momentum reads and writes eight
(`simulator.lowering.tasks.gradients`). Its Schedule1F1B raises ValueError on fewer micro-batches than stages."""
