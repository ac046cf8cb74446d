"""What a plan is in the words of common runtimes: data, tensor and pipeline degrees; and what they leave out of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from simulator.errors import InputError
from simulator.language_models.model_card import ModelCard
from simulator.language_models.training_grid import TrainingGrid
from simulator.lowering import schedules
from simulator.lowering.exchange.shard_regions import split
from simulator.lowering.sharded_model import ShardedModel
from simulator.plan import Plan, Sharding
from simulator.plan_rules import COMBINED, require_placed
from simulator.workload import Layer, Profile

RECOMPUTATION = {
    "selective": "the attention alone",
    "op": "all but the attention and every other product",
    "full": "whole blocks",
}
"""What is recomputed, in words."""
MODULES = ("core_attn", "layernorm", "mlp", "moe", "moe_act", "mla_up_proj")
"""Of Megatron-LM's `--recompute-modules`, as the strategy megatron takes them."""
NAMELESS = ("op", "segments")
"""Recomputation that Megatron-LM has no name for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanShape:
    """A plan that is regular: stages one after another, each on as many devices.

    stages: the layers of each, by name; homes: its devices; data: replicas of each stage; tensor: devices over which
    channels are split, or terms of sums; context: the factor that is left, over which sequences alone are split.
    expert: devices of data x context that share the experts of a layer. whole_experts: those of all tensor ranks do.
    sequence_parallel: layers between split products are split along the sequence, not copied. shares: samples of each
    replica in a micro-batch. card: the network, where it is one's. blocks: transformer blocks of each stage, by their
    attentions. recomputation: one of RECOMPUTATION, some of MODULES joined by +, "none", or "segments" that no runtime
    here has.
    """

    stages: tuple[tuple[str, ...], ...]
    homes: tuple[tuple[int, ...], ...]
    data: int
    tensor: int
    context: int = 1
    expert: int = 1
    whole_experts: bool = False
    sequence_parallel: bool = False
    shares: tuple[int, ...]
    card: ModelCard | None = None
    blocks: tuple[int, ...] = ()
    recomputation: str = "none"

    @property
    def devices(self) -> int:
        return len({device for home in self.homes for device in home})

    @property
    def whole_blocks(self) -> bool:
        """Whether it is a card's, whose blocks no stage shares."""
        blocks = [{name.split(".")[1] for name in names if name.startswith("blocks.")} for names in self.stages]
        return self.card is not None and sum(map(len, blocks)) == self.card.layers


def plan_shape(profile: Profile, plan: Plan, card: ModelCard | None = None) -> PlanShape:
    """The shape of a plan, of a card where it is one's. Raises InputError where it is not of this profile or not
    regular, naming the first layer."""
    require_placed(profile, plan)
    stages = _stages(profile, plan)
    homes = [plan.placements[names[0]].devices for names in stages]
    if len({len(home) for home in homes}) > 1:
        raise InputError(f"plan: its stages have {', '.join(str(len(home)) for home in homes)} devices; {_ELSEWHERE}")
    placements = list(plan.placements.values())
    data = max(sharding.degrees[0] for sharding in placements)
    tensor = max(max(sharding.degrees[1], sharding.reduce) for sharding in placements)
    context = len(homes[0]) // (data * tensor) if len(homes[0]) > data * tensor else 1
    for names, home in zip(stages, homes, strict=True):
        for name in names:
            experts = bool(profile.layers[profile.index[name]].routing)
            _require_regular(name, plan.placements[name], home, data, tensor * context, experts=experts)
    parts = [last - first for first, last in split(plan.microbatch_size, data)]
    routed = [plan.placements[layer.name] for layer in profile.layers if layer.routing]
    expert = max((sharding.degrees[3] for sharding in routed), default=1)
    cut = any(max(sharding.degrees[1], sharding.reduce) > 1 for sharding in routed)
    return PlanShape(
        stages=tuple(stages),
        homes=tuple(homes),
        data=data,
        tensor=tensor,
        context=context,
        expert=expert,
        whole_experts=expert > 1 and tensor > 1 and not cut,
        sequence_parallel=tensor > 1 and any(sharding.degrees[2] == tensor * context for sharding in placements),
        shares=next((sharding.samples for sharding in placements if sharding.samples), tuple(parts)),
        card=card,
        blocks=tuple(
            sum(profile.layers[profile.index[name]].kind == "attention" for name in names) for names in stages
        ),
        recomputation=_recomputation(profile, plan),
    )


def grid_of(plan: Plan, shape: PlanShape) -> TrainingGrid:
    """A plan of equal replicas as a grid; whole blocks are recomputed where Megatron-LM has no name for the plan's."""
    workers = len(set(shape.homes))
    return TrainingGrid(
        data=shape.data, tensor=shape.tensor, pipeline=workers, context=shape.context, expert=shape.expert,
        expert_tensor=int(shape.whole_experts), zero_stage=plan.states.stage, shard_group=plan.states.group,
        sequence_parallel=shape.sequence_parallel, microbatch=plan.microbatch_size // shape.data,
        accumulation=plan.microbatches, chunks=len(shape.stages) // workers,
        schedule=COMBINED if plan.schedule == COMBINED else "",
        recomputation="full" if shape.recomputation in NAMELESS else shape.recomputation,
    )  # fmt: skip


def _recomputation(profile: Profile, plan: Plan) -> str:
    """By what the segments hold: nothing but some of MODULES, wherever the network has them, or other layers."""
    segments = [[profile.layers[profile.index[name]] for name in names] for names in plan.recomputed]
    attends = [sum(layer.kind == "attention" for layer in segment) for segment in segments]
    attentions = sum(layer.kind == "attention" for layer in profile.layers)
    routed = sum(layer.kind == "activation" and layer.routing is not None for layer in profile.layers)
    norms = sum("norm" in layer.kind for layer in profile.layers)
    there = dict(zip(MODULES, (attentions, norms, attentions - routed, routed, routed, attentions), strict=True))
    counts = Counter(_module(profile, segment) for segment in segments)
    modules = [name for name in MODULES if name in counts]
    each = list(zip(segments, attends, strict=True))
    kinds = {
        "none": not segments,
        "selective": modules == ["core_attn"] == [*counts],
        "op": all(len(segment) > 1 and not (count or segment[0].sums_inputs) for segment, count in each),
        "full": 0 < attentions == sum(len(segment) > count == 1 for segment, count in each),
        "+".join(modules): "" not in counts and all(counts[name] == there[name] for name in modules),
    }
    return next((kind for kind, there in kinds.items() if there), "segments")


def _module(profile: Profile, segment: Sequence[Layer]) -> str:
    """Which of MODULES a segment is; empty: none."""
    first, kind = segment[0], segment[0].kind
    if len(segment) == 1:
        alone = {"core_attn": kind == "attention", "layernorm": "norm" in kind}
        alone["moe_act"] = kind == "activation" and first.routing is not None
        return next((name for name, there in alone.items() if there), "")
    if not first.sums_inputs or any(layer.kind == "attention" for layer in segment):
        return ""
    readers = [profile.layers[reader] for layer in segment for reader in profile.consumers[profile.index[layer.name]]]
    if all(reader.kind == "attention" for reader in readers):
        return "mla_up_proj"
    return "moe" if any(layer.routing for layer in segment) else "mlp"


def recomputed_otherwise(shape: PlanShape, nearest: str) -> str:
    """What a runtime does that recomputes the `nearest` of RECOMPUTATION to what the plan does."""
    modules = shape.recomputation.replace("+", " and ") if shape.recomputation != "segments" else "other segments"
    return f"it recomputes {RECOMPUTATION[nearest]}; the plan {RECOMPUTATION.get(shape.recomputation, modules)}"


def _require_regular(
    name: str, sharding: Sharding, home: tuple[int, ...], data: int, model: int, *, experts: bool
) -> None:
    """Raise InputError unless a layer is on its stage's devices: by sample, or by sample and `model` ways otherwise.

    Experts may moreover be split by width, each over fewer replicas.
    """
    samples, channels, height, width = sharding.degrees
    parts = channels * height * sharding.reduce * sharding.copy
    alone = samples == len(home) == data or (data == 1 and parts == len(home))
    grid = samples == data and parts in (1, model)
    if experts and width > 1:
        grid, width = len(sharding.devices) % len(home) == 0, 1
    if set(sharding.devices) != set(home) or width > 1 or not (alone or grid):
        raise InputError(f"layer {name!r}: it is split otherwise than its stage; {_ELSEWHERE}")


def left_out(plan: Plan, shape: PlanShape) -> Iterator[str]:
    """What of the plan's synchronisation no runtime here does as the plan says."""
    synchronisation = plan.synchronisation
    if shape.data > 1 and synchronisation.collective in ("ps", "ps-workers"):
        yield f"gradients go through an all-reduce, not through parameter servers ({synchronisation.collective})"
    elif shape.data > 1 and synchronisation.collective != "ring":
        yield f"the collective library chooses how gradients are summed; {synchronisation.collective} was simulated"
    if synchronisation.compression_ratio != 1:
        yield f"gradients are not compressed (the plan: to 1/{synchronisation.compression_ratio:g})"
    if plan.states.gradient_dtype:
        yield f"gradients are kept in {plan.states.gradient_dtype}: set it there"
    if schedules.load(plan.schedule).stashes_weights:
        yield f"weights have one version; {plan.schedule}'s stashed versions are not kept"


_ELSEWHERE = "none of these runtimes runs that; `shardscope execute` does"


def _stages(profile: Profile, plan: Plan) -> list[tuple[str, ...]]:
    """Layers by stage; a plan without a pipeline schedule is cut where its devices change."""
    if plan.schedule != "dataflow":
        sharded = ShardedModel(profile, plan)
        return [tuple(profile.layers[layer].name for layer in layers) for layers in sharded.stages]
    stages: list[list[str]] = []
    before: frozenset[int] | None = None
    for layer in profile.layers:
        home = frozenset(plan.placements[layer.name].devices)
        if home != before:
            stages.append([])
        stages[-1].append(layer.name)
        before = home
    return [tuple(names) for names in stages]
