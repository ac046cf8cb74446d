"""DeepSpeed's JSON, beside which --model says what is trained and Trainer's options what is "auto"."""

from __future__ import annotations

import re
from dataclasses import replace

from simulator.errors import require
from simulator.readers._source import DTYPES, Options, Source, StartedRun, flat, grid_of

KEYS = ("zero_optimization", "train_micro_batch_size_per_gpu", "train_batch_size", "gradient_accumulation_steps")
CHANGES = re.compile(
    r"^(zero_optimization\.(offload_\w+\.device|zero_hpz|zero_quant|mics_shard)|activation_checkpointing\.(?!profile)|"
    r"data_types|optimizer\.type|pipeline\.)"
)
NOTHING = (" -1", " 0", " 1")
"""Ends of what is left that change nothing: groups of one, or of all."""
ADAM = dict.fromkeys(("Adam", "AdamW", "adam", "adamw", "FusedAdam"), "adam")


def recognises(source: Source) -> bool:
    return any(key in source.content for key in KEYS)


def read(source: Source) -> StartedRun:
    """Raises InputError without a model or devices; a value "auto" counts as not said."""
    line = {name.replace("-", "_"): tuple(map(str.lower, words)) for name, words in source.options.items()}
    said = {name: words for name, words in flat(source.content).items() if words != ("auto",)}
    own = Options({**line, **said}, source.name)
    microbatch = own.count("train_micro_batch_size_per_gpu", "per_device_train_batch_size", default=0)
    again = own.count("gradient_accumulation_steps", default=0)
    batch = own.count("train_batch_size", default=0) or None
    tensor = own.count("tensor_parallel.autotp_size", default=1) or 1
    context = own.count("sequence_parallel_size", default=1) or 1
    unread = [] if microbatch or batch else ["micro-batch: one sequence is taken"]
    if not microbatch:
        replicas = max(1, source.world // (tensor * context))
        microbatch = max(1, (batch or replicas) // replicas // (again or 1))
    grid = grid_of(
        source, tensor=tensor, context=context, sequence_parallel=tensor == 1, microbatch=microbatch, batch=batch,
        accumulation=again or (None if batch else 1),
        recomputation="full" if own.has("gradient_checkpointing") else "none",
    )  # fmt: skip
    rule = f"it is {grid.batch}: {grid.data} replicas x {grid.accumulation} micro-batches of {grid.microbatch}"
    require(batch in (None, grid.batch), "train_batch_size", batch, rule)
    stage = own.count("zero_optimization.stage", default=int(own.has("zero_optimization")))
    precision = next((name for name in ("bf16", "fp16") if own.has(f"{name}.enabled", name)), "fp32")
    gradients = own.named("data_types.grad_accum_dtype", DTYPES) or DTYPES[precision]
    sent = own.text("communication_data_type")
    own.named("optimizer.type", ADAM)
    unread += [each for each in own.left(CHANGES) if not each.endswith(NOTHING)]
    unread += [f"communication_data_type {sent}"] if sent and DTYPES.get(sent) != gradients else []
    unread += [f"sequence_parallel_size {context}: exchanged as ring attention"] if context > 1 else []
    return StartedRun(
        runtime="fsdp2",
        card=source.read_card(),
        grid=replace(grid, zero_stage=stage if grid.replicas > 1 else 0),
        precision=precision,
        gradient_dtype=gradients,
        unread=tuple(unread),
    )
