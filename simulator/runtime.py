"""The software that runs a plan: what it adds to compute, and how its messages meet. Hardware is the Cluster's."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

from simulator.errors import require, require_bytes, require_time


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """Habits of a training runtime, each a number that can be measured.

    Launches go ahead of the device, see `TaskGraph`, and take as long whatever its speed. Raises InputError on a
    negative number or a slowdown below 1.
    """

    name: str = "ideal"
    """What it is called."""
    task_overhead_s: float = 0.0
    """Seconds added to every compute task, whatever the speed of the device."""
    pass_overhead_s: float = 0.0
    """Seconds added to every pass of a schedule over a stage, whatever the speed of the device."""
    forward_launch_s: float = 0.0
    """Host seconds to launch the forward pass, or recomputation, of one layer's shard and micro-batch; 0 where the
    profile was captured, which holds its launches already."""
    backward_launch_s: float = 0.0
    """The same of its backward pass; where a schedule splits weight gradients off, half of it each."""
    update_launch_s: float = 0.0
    """Host seconds to launch the update of one layer's parameters on a device, or what compresses a bucket's gradients
    or applies them on a server."""
    collective_check_s: float = 0.0
    """Host seconds, for each member of its group, before a collective: torch's check that all call the same
    (TORCH_DISTRIBUTED_DEBUG=DETAIL), in which the others report to the first and are answered in turn, and what each
    calls goes round twice; a third more where they are on several hosts."""
    step_overhead_s: float = 0.0
    """Host seconds once a step, on every device that computes, after all that it does: data loading, logging, the
    optimizer's synchronisation."""
    launch_depth: int = 0
    """How many tasks a host launches ahead of its device before it blocks. What a collective between passes fills is
    taken as its reader is launched, and cannot be used again until the device is past it, as it is filled on another
    stream; an allocator gets it back where memory runs short. 0: memory is taken as tasks start."""
    message_pause_s: float = 0.0
    """Host seconds, at each end, of a message between stages, for which the host waits for its device first, as one
    that asks in pauses whether the message's headers went through: those of nanotron of December 2024 are two, 0.1 s
    each. 0: messages are launched ahead as everything else."""
    rank_spread: float = 0.0
    """Standard deviation of devices' compute in a step over its mean. All wait for the slowest, which takes longer by
    as many of these as the largest of so many normal draws is above their mean."""
    overlap_slowdown: float = 1.0
    """How many times longer (>= 1) a device's compute takes while a transfer from or to it is in flight."""
    send_cpu_s_per_byte: float = 0.0
    """Core seconds that a byte takes its sender, on hosts in `Cluster.host_cores`, evenly over the time that its
    transfer would last alone, but for bytes that find a token in a link's bucket; what computes there gets the rest."""
    receive_cpu_s_per_byte: float = 0.0
    """The same of its receiver."""
    busy_latency_s: float = 0.0
    """Seconds that each round of a transfer waits longer which starts while all devices on its hosts compute, in
    proportion where only some do, not at all where a core is free, and no longer than any computes."""
    rendezvous: bool = False
    """Whether what a pass of a pipeline sends leaves together, when it has ended and its receives are posted."""
    gradient_scaling: float = 0.0
    """Share of an update that pipelines take to divide gradients by the number of micro-batches."""
    context_bytes: float = 0.0
    """Held on every device that it uses, such as a CUDA context and the buffers of communicators."""
    workspace_bytes: float = 0.0
    """Held on every device that it uses, for its operators to work in."""
    bucket_copies: bool = False
    """Whether gradients that replicas sum have a second buffer, in the parameters' precision, for the whole step: the
    buckets of torch's DistributedDataParallel beside the sums that a runtime keeps in another precision."""
    full_schedules: tuple[str, ...] = ()
    """Schedules that it refuses with fewer micro-batches than stages."""
    spared_microbatches: int = 0
    """By how many the micro-batches of these may be fewer than stages: nanotron's 1F1B has one at least in flight for
    every stage but the last."""
    scatters_stages: bool = False
    """Of what a tensor group hands on whole to the next stage each device sends a part, which that gathers again:
    Megatron-LM's scatter-gather without sequence parallelism."""
    stage_layout: str = "balanced"
    """How it splits a network into stages, where a plan does not say: a layout of the strategy megatron."""
    stops_recomputation: bool = False
    """Whether recomputing a segment ends with the last thing that its backward passes read: torch's checkpoints since
    2.1 (`set_checkpoint_early_stop`), but for reentrant ones, which Megatron-LM and nanotron have."""
    overlaps_weight_gradients: bool = False
    """Layers cut by output channels send their input gradients on before they compute their weight gradients, and what
    is received again for those arrives meanwhile: Megatron-LM's tensor parallelism, nanotron's asynchronous one."""
    overlaps_gathers: bool = False
    """Parameters of ZeRO-1 and 2 are gathered beside the next step's first forward passes, which wait for their own:
    Megatron-LM's --overlap-param-gather."""
    overlaps_products: bool = False
    """Whether devices of a tensor group exchange the rows of a matrix in parts, beside its products: Megatron-LM's
    --tp-comm-overlap, which NeMo's recipes have; see `lowering.tasks.overlapped_products`."""

    def __post_init__(self) -> None:
        require(1 <= self.overlap_slowdown <= 1e6, "overlap_slowdown", self.overlap_slowdown, "it is at least 1")
        require(0 <= self.rank_spread <= 1, "rank_spread", self.rank_spread, "it is from 0 to 1")
        require(self.launch_depth >= 0, "launch_depth", self.launch_depth, "it is at least 0")
        for name in ("context_bytes", "workspace_bytes"):
            require_bytes(name, getattr(self, name))
        for name in (
            "task_overhead_s",
            "pass_overhead_s",
            "forward_launch_s",
            "backward_launch_s",
            "update_launch_s",
            "collective_check_s",
            "message_pause_s",
            "step_overhead_s",
            "send_cpu_s_per_byte",
            "receive_cpu_s_per_byte",
            "busy_latency_s",
            "gradient_scaling",
        ):
            require_time(name, getattr(self, name))
        rule = "it is at least 0"
        require(self.spared_microbatches >= 0, "spared_microbatches", self.spared_microbatches, rule)

    def slowest_of(self, devices: int) -> float:
        """Seconds of the slowest of so many devices over the mean (Blom, Statistical Estimates, 1958)."""
        return 1 + self.rank_spread * NormalDist().inv_cdf((devices - 0.375) / (devices + 0.25))

    def fewest_microbatches(self, schedule: str, stages: int) -> int:
        """Micro-batches without which it refuses a schedule of so many stages."""
        return max(1, stages - self.spared_microbatches) if schedule in self.full_schedules else 1


IDEAL = Runtime()
"""Compute takes what was measured, messages leave when they are ready."""

TORCH_PIPELINING = Runtime(name="torch-pipelining", rendezvous=True, gradient_scaling=2 / 8, full_schedules=("1f1b",))
"""torch.distributed.pipelining over gloo or NCCL. It divides gradients by the number of micro-batches before the
update, which reads and writes one tensor, where an update of SGD with momentum reads and writes eight
(`simulator.lowering.tasks.gradients`). Its Schedule1F1B raises ValueError on fewer micro-batches than stages."""

ON_IMAGES = Runtime(name="gpus on images", rank_spread=0.027)
"""GPUs that train on images, whose layers were timed on one alone: decoding, copies and clocks differ by rank. The
spread is the median that 17 published rows of ResNets ask for, 2 to 16 V100 and A100, fp32 and TF32, in MXNet and
TensorFlow (NVIDIA DeepLearningExamples, 2024); PyTorch's were left out and are predicted (docs/accuracy.md). Steps of
language models on 4 to 128 GPUs show none."""
ON_IMAGES_16_BIT = Runtime(name="gpus on images", rank_spread=0.046)
"""The same in 16-bit numbers, of as many rows: a third of the compute beside an input that is no faster."""
