"""What a runtime on a cluster costs beside arithmetic: constants with bounds, measured by others or calibrated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from importlib import resources
from pathlib import Path

import numpy as np

from simulator.errors import UnknownNameError, require, require_from_0
from simulator.files import is_path, read_json, to_json, write_text_atomic
from simulator.transformers.accelerators import accelerator

MOST_RATIO = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class StackConstants:
    """The constants of a stack. While they are calibrated a field may hold an array: as many stacks at once.

    Of the GPU. matmul_efficiency, attention_efficiency: share of the bf16 peak; matmul_gap_s: of every matrix product,
    what does not shrink with it; traffic_factor: memory traffic over what `block` counts; memory_efficiency: share of
    the data sheet's bandwidth; loss_bytes_per_logit: traffic of casts and cross entropy, both ways.
    Of the host. launch_floor_s: a block's launches, forward and backward, of one micro-batch; stall_s: added for every
    member of the tensor group in pipelines across nodes, times (nodes of the group) ** stall_exponent, once a backward
    pass follows every forward pass; replica_stall_share: more of it with whole replicas on several nodes;
    message_stall_s: a micro-batch's with each neighbouring stage, times (nodes) ** message_stall_exponent;
    update_layer_s: of an optimizer step, by block; step_overhead_s: once a step; retry_s: of a micro-batch whose
    allocations only fit after the allocator has given its cache back.
    Of collectives. tensor_bytes_per_s, tensor_hop_s: bus bandwidth and ring step of a tensor group inside a node;
    tensor_across_bytes_per_s, tensor_across_hop_s: across nodes; network_bytes_per_s: line rate of a GPU's share of
    the network; network_share: what gradients get of it; ring_hop_s, gather_hop_s: of a ring of replicas, by bucket
    and step, in an all-reduce and where it only scatters or gathers; overlap: how much of the last backward pass hides
    the exchange.
    Of memory. saved_factor: kept activations over the closed form; gathered_factor: of gathered inputs, what stays
    allocated where the host runs ahead of the GPU, gathered_waiting_factor: where it waits in a pipeline of four or
    more stages; logit_bytes: per logit; gradient_bytes: of bf16 gradients per parameter at the peak; bucket_bytes: more
    of them with replicas; base_bytes; working_hidden_bytes, working_ffn_bytes: per token and channel of the block at
    work; reclaimed_bytes: where kept gathers are given back; border_bytes: need from which allocations are retried,
    border_share: how much of the kept gathers counts for it.
    """

    __pydantic_config__ = {"extra": "forbid"}

    matmul_efficiency: float = 0.6
    attention_efficiency: float = 0.34
    matmul_gap_s: float = 1e-5
    traffic_factor: float = 1.3
    memory_efficiency: float = 0.85
    loss_bytes_per_logit: float = 50.0
    launch_floor_s: float = 4.4e-3
    stall_s: float = 0.0
    stall_exponent: float = 0.0
    replica_stall_share: float = 0.0
    message_stall_s: float = 0.0
    message_stall_exponent: float = 0.0
    update_layer_s: float = 1e-3
    step_overhead_s: float = 0.02
    retry_s: float = 1.1
    tensor_bytes_per_s: float = 280e9
    tensor_hop_s: float = 6e-6
    tensor_across_bytes_per_s: float = 220e9
    tensor_across_hop_s: float = 4e-5
    network_bytes_per_s: float = 50e9
    network_share: float = 0.5
    ring_hop_s: float = 4e-6
    gather_hop_s: float = 4e-6
    overlap: float = 0.6
    saved_factor: float = 1.1
    gathered_factor: float = 0.8
    gathered_waiting_factor: float = 0.5
    logit_bytes: float = 8.5
    gradient_bytes: float = 1.0
    bucket_bytes: float = 1.4
    base_bytes: float = 2e8
    working_hidden_bytes: float = 7.0
    working_ffn_bytes: float = 9.0
    reclaimed_bytes: float = 6.8e10
    border_bytes: float = 8e10
    border_share: float = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingStack:
    """A runtime on a cluster. bounds: (least, most) of what is calibrated; expected: (value, width) where other sources
    say what to expect, which decides where steps cannot tell two constants apart; remarks say what could not be told.

    splits: "parameters" (`stage_split.stages_by_parameters`) or "equal". fused_activation: SwiGLU is one kernel.
    residual_quantiles: by number of nodes, 10 and 90 % of measured over predicted seconds. network_band: by number of
    nodes, the network's bandwidth in a bad and in a good run over the usual one. network_usual: by number of nodes, the
    usual bandwidth over what it was on those that the constants were calibrated on. link_bytes_per_s: line rate of a
    GPU's link inside a node. waits_for_all: a plan with fewer micro-batches than stages - 1 is refused by the runtime.
    Raises InputError on unknown names.
    """

    __pydantic_config__ = {"extra": "forbid"}

    name: str
    accelerator: str
    constants: StackConstants = StackConstants()
    bounds: Mapping[str, tuple[float, float]]
    expected: Mapping[str, tuple[float, float]]
    splits: str = "parameters"
    fused_activation: bool = True
    waits_for_all: bool = True
    link_bytes_per_s: float = 450e9
    residual_quantiles: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    network_band: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    network_usual: Mapping[int, float] = field(default_factory=dict)
    source: str = ""
    command: str = ""
    remarks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        accelerator(self.accelerator)
        for constant in fields(StackConstants):
            value = getattr(self.constants, constant.name)
            if isinstance(value, float):  # an array while it is calibrated
                require_from_0(f"constants: {constant.name}", value, 1e30)
                divides = constant.name.endswith(("efficiency", "bytes_per_s", "network_share"))
                require(value > 0 or not divides, f"constants: {constant.name}", value, "it is above 0")
        names = {constant.name for constant in fields(StackConstants)}
        for name in {*self.bounds, *self.expected}:
            if name not in names:
                raise UnknownNameError.of("constant", name, names)
        for field_name in ("residual_quantiles", "network_band"):
            for nodes, (low, high) in getattr(self, field_name).items():
                _require_ratios(field_name, nodes, low, high)
        for nodes, share in self.network_usual.items():
            _require_ratios("network_usual", nodes, share, share)
        require(self.splits in ("parameters", "equal"), "splits", self.splits, "it is parameters or equal")

    def usual_network(self, nodes: int) -> float:
        """The usual bandwidth on so many nodes over the calibrated one, between known numbers by their logarithms."""
        if not self.network_usual:
            return 1.0
        known = sorted(self.network_usual)
        shares = [self.network_usual[count] for count in known]
        return float(np.interp(np.log2(nodes), np.log2(known), shares))


def _require_ratios(name: str, nodes: int, low: float, high: float) -> None:
    """Raise InputError unless `nodes` is a number of nodes, and low and high ratios in order."""
    require(nodes >= 1, name, nodes, "it is by number of nodes, at least 1")
    require(
        0 < low <= high <= MOST_RATIO, f"{name} of {nodes} nodes", (low, high), "ratios above 0, the lower one first"
    )


def stacks() -> tuple[str, ...]:
    """Names of the stacks that ship, sorted."""
    return tuple(sorted(entry.name.removesuffix(".json") for entry in _folder().iterdir() if ".json" in entry.name))


def read_stack(source: str | Path) -> TrainingStack:
    """The stack in a JSON file, or that of a name such as "nanotron-h100". Raises as `read_json` does."""
    if not is_path(source):
        if str(source) not in stacks():
            raise UnknownNameError.of("training stack (and no such file)", str(source), stacks())
        source = Path(str(_folder() / f"{source}.json"))
    return read_json(Path(source), TrainingStack)


def write_stack(stack: TrainingStack, path: str | Path) -> None:
    """Write `stack` as JSON."""
    write_text_atomic(path, to_json(stack))


def _folder() -> resources.abc.Traversable:
    return resources.files("simulator.transformers") / "stacks"
