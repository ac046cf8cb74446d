"""The plans that FSDP2 and tensor parallelism run: placements, states and recomputed segments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.parallel_runtimes.tensor_parallel import Split
from simulator.errors import InputError
from simulator.parameter_states import ParameterStates
from simulator.plan import Plan, Sharding, Synchronisation
from simulator.workload import Profile

BETWEEN = ("attention", "gelu")
"""Layers between a column and a row layer of a transformer's block: they compute their own part of the channels."""


def segments(profile: Profile, blocks: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """The layers of each block. Raises InputError where a block has none."""
    inside = tuple(tuple(x.name for x in profile.layers if x.name.startswith(f"{block}.")) for block in blocks)
    for block, layers in zip(blocks, inside, strict=True):
        if not layers:
            raise InputError(f"blocks: {block!r} holds no layer of profile {profile.model!r}")
    return inside


def fsdp_plan(
    profile: Profile,
    ranks: int,
    batch_size: int,
    blocks: Sequence[str],
    *,
    resharded: bool = True,
    recomputed: bool = False,
    microbatches: int = 1,
) -> Plan:
    """ZeRO-3 (or, not resharded after the forward pass, ZeRO-2) over all ranks; what follows the last block is a unit.

    Units are buckets, so blocks are of one size here. Nothing is gathered ahead: collectives block on a CPU.
    """
    inside = segments(profile, blocks)
    sizes = {sum(profile.layers[profile.index[name]].parameter_bytes for name in layers) for layers in inside}
    after = profile.layers[max(profile.index[name] for name in inside[-1]) + 1 :]
    return Plan(
        model=profile.model,
        batch_size=batch_size,
        microbatches=microbatches,
        placements=_everywhere(profile, Sharding(degrees=(ranks, 1, 1, 1), devices=tuple(range(ranks)))),
        states=ParameterStates(stage=3, keep_gathered=not resharded, prefetch=0, each_microbatch=microbatches > 1),
        synchronisation=Synchronisation(
            bucket_bytes=max(sizes), first_bucket_bytes=sum(layer.parameter_bytes for layer in after)
        ),
        recomputed=inside if recomputed else (),
        strategy="fsdp",
    )


def tensor_plan(
    profile: Profile,
    ranks: int,
    batch_size: int,
    blocks: Sequence[str],
    splits: Mapping[str, Split],
    *,
    recomputed: bool = False,
) -> Plan:
    """Column layers by channel, row layers by reduce, what lies between by channel; the rest is on every rank."""
    devices = tuple(range(ranks))
    column, row = Sharding(degrees=(1, ranks, 1, 1), devices=devices), Sharding(reduce=ranks, devices=devices)
    placements = _everywhere(profile, Sharding(copy=ranks, devices=devices))
    inside = segments(profile, blocks)
    for name in (name for layers in inside for name in layers):
        if splits.get(name) == "column" or name.rpartition(".")[2] in BETWEEN:
            placements[name] = column
        elif splits.get(name) == "row":
            placements[name] = row
    return Plan(
        model=profile.model,
        batch_size=batch_size,
        placements=placements,
        exchange="collectives",
        recomputed=inside if recomputed else (),
        strategy="tensor",
    )


def _everywhere(profile: Profile, sharding: Sharding) -> dict[str, Sharding]:
    return {layer.name: sharding for layer in profile.layers}
