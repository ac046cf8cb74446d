"""Rank partitioning strategies by simulated step time, or by time to accuracy.

    shardscope compare vgg_digits --cluster cpu-1g --devices 2 --to-accuracy 0.97
    shardscope compare llama3-8b --cluster dgx-h100 --devices 64
    shardscope compare --launch train.sh --cluster dgx-h100

Of a model card (`shardscope model` lists them) every grid of data, context, tensor, pipeline and expert parallelism is
ranked, with ZeRO and recomputation: bounded first, then simulated until the best are certain; the best one's launch
command is printed. A strategy that cannot be built for this network and cluster is listed with the reason.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from simulator import files
from simulator.cli import _accuracy, _better, _effects, _grids, _options, _printing, _started_run, _strategy
from simulator.cli._answers import Priced, answer, best_change, dollars, dollars_per_million, priced, within
from simulator.cli._printing import Shown, print_trace, say_notes
from simulator.cli._tables import new_table, print_table
from simulator.errors import InputError, MissingExtraError, require
from simulator.language_models.card_files import is_card
from simulator.one_line_parser import count, option
from simulator.terminal import say
from simulator.units import counted, format_bytes, format_time

if TYPE_CHECKING:
    from partitioners import StrategyChoice
    from partitioners._choice_search import JudgedChoice
    from simulator.cluster import Cluster
    from simulator.convergence.time_to_accuracy import CostToAccuracy
    from simulator.plan import StepSettings
    from simulator.report.interval import StepInterval
    from simulator.report.metrics import Report
    from simulator.run import Run
    from simulator.workload import Profile

_MAY_GO = ("balance", "bubble", "speed-up", "samples/s", "$/million", "how", "sent", "90% range")
"""Columns of a comparison that a narrow terminal does not get."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    cards = _options.add_inputs(parser, started=True)
    _started_run.add_arguments(parser)
    text = "names with commas between, or all (default), which leaves out those that are there to be beaten"
    option(parser, "--strategies NAMES", text, default="all")
    option(parser, "--microbatches M", "micro-batches per batch, for strategies that pipeline", count)
    option(parser, "--trace-out FILE", "write a trace of the best that ui.perfetto.dev opens")
    _options.add_output(parser, "the reports, best first,")
    _options.add_work(parser)
    _accuracy.add_arguments(parser)
    _strategy.add_arguments(parser)
    _grids.add_arguments(cards)


def run(args: argparse.Namespace) -> int:
    from partitioners._choice_search import best_of_strategy
    from simulator.convergence.time_to_accuracy import cost_to_accuracy, regime_of
    from simulator.lowering.sharded_model import ShardedModel
    from simulator.run import expected_interval
    from simulator.run import run as simulate

    if _started_run.is_asked(args):
        return _better.run(args)
    if is_card(args.profile):
        return _grids.run(args)
    profile = files.read_profile(args.profile)
    _effects.refuse(_effects.typed(args) & {*_grids.OWN}, "counts only where PROFILE is a model card; leave it out")
    names = strategy_names(args.strategies)
    _effects.check_step(args)
    _effects.check_strategies(args, names)
    curves = _accuracy.read(args, profile)
    cluster = _options.read_cluster(args, args.sync)
    done: dict[str, JudgedChoice] = {}
    reached: dict[str, CostToAccuracy] = {}
    failed: dict[str, str] = {}
    with _printing.progress() as progress:
        for number, name in enumerate(names, start=1):
            if progress:
                progress(f"{name}, strategy {number} of {len(names)}")
            try:
                step, own = _step(name, profile, cluster, args)
                result = best_of_strategy(name, profile, cluster, step, own, seed=args.seed, zero=args.zero)
                if curves is not None:
                    regime, speed = regime_of(ShardedModel(profile, result.plan)), result.report.samples_per_s
                    reached[name] = cost_to_accuracy(curves, args.to_accuracy, regime, cluster, speed)
                done[name] = result
            except (InputError, MissingExtraError) as error:
                failed[name] = str(error)
    if not done and len(set(failed.values())) == 1:  # what is wrong is not a strategy
        raise InputError(next(iter(failed.values())))

    def order(name: str) -> tuple[bool, float]:
        report = done[name].report
        return not report.fits, reached[name].seconds.median if reached else report.step_s

    ranked = sorted(done, key=order)
    runs = [done[name] for name in ranked]
    best = runs[0] if runs else None
    if args.trace_out and best:
        _printing.write_trace(simulate(profile, cluster, best.plan, runtime=best.runtime), cluster, args.trace_out)
    reports = [each.report for each in runs]
    intervals = [expected_interval(each.report, profile, cluster, each.plan, each.runtime) for each in runs]
    notes = [*_printing.machine_notes(profile, cluster, args.strict), *_effects.notes(args, reports, cluster)]
    if args.json:
        rows: list[dict[str, object]] = [
            {"strategy": name, "simulate": each.choice.words,
             "report": {**each.report.to_dict(), "interval": asdict(interval)}}
            | ({"to_accuracy": reached[name].to_dict()} if reached else {})
            for name, each, interval in zip(ranked, runs, intervals, strict=True)
        ]  # fmt: skip
        rows += [{"strategy": name, "error": why} for name, why in failed.items()]
        _printing.print_json({"strategies": rows}, *notes)
    else:
        shown = _printing.Shown(
            of=priced(profile),
            change=best_change(profile, cluster, best.plan, best.runtime, best.report) if best else "",
            batch_note=_options.batch_note(profile, args),
            notes=notes,
            trace=args.trace_out,
            failed=failed,
            verbose=args.verbose,
        )
        ways = [each.choice for each in runs]
        print_comparison(profile, cluster, reports, intervals, ways, shown)
        if curves is not None:
            _accuracy.print_reached(curves, {name: reached[name] for name in ranked})
    return 0 if done else 2


def strategy_names(text: str) -> list[str]:
    """The strategies asked for; an unknown one is an error, not a row."""
    import partitioners

    if text == "all":
        return [name for name in partitioners.strategies() if name not in partitioners.BASELINES]
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in names:
        partitioners.load(name)
    known = ", ".join(partitioners.strategies())
    require(len(names) > 0, "strategies", repr(text), f"it names at least one; known: {known}")
    return names


def simulate_strategy(name: str, profile: Profile, cluster: Cluster, args: argparse.Namespace) -> Run:
    """The plan that `simulate` makes by a strategy, simulated. Raises InputError where it cannot be built."""
    import partitioners
    from simulator.run import run as simulate

    step, own = _step(name, profile, cluster, args)
    plan = partitioners.make_plan(name, profile, cluster, step, seed=args.seed, **own)
    return simulate(profile, cluster, plan, runtime=step.runtime)


def _step(
    name: str, profile: Profile, cluster: Cluster, args: argparse.Namespace
) -> tuple[StepSettings, dict[str, Any]]:
    """What is asked of a step, and options of the strategy."""
    import partitioners

    # Micro-batches keep the stages of a pipeline busy; beside one they would only make the kernels smaller.
    takes_all = args.strategies == name or "schedule" in partitioners.options(name)
    step = {"microbatches": args.microbatches, "schedule": args.schedule} if takes_all else {}
    return _options.step_settings(profile, cluster, args, **step, **_strategy.read(args, name, alone=False))


def print_comparison(
    profile: Profile,
    cluster: Cluster,
    reports: Sequence[Report],
    intervals: Sequence[StepInterval],
    ways: Sequence[StrategyChoice],
    shown: Shown,
) -> None:
    """The answer of the best; a row per strategy, fastest first; those that could not be built; notes.

    ways: what each report is of.
    """
    batch = f", batch {reports[0].batch_size}{shown.batch_note}" if reports else ""
    say(f"{profile.model} on {cluster.name}, {counted(cluster.workers, 'device')}{batch}")
    for report, interval in list(zip(reports, intervals, strict=True))[:1]:
        first, *others = answer(report, cluster, interval, shown.change, shown.of)
        how = _how(ways[0], report)
        say(f"best: {report.strategy}, {how + ', ' if how else ''}{first}")
        say(*others)
        print()
    rows = [_comparison_row(*each, shown.of) for each in zip(reports, intervals, ways, strict=True)]
    columns = list(rows[0])[1:-1] if rows else ["step"]
    table = new_table("strategy", *columns, last="bottleneck")
    for row in rows:
        table.add_row(*row.values())
    for name in shown.failed:
        table.add_row(name, *("-" for _ in columns), "cannot be built")
    print_table(table, _MAY_GO)
    for name, why in shown.failed.items():
        say(why if why.startswith(name) else f"{name}: {why}")
    for report in reports:
        if report.verdict:
            say(f"{report.strategy}: {report.verdict}")
    say_notes([*shown.notes, *_sizes(reports, shown.verbose)])
    print_trace(shown.trace if reports else None)


def _how(choice: StrategyChoice, report: Report) -> str:
    """A choice in a few words, empty where a strategy's defaults are all."""
    options = {name: value for name, value in choice.own.items() if name not in ("judged", "objective")}
    own = [_option(name, value) for name, value in options.items()]
    counts = [f"{report.microbatches} micro-batches"] if report.microbatches > 1 else []
    zero = [choice.step.states.words] if choice.step.states.stage else []
    return ", ".join([*own, *counts, *zero])


def _option(name: str, value: object) -> str:
    return f"{'' if value else 'no '}{name}" if isinstance(value, bool) else f"{name} {value}"


def _comparison_row(report: Report, interval: StepInterval, choice: StrategyChoice, of: Priced) -> dict[str, str]:
    """Cells by the titles of their columns; a price only where there is one."""
    costs = {"$/million": dollars(dollars_per_million(report, of))} if report.dollars_per_step is not None else {}
    return {
        "strategy": report.strategy,
        "how": _how(choice, report),
        "step": format_time(report.step_s),
        "90% range": within(interval) if interval.parts else "-",
        f"{of.name}/s": f"{report.samples_per_s * of.per_sample:,.1f}",
        "speed-up": f"{report.speedup:.2f}x",
        **costs,
        "balance": f"{report.load_balance_ratio:.3f}",
        "sent": format_bytes(report.communication_bytes.total),
        "peak memory": format_bytes(report.peak_memory_bytes),
        "fits": {"fits": "yes", "does not fit": "no"}.get(report.fit, report.fit),
        "bubble": f"{report.bubble_ratio:.1%}",
        "bottleneck": f"{report.bottleneck.resource} {report.bottleneck.share:.0%}",
    }


def _sizes(reports: Sequence[Report], verbose: bool) -> Iterator[str]:
    """Which strategies compute at sizes that were not measured; verbose: of each, at which, and its step for it."""
    unmeasured = [report for report in reports if report.sizes_note]
    if verbose:
        for report in unmeasured:
            band = f"; step {' to '.join(map(format_time, report.step_band_s))}" if report.step_band_s else ""
            yield f"{report.strategy}, {report.sizes_note}{band}"
        return
    typical = [report.strategy for report in unmeasured if report.step_band_s is not None]
    if typical:
        yield (
            f"{_names(typical)}: the profile lacks sizes that it computes at; the typical curve of such devices "
            "stands in, and the 90% range counts it"
        )
    unknown = [report.strategy for report in unmeasured if report.step_band_s is None]
    if unknown:
        yield (
            f"{_names(unknown)}: the profile lacks sizes that it computes at; they are taken in proportion, "
            "how far off is not known"
        )


def _names(strategies: Sequence[str]) -> str:
    """One by name, more by their number."""
    return strategies[0] if len(strategies) == 1 else f"{len(strategies)} of these strategies"
