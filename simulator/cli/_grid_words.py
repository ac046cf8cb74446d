"""What is said of the grids of a language model: names, a table for people, figures for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from simulator.cli._answers import Priced, dollars, dollars_per_million, within
from simulator.cli._tables import TextTable, new_table
from simulator.language_models.training_grid import DEGREES
from simulator.parameter_states import ParameterStates

if TYPE_CHECKING:
    from partitioners._grids.ranking import Ranking, SimulatedGrid
    from simulator.language_models.training_grid import TrainingGrid

MAY_GO = ("virtual", "bubble", "90% range", "MFU", "$/M tokens", "tok/s/GPU", "GiB", "data", "strategy", "fits")
"""Columns that a narrow terminal does not get; the last follow from the others, of grids that all run."""


def table(named: Sequence[SimulatedGrid]) -> TextTable:
    """A row per grid, the best of its split; a price only where there is one."""
    varying = {name for each in named for name in each.grid.degrees}
    degrees = [name for name in DEGREES if name == "data" or name in varying]
    rows = [_cells(each, degrees) for each in named]
    shown = [title for title in rows[0] if any(row[title] for row in rows)]
    drawn = new_table("strategy", *shown[1:-1], last="fits")
    for row in rows:
        drawn.add_row(*(row[title] for title in shown))
    return drawn


def _cells(each: SimulatedGrid, degrees: Sequence[str]) -> dict[str, str]:
    """By the titles of their columns; empty where a grid has none."""
    grid, report = each.grid, each.report
    price = dollars(dollars_per_million(report, Priced(name="tokens", per_sample=each.card.sequence)))
    return {
        "strategy": grid.strategy,
        **{degree: grid.degrees.get(degree, "1") for degree in degrees},
        "virtual": str(grid.chunks) if grid.chunks > 1 else "",
        "zero": f"{grid.zero_stage} by {grid.shard_group}" if grid.shard_group else str(grid.zero_stage),
        "recompute": grid.recomputation if grid.recomputation != "none" else "",
        "micro": f"{grid.microbatch} x {grid.accumulation}",
        "step s": f"{report.step_s:.3f}",
        "90% range": within(each.interval),
        "tok/s/GPU": f"{each.tokens_per_s / grid.devices:,.0f}",
        "MFU": f"{each.mfu:.1%}",
        "$/M tokens": price if report.dollars_per_step is not None else "",
        "bubble": f"{report.bubble_ratio:.0%}",
        "GiB": f"{report.peak_memory_bytes / 2**30:.1f}",
        "fits": {"fits": "yes"}.get(report.fit, report.fit),
    }


def left_out(ranking: Ranking, top: int) -> Iterator[str]:
    """Splits of which no grid runs, with the reason of the one that needs least."""
    running = {split_words(grid) for grid in (*ranking.bounded, *(each.grid for each in ranking.runs))}
    reasons: dict[tuple[str, ...], tuple[float, str]] = {}
    unfit = [(each.grid, each.report.peak_memory_bytes, each.report.verdict) for each in ranking.simulated]
    unfit += [
        (grid, bound.peak_bytes, f"needs at least {bound.peak_bytes / 2**30:.1f} GiB")
        for grid, bound in ranking.too_large
    ]
    unfit += [(grid, float("inf"), reason) for grid, reason in ranking.refused]
    for grid, needed_bytes, reason in unfit:
        if split_words(grid) not in running:
            split = split_words(grid)
            reasons[split] = min(reasons.get(split, (float("inf"), reason)), (needed_bytes, reason))
    if reasons:
        yield f"{len(reasons)} split{'s' * (len(reasons) > 1)} cannot run, whatever the micro-batch; why, at the least:"
    ordered = sorted(reasons.items(), key=lambda item: len(item[0]))
    for split, (_, reason) in ordered[:top]:
        yield f"  {' x '.join(split)}: {reason}"
    if len(ordered) > top:
        yield f"  and {len(ordered) - top} more"


def split_words(grid: TrainingGrid) -> tuple[str, ...]:
    return (*_degrees(grid), f"ZeRO-{grid.zero_stage}")


def grid_words(grid: TrainingGrid) -> tuple[str, ...]:
    """The same with virtual stages and groups that share states, where there are any."""
    chunks = (f"virtual stages {grid.chunks}",) if grid.chunks > 1 else ()
    states = ParameterStates(stage=grid.zero_stage, group=grid.shard_group)
    return (*_degrees(grid), *chunks, states.words)


def micro_words(grid: TrainingGrid) -> str:
    """Its micro-batches, and what of them is recomputed."""
    again = f", {grid.recomputation} recomputation" if grid.recomputation != "none" else ""
    return f"{grid.microbatch} x {grid.accumulation}{again}"


def _degrees(grid: TrainingGrid) -> tuple[str, ...]:
    """Those above 1, by name."""
    return tuple(f"{name} {degree}" for name, degree in grid.degrees.items())


def row(each: SimulatedGrid, of_card: str = "") -> dict[str, object]:
    """A grid for programs; seconds are of a step, per device those of the one that computes most. of_card: what
    `simulate` is told of the card beside its name."""
    from partitioners._grids.grid_plan import simulate_options

    grid, report, interval = each.grid, each.report, each.interval
    device = max(report.devices, key=lambda device: device.compute_s)
    return {
        "strategy": grid.strategy, "data": grid.data, "context": grid.context, "tensor": grid.tensor,
        "pipeline": grid.pipeline, "chunks": grid.chunks, "expert": grid.expert,
        "expert_tensor": grid.expert_tensor, "zero_stage": grid.zero_stage, "shard_group": grid.shard_group,
        "recomputation": grid.recomputation, "microbatch": grid.microbatch, "accumulation": grid.accumulation,
        "step_s": report.step_s, "low_s": interval.low_s, "high_s": interval.high_s,
        "tokens_per_s": each.tokens_per_s, "mfu": each.mfu, "bubble": report.bubble_ratio, "fit": report.fit,
        "reason": report.verdict, "dollars": report.dollars_per_step, "peak_bytes": report.peak_memory_bytes,
        "compute_s": device.compute_s, "exposed_communication_s": device.exposed_communication_s,
        "launch_s": device.launch_s, "bottleneck": str(report.bottleneck),
        "simulate": simulate_options(grid) + of_card,
    }  # fmt: skip
