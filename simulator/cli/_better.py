"""What would be better than what was started: the best grids for the same step, and the difference in arguments."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import TYPE_CHECKING

from simulator.cli import _grid_words, _grids, _printing, _started_run
from simulator.errors import InputError
from simulator.terminal import say

if TYPE_CHECKING:
    from partitioners._grids.simulated_grid import SimulatedGrid
    from simulator.cli._started_run import PlannedRun


def run(args: argparse.Namespace) -> int:
    """Rank the grids for the batch and the devices of the run that was started. Raises InputError where none fits."""
    from partitioners._grids.ranking import ranked_grids
    from simulator.run import step_report

    _started_run.check_options(args)
    planned = _started_run.planned(args)
    started, own = planned.started, planned.simulated
    report = step_report(own.profile, own.cluster, own.plan, runtime=own.runtime)
    ends_s = perf_counter() + (args.budget or _grids.BUDGET_S)
    with _printing.progress() as progress:
        ranking = ranked_grids(
            started.card, own.profile, planned.cluster, planned.stack, started.grid.batch, top=args.top or 5,
            progress=progress, time_left_s=lambda: ends_s - perf_counter(),
        )  # fmt: skip
    runs = [each for each in ranking.runs if each.report.step_s < report.step_s]
    changed = next(_changes(planned, runs), None)
    if args.json:
        rows = [_grid_words.row(each) for each in runs]
        _printing.print_json({"own_step_s": report.step_s, "own_fit": report.fit, "better": rows, "change": changed})
        return 0
    say(*_lines(planned, report.step_s, report.verdict, runs, changed))
    return 0


def _lines(
    planned: PlannedRun, step_s: float, verdict: str, runs: Sequence[SimulatedGrid], changed: tuple[str, str] | None
) -> Iterator[str]:
    fit = f" ({verdict})" if verdict else ""
    if runs:
        best = runs[0].report.step_s
        split = ", ".join(_grid_words.grid_words(runs[0].grid))
        yield f"yours {step_s:.3f} s a step{fit}; best {best:.3f} s, {1 - best / step_s:.0%} less: {split}"
    else:
        yield f"yours {step_s:.3f} s a step{fit}: no grid of {planned.started.grid.devices} devices is faster"
    yield planned.started.described()
    yield f"modelled with {planned.stack.name} on {planned.cluster.name}, the same batch"
    if changed:
        yield from ("", *changed)
    for unread in planned.started.unread:
        yield f"not counted: {unread}"


def _changes(planned: PlannedRun, runs: Sequence[SimulatedGrid]) -> Iterator[tuple[str, str]]:
    """What to leave out of the arguments and what to add, for those grids that the runtime can run."""
    from simulator.exports.launch import launch_command

    started, gpu, overlaps = planned.started, planned.stack.accelerator, planned.started.overlaps
    try:
        before = _words(launch_command(started.runtime, started.card, started.grid, gpu, overlaps=overlaps))
    except InputError:
        return
    for each in runs:
        try:
            after = _words(launch_command(started.runtime, started.card, each.grid, gpu, each.plan, overlaps=overlaps))
        except InputError:
            continue
        gone, added = (
            " ".join(word for word in here if word not in there) for here, there in ((before, after), (after, before))
        )
        yield f"leave out: {gone or 'nothing'}", f"add: {added or 'nothing'}"


def _words(command: str) -> list[str]:
    """The runtime's options with what follows each: torchrun's stand before its script."""
    text = " ".join(line.rstrip("\\") for line in command.splitlines() if not line.startswith("#"))
    words: list[str] = []
    for word in re.split(r"\S+\.py\b|-m \S+", text, maxsplit=1)[-1].split():
        if word.startswith("-") or not words:
            words.append(word)
        else:
            words[-1] += f" {word}"
    return words
