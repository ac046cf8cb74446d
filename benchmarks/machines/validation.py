"""The tables of the documentation out of the validations that the dashboard ships.

    python -m benchmarks.machines.validation suites           print a table: suites, field; of home accuracy or runs
    python -m benchmarks.machines.validation --ship FOLDER    ship what `shardscope validate --output FOLDER` wrote
    python -m benchmarks.machines.validation --pack FOLDER    ship FOLDER of a field suite, with the tasks of its runs
    python -m benchmarks.machines.validation --add FOLDER     the same beside the runs that are shipped

`python -m benchmarks.pages.pasted --write` then puts the tables into the pages.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from benchmarks.machines.rival_formulas import PlainStep, plain_step
from benchmarks.pages.published import table
from dashboard.state.validations import FIELD, SHIPPED, Stored, at_hand
from simulator import collectives, files
from simulator.cli.validate import row
from simulator.owned_files import temporary_folder
from traces.results.validation_cases import Case
from traces.results.validations import DISTURBED, ValidatedRun, Validation, summarised


def main() -> None:
    parser = argparse.ArgumentParser(description="The tables of the shipped validation.")
    parser.add_argument("table", nargs="?", choices=("suites", "accuracy", "runs", "field"))
    parser.add_argument("--ship", type=Path, metavar="FOLDER", help="make FOLDER's validation the shipped one")
    parser.add_argument("--pack", type=Path, metavar="FOLDER", help="make FOLDER the shipped validation with tasks")
    parser.add_argument("--add", type=Path, metavar="FOLDER", help="add FOLDER's runs to the shipped ones with tasks")
    args = parser.parse_args()
    if args.add:
        with temporary_folder() as name:
            print(f"{FIELD.name}: {pack(joined(FIELD, args.add, Path(name)), FIELD)} runs with their tasks")
    if args.pack:
        print(f"{FIELD.name}: {pack(args.pack, FIELD)} runs with their tasks, {FIELD.stat().st_size / 1e3:.0f} kB")
    if args.ship:
        shutil.copy(args.ship / "validation.json", SHIPPED)
    if args.table:
        stored = at_hand()
        if args.table == "suites":
            print(suites(stored["field"], stored["home"]))
        else:
            tables = {"accuracy": accuracy, "runs": runs, "field": field}
            print(tables[args.table](stored["field" if args.table == "field" else "home"].validation))


def pack(folder: Path, archive: Path) -> int:
    """Write what explains the runs of a validation's folder into an archive; returns how many timelines it holds."""
    read = ("validation.json", "profiles/*", "clusters/*", "overheads/*", "plans/*", "timelines/*")
    paths = [path for pattern in read for path in sorted(folder.glob(pattern))]
    with ZipFile(archive, "w") as packed:
        for path in paths:  # undated, so that the same folder gives the same archive
            packed.writestr(ZipInfo(path.relative_to(folder).as_posix()), path.read_bytes(), ZIP_DEFLATED, 9)
    return sum(path.suffix == ".npz" for path in paths)


def joined(archive: Path, folder: Path, into: Path) -> Path:
    """Write the runs of an archive and those of a validation's folder into one; a run of the same name counts once.

    The folder's files are kept where both have them: profiles, clusters, what runtimes add.
    """
    ZipFile(archive).extractall(into)
    older, newer = (files.read_json(path / "validation.json", Validation) for path in (into, folder))
    shutil.copytree(folder, into, dirs_exist_ok=True)
    by_name = {outcome.case.name: outcome for outcome in (*older.outcomes, *newer.outcomes)}
    outcomes = tuple(sorted(by_name.values(), key=lambda outcome: -abs(outcome.error)))
    files.write_json(replace(newer, outcomes=outcomes), into / "validation.json")
    return into


def suites(field: Stored, home: Stored) -> str:
    """Both suites and their kinds of run, with what the plainest formulas say of the same runs."""
    of_field, of_home = field.validation.outcomes, home.validation.outcomes
    latest = sorted(of_field, key=lambda outcome: outcome.rounds[0].date, reverse=True)
    seeds = list(dict.fromkeys(seed_of(outcome.case) for outcome in latest))[:2]
    named = " and ".join(map(str, sorted(seeds)))
    groups = {
        "**field suite**": of_field,
        f"its latest passes, seeds {named}": [x for x in of_field if seed_of(x.case) in seeds],
        **_by_kind(of_field),
    }
    formulas = {x.case.name: plain_step(field.folder, x.case) for x in of_field} if field.folder else {}
    rows = [_beside_formulas(name, outcomes, formulas) for name, outcomes in groups.items()]
    rows += [
        _beside_formulas(name, group, {}) for name, group in {"**home suite**": of_home, **_by_way(of_home)}.items()
    ]
    head = ["runs", "number", "mean absolute error", "bias", "worst", "within the interval"]
    return table([*head, "no overlap: mean", "bias", "perfect overlap: mean", "bias"], rows)


def _beside_formulas(
    name: str, outcomes: Sequence[ValidatedRun], formulas: Mapping[str, PlainStep | None]
) -> list[object]:
    """A row of `suites`; formulas: of runs by name, where they are known."""
    known = [(x, step) for x in outcomes if (step := formulas.get(x.case.name)) is not None]
    if not known:
        return [*_covered_row(name, outcomes), *[""] * 4]
    errors = [[step.no_overlap_s / x.actual_s - 1 for x, step in known]]
    errors += [[step.perfect_overlap_s / x.actual_s - 1 for x, step in known]]
    cells = [
        f"{statistics.fmean(values):{sign}.1%}"
        for each in errors
        for values, sign in ((map(abs, each), ""), (each, "+"))
    ]
    return [*_covered_row(name, outcomes), *cells]


def _by_kind(outcomes: Sequence[ValidatedRun]) -> dict[str, list[ValidatedRun]]:
    kinds: dict[str, list[ValidatedRun]] = {}
    for outcome in outcomes:
        kinds.setdefault(_kind(outcome), []).append(outcome)
    return dict(sorted(kinds.items()))


def _by_way(outcomes: Sequence[ValidatedRun]) -> dict[str, list[ValidatedRun]]:
    """By what ran them."""
    names = {"ddp": "data parallel, DDP", "pipelining": "pipeline, torch", "execute": "our executor, all strategies"}
    return {name: [x for x in outcomes if x.case.via == via] for via, name in names.items()}


def machine(stored: Validation) -> str:
    """Where and when the runs were made, and what else the machine did."""
    rounds = [run for outcome in stored.outcomes for run in outcome.rounds]
    dates = sorted(run.date for run in rounds)
    loads = [run.load for run in rounds]
    stolen = [run.stolen_share for run in rounds if run.stolen_share is not None]
    host = (
        f" Of their core time the machine's host took {statistics.median(stolen):.1%} in the median of "
        f"{len(stolen)} runs, at most {max(stolen):.1%}."
        if stolen
        else ""
    )
    last = dates[-1][-5:] if dates[0][:10] == dates[-1][:10] else dates[-1]
    return (
        f"{dates[0]} to {last} UTC, {stored.machine} each, {stored.cores} cores, torch "
        f"{stored.software['torch']}, Python {stored.software['python']}. Processes in the run queue as a run began: "
        f"median {statistics.median(loads):.1f}, at most {max(loads):.1f}, those of the run before included.{host}"
    )


def accuracy(stored: Validation) -> str:
    """Errors by kind of run."""
    rows = [_summary(kind, outcomes) for kind, outcomes in _by_kind(stored.outcomes).items()]
    worst_bytes = summarised(stored.outcomes).worst_bytes_error
    return "\n\n".join(
        [
            table(
                ["runs", "number", "mean absolute error", "bias", "worst"],
                [*rows, _summary("**all**", list(stored.outcomes))],
            ),
            f"Predicted and counted bytes agree within {abs(worst_bytes):.1%} in every run.",
        ]
    )


def runs(stored: Validation) -> str:
    """Every run, worst first."""
    header = ["run", "predicted", "actual", "spread", "drift", "error"]
    header += ["MB sent", "counted", "MB held", "measured", "load"]
    ordered = sorted(stored.outcomes, key=lambda outcome: -abs(outcome.error))
    return table(header, [[*row(outcome), f"{outcome.load:.1f}"] for outcome in ordered])


def field(stored: Validation) -> str:
    """The field suite by kind of run, pass and day, as predicted beforehand and with devices as fast as in the runs."""
    passes: dict[str, list[ValidatedRun]] = {}
    days: dict[str, list[ValidatedRun]] = {}
    for outcome in stored.outcomes:
        passes.setdefault(f"all of seed {seed_of(outcome.case)}", []).append(outcome)
        days.setdefault(f"all of {outcome.rounds[0].date[:10]}", []).append(outcome)
    head = ["runs", "number", "mean absolute error", "bias", "worst", "within the interval"]
    head += ["at the run's speed: mean", "bias", "worst"]
    groups = _by_kind(stored.outcomes)
    for several in (passes, days):
        groups |= dict(sorted(several.items())) if len(several) > 1 else {}
    disturbed = [outcome for outcome in stored.outcomes if outcome.disturbed]
    if disturbed:
        others = [outcome for outcome in stored.outcomes if not outcome.disturbed]
        groups[f"whose host took over {DISTURBED:.0%} of the core time"] = disturbed
        groups |= {"all others": others} if others else {}
    rows = [_field_row(name, outcomes) for name, outcomes in groups.items()]
    return "\n\n".join([machine(stored), table(head, [*rows, _field_row("**all**", list(stored.outcomes))])])


def _field_row(kind: str, outcomes: list[ValidatedRun]) -> list[object]:
    at_run_speed = summarised(outcomes).at_run_speed
    if at_run_speed is None:
        return [*_covered_row(kind, outcomes), "", "", ""]
    mean, bias, worst = at_run_speed
    return [*_covered_row(kind, outcomes), f"{mean:.1%}", f"{bias:+.1%}", f"{worst:+.1%}"]


def _covered_row(kind: str, outcomes: Sequence[ValidatedRun]) -> list[object]:
    covered = summarised(outcomes).covered
    return [*_summary(kind, outcomes), "" if covered is None else f"{covered:.0%}"]


def _kind(outcome: ValidatedRun) -> str:
    case = outcome.case
    if case.straggler is not None:
        return "data parallel, DDP, a straggler"
    if case.via == "ddp":
        return f"data parallel, DDP, {case.network.ranks} ranks"
    if case.via == "pipelining":
        return f"pipeline, torch, {case.options['schedule']}"
    return (
        "parameter server, executor"
        if collectives.load(case.collective).updates_on_server
        else f"{case.strategy}, executor"
    )


def _summary(kind: str, outcomes: Sequence[ValidatedRun]) -> list[object]:
    summary = summarised(outcomes)
    errors = f"{summary.mean_absolute_error:.1%}", f"{summary.bias:+.1%}", f"{summary.worst_error:+.1%}"
    return [kind, summary.runs, *errors]


def seed_of(case: Case) -> int:
    """The seed that a run of the field suite was drawn from."""
    return int(case.model.rsplit("_", 2)[1])


if __name__ == "__main__":
    main()
