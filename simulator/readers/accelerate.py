"""Hugging Face accelerate's YAML with FSDP, beside which --model says what is trained."""

from __future__ import annotations

from dataclasses import replace

from simulator.readers._source import Source, StartedRun, count_in, grid_of

STAGES = {"FULL_SHARD": 3, "SHARD_GRAD_OP": 2, "NO_SHARD": 0, "HYBRID_SHARD": 3, "1": 3, "2": 2, "3": 0}


def recognises(source: Source) -> bool:
    return "distributed_type" in source.content or "fsdp_config" in source.content


def read(source: Source) -> StartedRun:
    """Raises InputError without a model. The micro-batch is not in the file: one sequence is taken."""
    content = source.content
    fsdp = content.get("fsdp_config")
    fsdp = fsdp if isinstance(fsdp, dict) else {}
    processes, machines = count_in(content, "num_processes", 0), count_in(content, "num_machines", 0) or 1
    if processes:
        source = replace(source, nodes=machines, processes=processes // machines)
    named = str(fsdp.get("fsdp_sharding_strategy", "FULL_SHARD")).upper()
    again = fsdp.get("fsdp_reshard_after_forward")
    stage = STAGES.get(named, 3) if fsdp else 0
    if isinstance(again, bool):  # FSDP 2 says that alone
        stage = 3 if again else 2
    grid = grid_of(source, recomputation="full" if fsdp.get("fsdp_activation_checkpointing") else "none")
    precision = {"no": "fp32"}.get(str(content.get("mixed_precision", "no")), str(content.get("mixed_precision")))
    offloads = ("fsdp_offload_params",) if fsdp.get("fsdp_offload_params") else ()
    group = source.processes if named == "HYBRID_SHARD" and source.processes and machines > 1 else 0
    grid = replace(grid, zero_stage=stage if grid.data > 1 else 0, shard_group=group)
    return StartedRun(
        runtime="fsdp2", card=source.read_card(), grid=grid,
        precision=precision, unread=(*offloads, "micro-batch: one sequence is taken"),
    )  # fmt: skip
