"""DeepSpeed's JSON, beside which --model says what is trained."""

from __future__ import annotations

from dataclasses import replace

from simulator.readers._source import Options, Source, StartedRun, grid_of

KEYS = ("zero_optimization", "train_micro_batch_size_per_gpu", "train_batch_size", "gradient_accumulation_steps")


def recognises(source: Source) -> bool:
    return any(key in source.content for key in KEYS)


def read(source: Source) -> StartedRun:
    """Raises InputError without a model or devices; a value "auto" counts as not said."""
    content = source.content
    zero = content.get("zero_optimization")
    zero = zero if isinstance(zero, dict) else {}
    own = Options({name: (str(value),) for name, value in content.items() if value != "auto"}, source.name)
    microbatch = own.count("train_micro_batch_size_per_gpu", default=0)
    again = own.count("gradient_accumulation_steps", default=0)
    batch = own.count("train_batch_size", default=0) or None
    if not microbatch:
        microbatch = max(1, (batch or source.world) // source.world // (again or 1))
    stage = zero.get("stage", 0)
    grid = grid_of(source, microbatch=microbatch, batch=batch, accumulation=again or (None if batch else 1))
    halves = [name for name in ("bf16", "fp16") if isinstance(content.get(name), dict) and content[name].get("enabled")]
    unread = [
        f"zero_optimization.{name}" for name in sorted(zero) if name.startswith(("offload", "zero_hpz", "zero_quant"))
    ]
    return StartedRun(
        runtime="fsdp2",
        card=source.read_card(),
        grid=replace(grid, zero_stage=stage if isinstance(stage, int) and grid.data > 1 else 0),
        precision=halves[0] if halves else "fp32",
        unread=tuple(unread),
    )
