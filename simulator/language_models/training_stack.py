"""What trains a language model on a kind of GPU: what its kernels reach, and the habits of its runtime."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import log
from pathlib import Path

from simulator.cluster import Cluster
from simulator.errors import InputError, require_name
from simulator.files import Shipped, read_json
from simulator.language_models.accelerators import ACCELERATORS, Accelerator, accelerator
from simulator.language_models.device_model import DeviceModel
from simulator.lowering.costs.typical_scaling import device_class
from simulator.parameter_states import ParameterStates
from simulator.plan import OPTIMIZERS, StepSettings, Synchronisation
from simulator.runtime import IDEAL, ON_IMAGES, ON_IMAGES_16_BIT, Runtime
from simulator.workload import DTYPE_BYTES, Profile

STACKS = Shipped("training stack (and no such file)", "simulator.language_models", "stacks")
NEAREST = "nearest GPU"
"""How a profile says that its stack was taken by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingStack:
    """A GPU, a device model and a runtime, measured together. Raises InputError on unknown names."""

    name: str
    accelerator: str
    """A name of `accelerators`."""
    device: DeviceModel
    runtime: Runtime
    optimizer: str = "mixed-adam"
    """A name of `simulator.plan.OPTIMIZERS`."""
    gradient_dtype: str = "float32"
    """In which gradients are added up and summed."""
    fused_activation: bool = True
    """Whether the activation of a gated feed-forward layer and its product are one kernel, which keeps less."""
    attention_copies: float = 0.0
    """How many times the attention's output is kept beside what the attention itself keeps: in other layouts."""
    keeps_8_bits: bool = False
    """Whether products of 8 bits keep what they read in 8 bits, as Transformer Engine's do and torchao's do not."""
    logit_bytes: float = 8.0
    """Held per logit while the loss is computed: in fp32 the logits, of which 4 stay until the backward pass, and their
    gradient; where a training loop still refers to the last micro-batch's, those too."""
    once_per_host: bool = False
    """Whether a token travels once to a device, and across the network to a host, with several of its experts, as
    DeepEP sends it."""
    scattered_parameters: int = 0
    """Whose gradients ZeRO-1 scatters, and which it gathers, at once; 0: those of a bucket of DistributedDataParallel;
    from stage 2 on a block."""
    scattered_parameters_per_rank: int = 0
    """The same for each rank of the group, where that is more: of Megatron Core at least 40 million, and a million."""
    calibrated_on: str = ""
    """The GPU of the measured runs that its constants were calibrated on, such as "h100"; "" where they are stated."""
    by_default: bool = False
    """Whether it was taken for its GPU alone, as nobody named one."""
    source: str = ""
    command: str = ""
    remarks: tuple[str, ...] = ()
    """What a calibration could not tell."""

    def __post_init__(self) -> None:
        accelerator(self.accelerator)
        require_name("optimizer", self.optimizer, OPTIMIZERS)
        self.states(0)

    def with_precision(self, name: str | None) -> TrainingStack:
        """This stack with products of another precision, one of `device_model.CASTS`; None: its own."""
        return replace(self, device=replace(self.device, precision=name)) if name else self  # type: ignore[arg-type]

    def with_attention(self, name: str | None) -> TrainingStack:
        """This stack with another kernel of the attention, see `DeviceModel.attention_kernel`; None: its own."""
        return replace(self, device=replace(self.device, attention_kernel=name)) if name else self  # type: ignore[arg-type]

    def synchronisation(self, zero_stage: int, profile: Profile) -> Synchronisation:
        """How gradients are summed: from stage 2 on block by block, as FSDP wraps them."""
        if zero_stage == 0 or (zero_stage == 1 and not self.scattered_parameters):
            return Synchronisation()
        if zero_stage == 1:
            element = DTYPE_BYTES[self.gradient_dtype or profile.dtype]
            least, of_rank = self.scattered_parameters * element, self.scattered_parameters_per_rank * element
            return Synchronisation(bucket_bytes=int(least), bucket_bytes_per_device=int(of_rank))
        block = [layer.parameter_bytes for layer in profile.layers if layer.name.startswith("blocks.0.")]
        return Synchronisation(bucket_bytes=sum(block))

    def step(self, asked: StepSettings, profile: Profile, zero_stage: int) -> StepSettings:
        """`asked` with what it leaves open as this stack has it, where replicas share states of `zero_stage`."""
        habits = self.states(zero_stage)
        dtype = asked.states.gradient_dtype or habits.gradient_dtype
        states = replace(asked.states, stage=zero_stage, each_microbatch=habits.each_microbatch, gradient_dtype=dtype)
        own, synchronisation = self.synchronisation(zero_stage, profile), asked.synchronisation
        if synchronisation.bucket_bytes == Synchronisation().bucket_bytes:
            synchronisation = replace(
                synchronisation,
                bucket_bytes=own.bucket_bytes,
                bucket_bytes_per_device=own.bucket_bytes_per_device,
            )
        state = OPTIMIZERS[self.optimizer] if asked.optimizer_state is None else asked.optimizer_state
        return replace(asked, states=states, synchronisation=synchronisation, optimizer_state=state)

    def states(self, zero_stage: int) -> ParameterStates:
        """What replicas share out; from stage 2 on gradients are scattered after every micro-batch."""
        every = zero_stage >= 2
        return ParameterStates(stage=zero_stage, gradient_dtype=self.gradient_dtype, each_microbatch=every)


def stack_of(profile: Profile) -> TrainingStack | None:
    """The stack that `profile` was modelled with; None where it was measured. Raises as `read_stack` does."""
    name = profile.software.get("stack")
    return _kept_stack(name) if name else None


def runtime_of(profile: Profile, measured: Runtime = IDEAL) -> Runtime:
    """The runtime that was measured on a cluster, else that of the stack that a profile was modelled with, else that of
    GPUs for convolutions timed on one, else the ideal one."""
    if measured != IDEAL:
        return measured
    if stack := stack_of(profile):
        return stack.runtime
    if device_class(profile.device) != "GPU" or not any(layer.kind.startswith("conv") for layer in profile.layers):
        return IDEAL
    return ON_IMAGES_16_BIT if DTYPE_BYTES[profile.dtype] <= 2 else ON_IMAGES


def optimizer_state_of(profile: Profile) -> float:
    """Of the optimizer that a step takes where nobody says: the stack's, else momentum's."""
    stack = stack_of(profile)
    return OPTIMIZERS[stack.optimizer] if stack else StepSettings(batch_size=1).optimizer_ratio


DEFAULTS = ("fsdp-a100", "fsdp-h100")
"""Of the stacks that ship, those of which one is taken where nobody names one."""


def nearest_stack(name: str) -> TrainingStack:
    """Of DEFAULTS, that of the GPU whose peak is nearest to that of `name`, by their ratio."""
    return min(map(read_stack, DEFAULTS), key=lambda stack: _distance(stack, name))


def stack_of_runtime(runtime: str | None, name: str) -> str | None:
    """The stack that ships of a runtime, such as "megatron", of the GPU nearest to `name`; None where there is none.

    Those of plain torch, and of torchtitan, are called "fsdp".
    """
    runtime = "fsdp" if runtime in ("fsdp2", "torchtitan") else runtime
    named = [read_stack(known) for known in stacks() if runtime and known.partition("-")[0] == runtime]
    nearest = min(named, key=lambda stack: (_distance(stack, name), len(stack.name)), default=None)
    return nearest.name if nearest else None


def _distance(stack: TrainingStack, name: str) -> float:
    """Of the peaks of a stack's GPU and of the one called `name`, the logarithm of their ratio."""
    return abs(log(accelerator(stack.accelerator).flops_per_s / accelerator(name).flops_per_s))


def stack_for(cluster: Cluster | None, stack: TrainingStack | None = None) -> TrainingStack:
    """`stack`, or the nearest, with the GPUs of `cluster`: shares of the peaks stay.

    On an H100 where there is no cluster. Raises InputError where its devices are no known accelerator, or not alike.
    """
    name = accelerator_of(cluster) if cluster else stack.accelerator if stack else "h100"
    return replace(stack or replace(nearest_stack(name), by_default=True), accelerator=name)


def accelerator_of(cluster: Cluster) -> str:
    """The accelerator that all workers are: of the sheets whose model their kind names, that of the same form and the
    nearest memory.

    Raises InputError where there is none, or not all are the same.
    """
    workers = cluster.devices[: cluster.workers]
    kinds = sorted({device.kind for device in workers})
    words = set(kinds[0].lower().replace("-", " ").split())
    sheets = [sheet for sheet in ACCELERATORS.values() if len(kinds) == 1 and sheet.name.partition("-")[0] in words]
    if not sheets:
        known = ", ".join(dict.fromkeys(name.partition("-")[0].upper() for name in ACCELERATORS))
        raise InputError(
            f"cluster {cluster.name!r} has devices {', '.join(kinds) or 'of no kind'}: a model card needs one kind "
            f"of {known}"
        )
    memory_bytes = workers[0].memory_bytes or sheets[0].memory_bytes

    def distance(sheet: Accelerator) -> tuple[bool, float]:
        return ("pcie" in sheet.name) != ("pcie" in words), abs(sheet.memory_bytes - memory_bytes)

    return min(sheets, key=distance).name


def stacks() -> tuple[str, ...]:
    """Names of the stacks that ship, sorted."""
    return STACKS.names()


def read_stack(source: str | Path) -> TrainingStack:
    """The stack in a JSON file, or that of a name such as "nanotron-h100". Raises as `read_json` does."""
    return read_json(STACKS.path(source), TrainingStack)


_kept_stack = lru_cache(maxsize=16)(read_stack)
