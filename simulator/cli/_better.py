"""What would be better than what was started: the best grids for the same step, and the difference in arguments."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from time import perf_counter
from typing import TYPE_CHECKING

from simulator.cli import _grid_words, _grids, _printing, _started_run
from simulator.errors import InputError
from simulator.readers._source import source_of
from simulator.terminal import say

if TYPE_CHECKING:
    from partitioners._grids.ranking import SimulatedGrid
    from simulator.cli._started_run import PlannedRun
    from simulator.language_models.training_grid import TrainingGrid
    from simulator.plan import Plan

Options = Mapping[str, Sequence[str]]
"""By name, what follows each."""
OTHERWISE = {
    "recompute-activations": "recompute-granularity",
    "num-layers-per-virtual-pipeline-stage": "num-virtual-stages-per-pipeline-rank",
}
"""Options of Megatron-LM, by which our lines say the same."""


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
    planned: PlannedRun, step_s: float, verdict: str, runs: Sequence[SimulatedGrid], changed: tuple[str, ...] | None
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


def _changes(planned: PlannedRun, runs: Sequence[SimulatedGrid]) -> Iterator[tuple[str, ...]]:
    """Of those grids that the runtime can run, the change of its own options; where it has none the whole command."""
    from simulator.exports.launch import launch_command

    started = planned.started

    def command(grid: TrainingGrid, plan: Plan | None = None) -> str:
        gpu = planned.stack.accelerator
        return launch_command(started.runtime, started.card, grid, gpu, plan, overlaps=started.overlaps)

    asked = {"overlap-grad-reduce": started.overlaps_sums, "overlap-param-gather": started.overlaps_gathers}
    try:
        said = _options(command(started.grid)) if started.options else {}
    except InputError:
        return
    before = {name: words for name, words in said.items() if asked.get(name, True)}
    for each in runs:
        with suppress(InputError):
            best = command(each.grid, each.plan)
            yield _change(started.options, before, _options(best)) if started.options else tuple(best.splitlines())


def _options(command: str) -> Options:
    """The runtime's: torchrun's stand before its script."""
    return source_of(command, None, None, None).options


def _change(own: Options, before: Options, after: Options) -> tuple[str, str]:
    """What of its own to leave out, and what to add, where `before` is how we say what it says."""
    changed = {name for name in {**before, **after} if before.get(name) != after.get(name)}
    gone = [name for name in own if OTHERWISE.get(name, name) in changed and own[name] != after.get(name)]
    added = [name for name in after if name in changed and own.get(name) != after[name]]
    return f"leave out: {_typed(own, gone)}", f"add: {_typed(after, added)}"


def _typed(options: Options, names: Sequence[str]) -> str:
    words = (word for name in names for word in (name if ":" in name else f"--{name}", *options[name]))
    return shlex.join(words) or "nothing"
