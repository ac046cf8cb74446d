"""A plan as Megatron-LM's arguments: of a card a whole command, of other networks a script to be completed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from simulator.errors import InputError, require
from simulator.exports.launch import Launch
from simulator.exports.plan_shape import NAMELESS, PlanShape, grid_of, recomputed_otherwise
from simulator.language_models.model_card import ModelCard
from simulator.language_models.training_grid import TrainingGrid
from simulator.plan import Plan
from simulator.plan_rules import COMBINED
from simulator.workload import DTYPE_BYTES, Profile

SCHEDULES = ("1f1b", "interleaved", COMBINED)


def check(plan: Plan, shape: PlanShape) -> None:
    """Raise InputError where replicas differ, the schedule is not Megatron's or its FSDP would not shard experts."""
    if len(set(shape.shares)) > 1:
        raise InputError(f"plan: replicas have {', '.join(map(str, shape.shares))} samples, and Megatron's as many")
    if len(shape.stages) > 1 and plan.schedule not in SCHEDULES:
        raise InputError(f"plan: schedule {plan.schedule!r} is none of Megatron's: {', '.join(SCHEDULES)}")
    _require_dense(plan.states.stage, shape.expert)


def _require_dense(zero_stage: int, expert: int) -> None:
    if zero_stage >= 2 and expert > 1:
        raise InputError(
            f"zero_stage is {zero_stage} with experts on {expert} devices: its FSDP shards dense "
            f"blocks; take zero_stage 1 or torchtitan"
        )


def _require_joinable(grid: TrainingGrid) -> None:
    """Raise InputError where Megatron-LM asserts what combined 1F1B lacks (`TransformerConfig.__post_init__`)."""
    if grid.schedule == COMBINED:
        spread = grid.expert > 1 and (grid.pipeline == 1 or grid.chunks > 1)
        rule = "experts on several devices, in a pipeline virtual stages, and no recomputation of whole blocks"
        require(spread and grid.recomputation != "full", "schedule", COMBINED, f"Megatron-LM needs {rule} for it")


def limits(plan: Plan, shape: PlanShape) -> Iterator[str]:
    if shape.card:
        yield from _lacking(shape.card)
    else:
        yield "Megatron trains the models that it defines; add their arguments"
    if not shape.whole_blocks and (shape.card or len(set(shape.blocks)) > 1):
        counts = ", ".join(map(str, shape.blocks))
        yield f"Megatron gives every stage as many whole transformer layers; the plan's stages have {counts}"
    if shape.recomputation in NAMELESS:
        yield recomputed_otherwise(shape, "full")
    yield from _own_layers(plan.states.stage, shape.tensor)
    if plan.synchronisation.half_precision:
        yield "gradients are summed in their own precision, not in 16 bits"


def text(plan: Plan, shape: PlanShape, command: str, lines: list[str], profile: Profile, torchrun: str) -> str:
    """The script, which begins with `torchrun`, as of `launch`."""
    grid = grid_of(plan, shape)
    _require_joinable(grid)
    arguments = [*_spread(grid, sums=plan.synchronisation.overlap)]
    if shape.card:
        launch = Launch(card=shape.card, grid=grid, blocks=shape.blocks if shape.whole_blocks else ())
        arguments = [*_network(launch), *_experts(launch), *arguments, *_stages(launch)]
    else:
        arguments += [*_of_profile(profile, grid)]
    if shape.data > 1 and plan.synchronisation.overlap:
        bucket = plan.synchronisation.bucket_bytes // DTYPE_BYTES[profile.dtype]
        arguments.append(f"--ddp-bucket-size {bucket}")
    comments = [f"# exported by: {command}", *(f"# not as planned: {line}" for line in lines)]
    return "\n".join(["#!/bin/sh", *comments, _run(grid, torchrun, [*arguments, '"$@"']), ""])


def _of_profile(profile: Profile, grid: TrainingGrid) -> Iterator[str]:
    """What a profile says of a network that is no card's."""
    yield f"--num-virtual-stages-per-pipeline-rank {grid.chunks}" if grid.chunks > 1 else ""
    yield "--bf16" if profile.dtype == "bfloat16" else ""
    if routing := next((layer.routing for layer in profile.layers if layer.routing), None):
        yield f"--num-experts {routing.experts} --moe-router-topk {routing.top_k}"
        yield _shared_experts(grid)


def _run(grid: TrainingGrid, torchrun: str, arguments: Iterable[str]) -> str:
    """The command with arguments in lines, without empty ones."""
    serial = "CUDA_DEVICE_MAX_CONNECTIONS=1 " if grid.zero_stage < 2 and grid.tensor * grid.context > 1 else ""
    return " \\\n  ".join([f"{serial}{torchrun} pretrain_gpt.py", *filter(None, arguments)])


def command(launch: Launch) -> str:
    """pretrain_gpt.py for a grid of a card. Raises InputError where Megatron-LM would refuse it."""
    card, grid = launch.card, launch.grid
    if grid.recomputation == "op":
        raise InputError("recomputation is op: Megatron-LM recomputes modules or blocks; take torchtitan")
    _require_dense(grid.zero_stage, grid.expert)
    _require_joinable(grid)
    if grid.context > 1 and card.sequence % (2 * grid.context):
        raise InputError(f"context is {grid.context}: Megatron-LM cuts {card.sequence} tokens into twice as many parts")
    lines = (*_network(launch), *_experts(launch), *_spread(grid, overlaps=launch.overlaps), *_stages(launch))
    return _run(grid, launch.torchrun, lines)


def otherwise(launch: Launch) -> Iterator[str]:
    """What Megatron-LM does otherwise than planned."""
    yield from _lacking(launch.card)
    yield from _own_layers(launch.grid.zero_stage, launch.grid.tensor)


def _lacking(card: ModelCard) -> Iterator[str]:
    """What of a card it has not."""
    if card.norm_vectors == 0 or (card.norm_vectors == 1 and card.positions):
        yield "norms have a vector for each channel and a bias"
    lacking = {
        "the norm behind the embedding": card.embedding_norm,
        "sinks of the attention": card.sinks,
        "the norms behind attention and feed-forward layer": card.norms == 4,
        "one norm for attention and feed-forward layer": card.norms == 1,
        f"the attention's window of {card.window} tokens": card.window,
    }
    yield from (f"it has not {what}" for what, there in lacking.items() if there)


def _own_layers(zero_stage: int, tensor: int) -> Iterator[str]:
    if zero_stage == 2 or (zero_stage == 3 and tensor > 1):
        yield "its FSDP gathers and scatters by layers of its own choice"


def _network(launch: Launch) -> Iterator[str]:
    card = launch.card
    ffn = card.dense_ffn if card.dense_layers else card.ffn
    yield f"--mtp-num-layers {card.next_tokens}" if card.next_tokens else ""
    blocks = card.layers - card.next_tokens
    yield f"--num-layers {blocks} --hidden-size {card.hidden} --num-attention-heads {card.heads}"
    yield f"--ffn-hidden-size {ffn} --seq-length {card.sequence} --max-position-embeddings {card.sequence}"
    if of := card.latent:
        ranks = f"--kv-lora-rank {of.key_rank}" + (f" --q-lora-rank {of.query_rank}" if of.query_rank else "")
        yield f"--multi-latent-attention {ranks} --qk-head-dim {of.key_width} --qk-pos-emb-head-dim {of.rotary}"
        yield f"--v-head-dim {of.value_width}"
    elif card.width * card.heads != card.hidden:
        yield f"--kv-channels {card.width}"
    if card.key_heads != card.heads:
        yield f"--group-query-attention --num-query-groups {card.key_heads}"
    switches = {
        "--swiglu": card.gated, "--normalization RMSNorm": card.norm_vectors == 1,
        "--disable-bias-linear": not card.biases, "--add-qkv-bias": card.qkv_biases,
        "--qk-layernorm": card.query_key_norm or card.latent, "--position-embedding-type rope": not card.positions,
        "--untie-embeddings-and-output-weights": not card.tied_embeddings,
    }  # fmt: skip
    yield " ".join(option for option, on in switches.items() if on)
    dropped = "0.1" if card.dropout else "0.0"  # its own default is 0.1
    yield f"--attention-dropout {dropped} --hidden-dropout {dropped}"
    yield f"--tokenizer-type NullTokenizer --vocab-size {card.vocabulary} --{launch.precision}"


def _experts(launch: Launch) -> Iterator[str]:
    card, grid = launch.card, launch.grid
    if not card.experts:
        return
    yield f"--num-experts {card.experts} --moe-router-topk {card.experts_per_token} --moe-ffn-hidden-size {card.ffn}"
    yield _shared_experts(grid, "flex --moe-enable-deepep" if launch.overlaps else "alltoall")
    if card.expert_groups > 1:
        yield f"--moe-router-num-groups {card.expert_groups} --moe-router-group-topk {card.groups_per_token}"
    if card.shared_ffn:
        yield f"--moe-shared-expert-intermediate-size {card.shared_ffn}"
    if card.dense_layers:
        routed = card.layers - card.next_tokens - card.dense_layers
        yield f'--moe-layer-freq "([0]*{card.dense_layers}+[1]*{routed})"'


def _shared_experts(grid: TrainingGrid, dispatcher: str = "alltoall") -> str:
    alone = " --expert-tensor-parallel-size 1" if grid.whole_experts else ""
    return f"--expert-model-parallel-size {grid.expert}{alone} --moe-token-dispatcher-type {dispatcher}"


def _spread(grid: TrainingGrid, *, overlaps: bool = False, sums: bool = True) -> Iterator[str]:
    """sums: whether gradients are summed beside the backward pass, as its FSDP does, and asserts, in any case."""
    yield f"--tensor-model-parallel-size {grid.tensor} --pipeline-model-parallel-size {grid.pipeline}"
    yield f"--micro-batch-size {grid.microbatch} --global-batch-size {grid.batch}"
    yield "--sequence-parallel" if grid.tensor > 1 and grid.sequence_parallel else ""
    yield "--tp-comm-overlap" if overlaps and grid.tensor > 1 and grid.sequence_parallel else ""
    yield "--overlap-moe-expert-parallel-comm" if grid.schedule == COMBINED else ""
    yield f"--context-parallel-size {grid.context} --cp-comm-type p2p" if grid.context > 1 else ""
    if grid.replicas > 1 and (sums or grid.zero_stage >= 2):
        yield "--overlap-grad-reduce" + " --overlap-param-gather" * (grid.zero_stage > 0)
    if grid.zero_stage == 1:
        yield "--use-distributed-optimizer"
    if grid.zero_stage >= 2:
        sharded = "optim_grads" if grid.zero_stage == 2 else "optim_grads_params"
        yield "--use-megatron-fsdp --use-distributed-optimizer --ckpt-format fsdp_dtensor"
        yield f"--data-parallel-sharding-strategy {sharded}"
    if grid.zero_stage and grid.shard_group:
        yield f"--num-distributed-optimizer-instances {grid.replicas // grid.shard_group}"
    if grid.recomputation == "full":
        yield "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"
    elif grid.recomputation != "none":
        modules = "core_attn" if grid.recomputation == "selective" else grid.recomputation.replace("+", " ")
        yield f"--recompute-granularity selective --recompute-modules {modules}"


def _stages(launch: Launch) -> Iterator[str]:
    grid, blocks, further = launch.grid, launch.blocks, launch.card.next_tokens
    even, more = divmod(launch.card.layers, grid.pipeline * grid.chunks)
    equal = [even + (stage < more) for stage in range(grid.pipeline * grid.chunks)]
    if grid.layout and not grid.layout.replace(",", "").isdecimal():
        named = re.sub(r"t(?:\*(\d+))?(?=,?L)", lambda last: _blocks(int(last[1] or 1), further), grid.layout)
        yield f'--pipeline-model-parallel-layout "{named if further else grid.layout}"'
    elif grid.layout:
        yield f'--pipeline-model-parallel-layout "{layout([*map(int, grid.layout.split(","))], further)}"'
    elif grid.chunks > 1 and len(set(blocks)) < 2 and not further:
        yield f"--num-virtual-stages-per-pipeline-rank {grid.chunks}"
    elif len(blocks) > 1 and (len(set(blocks)) > 1 or launch.card.layers % grid.pipeline):
        yield f'--pipeline-model-parallel-layout "{layout(blocks, further)}"'
    elif launch.card.layers % grid.pipeline or (further and grid.pipeline > 1):
        yield f'--pipeline-model-parallel-layout "{layout(equal, further)}"'


def layout(blocks: Sequence[int], further: int = 0) -> str:
    """Stages as Megatron-LM writes them: E the embedding, t a block, m one of the last that predict `further` tokens, L
    the loss."""
    return "E" + "|".join([*map(_blocks, blocks[:-1]), _blocks(blocks[-1], further)]) + "L"


def _blocks(count: int, further: int = 0) -> str:
    """A stage of so many. Raises InputError where it has fewer than predict further tokens, which the last all has."""
    require(count >= further, "next_tokens", further, f"their blocks are on the last stage, which has {count}")
    return f"t*{count - further}" * (count > further) + "m" * further
