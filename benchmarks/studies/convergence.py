"""Print a section of docs/convergence.md. Usage: python -m benchmarks.studies.convergence SECTION [--plot FILE]

From the stored curves, the stored profile and the stored real trainings (docs/convergence.json, which
`python -m benchmarks.studies.demonstration` makes). `interconnects` simulates for some minutes.
`python -m benchmarks.pages.pasted` puts the sections into the page.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterable, Iterator, Sequence
from math import inf
from pathlib import Path

from benchmarks.studies import convergence_plots as plots
from benchmarks.studies.demonstrated import DemonstratedPlan, Demonstration
from benchmarks.studies.demonstration import STORED
from benchmarks.studies.interconnects import DEVICES, LATENCY_S, STRATEGIES, Best, compared
from simulator import files
from simulator.convergence.curve_files import read_curves
from simulator.convergence.curves import Curves, Regime, noise_scale
from simulator.convergence.noise_scale import fitted, over_training
from simulator.units import format_time

MODEL, TARGET, CUT = "vgg_digits", 0.97, "hypergraph's cut"
PUBLISHED = {
    "ResNet-18, CIFAR-10": ((128, 1.0), (1024, 1.17), (4096, 1.65)),
    "ResNet-50, ImageNet": ((200, 1.0), (3200, 1.17), (12800, 1.61)),
}
"""Samples to the same final metric beside those of the smallest batch (Qiao et al., OSDI 2021, their traces)."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Print a section of docs/convergence.md.")
    parser.add_argument("section", choices=("samples", "growth", "demonstration", "interconnects"))
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the section's picture (needs matplotlib)")
    args = parser.parse_args()
    print(_printed(args.section, args.plot))


def _printed(name: str, picture: Path | None) -> str:
    """The section called `name`; its picture is drawn where there is a file for it."""
    if name == "growth":
        return section()
    curves = read_curves(MODEL)
    if name == "samples":
        if picture:
            plots.samples(curves, TARGET, picture)
        return curves_section(curves)
    if name == "demonstration":
        shown = files.read_json(STORED, Demonstration)
        if picture:
            plots.demonstration(shown, curves, picture)
        return demonstration_section(shown)
    best = list(compared(files.read_profile(MODEL), curves, TARGET))
    if picture:
        plots.interconnects(best, picture)
    return interconnects_section(best)


def section() -> str:
    """The published growth of samples with the batch, beside the noise-scale model fitted to its ends."""
    rows = []
    for name, points in PUBLISHED.items():
        (first, _), (middle, published), (last, growth) = points
        least, scale = fitted([first, last], [1.0, growth])
        ours = least * (1 + middle / scale)
        rows.append((name, f"{first} and {last}", f"{scale:,.0f}", str(middle), f"{published:.2f}x", f"{ours:.3f}x",
                     f"{ours / published - 1:+.1%}"))  # fmt: skip
    header = ("training", "fitted at", "noise scale", "batch", "published", "model", "error")
    return (
        "## Published growth of samples with the batch\n\nSamples to the same final metric over those of the smallest "
        "batch (Pollux's traces). The noise-scale model is fitted to the ends; the middle is its prediction.\n\n"
        + table(header, rows)
    )


def curves_section(curves: Curves) -> str:
    """Samples to the target in every regime."""
    rows = [_regime_row(curves, regime) for regime in curves.by_regime]
    fit, measured = noise_scale(curves, TARGET), over_training(curves.noise)
    return (
        f"## What a sample is worth\n\n`{curves.command}` on {curves.device}: {len(curves.trials)} trainings. "
        f"{curves.notes}.\n\n"
        + table(("regime", "learning rate", "samples", "of the trials", "updates"), rows)
        + f"\n\nThe gradient noise scale fitted to the synchronous medians is {fit:.1f} samples; measured from "
        f"gradients alone, with the two-batch estimator along a training, it is {measured:.1f}. Above it, samples "
        "grow with the batch.\n\n![Samples to the target](convergence-samples.png)"
    )


def _regime_row(curves: Curves, regime: Regime) -> tuple[str, ...]:
    samples = curves.samples_to(TARGET, regime).interval
    high = "never" if samples.high == inf else f"{samples.high:,.0f}"
    rate = curves.by_regime[regime][0].learning_rate
    updates = f"{samples.median / regime.batch_size:,.0f}"
    return str(regime), f"{rate:g}", f"{samples.median:,.0f}", f"{samples.low:,.0f} to {high}", updates


def demonstration_section(demonstration: Demonstration) -> str:
    """Predicted and real time to the target for each plan and network."""
    rows = [_shown_row(demonstration, group) for group in grouped(demonstration)]
    errors = [_error(demonstration, group) for group in grouped(demonstration)]
    steps = [_step_error(group) for group in grouped(demonstration)]
    first = demonstration.shown[0]
    seeds = sorted({training.alone.seed for training in demonstration.shown})
    median, low, high = first.predicted_samples
    actual = statistics.median(training.reached(demonstration.target) for training in grouped(demonstration)[0])
    within = sum(abs(error) <= 0.15 for error in errors)
    loads = [training.load for training in demonstration.shown]
    return (
        f"## Real trainings in the shaped network\n\n`sudo python -m benchmarks.studies.demonstration`: "
        f"{demonstration.model} on {demonstration.dataset}, batch {first.batch_size}, "
        f"until {demonstration.target:.0%}, {demonstration.machine}, seeds {seeds[0]} to "
        f"{seeds[-1]}. {METHOD}\n\n"
        + table(("plan", "Mbit/s", "step", "predicted", "error", "to target", "predicted", "interval", "error"), rows)
        + f"\n\nSteps are off by {statistics.fmean(map(abs, steps)):.1%} on average and {max(map(abs, steps)):.1%} at "
        f"most, times to the target by {statistics.fmean(map(abs, errors)):.1%} and {max(map(abs, errors)):.1%}; "
        f"{within} of {len(errors)} are within 15 %. {ranking(demonstration)} The trials took {median:,.0f} samples "
        f"({low:,.0f} to {high:,.0f}), these seeds took {actual:,.0f} in the median. Other programs ran beside: load "
        f"{min(loads):.0f} to {max(loads):.0f}.\n\n"
        "![Accuracy over wall-clock](convergence-demonstration.png)\n\n" + one_curve(demonstration)
    )


def one_curve(demonstration: Demonstration) -> str:
    rows = []
    for strategy in dict.fromkeys(training.strategy for training in demonstration.shown):
        trainings = [training for training in demonstration.shown if training.strategy == strategy]
        pairs = [
            (training.reached(demonstration.target), training.alone.samples_to(demonstration.target))
            for training in trainings
        ]
        more = statistics.fmean(ours / alone - 1 for ours, alone in pairs)
        rows.append((strategy, f"{max(training.difference for training in trainings):.4f}", f"{more:+.1%}"))
    header = ("plan", "accuracy, at most", "samples to the target, mean")
    return (
        "### One curve for all synchronous plans\n\nPlans of one global batch compute the same gradients. In float64 "
        "every plan has one process's accuracy at every look "
        "(`tests/test_training.py`). In float32, as here, sums are rounded in another order, which training amplifies; "
        "how far each run's accuracy was from one process with the same seed:\n\n" + table(header, rows)
    )


def ranking(demonstration: Demonstration) -> str:
    """Whether predictions rank the plans as the runs do, network by network."""
    sentences = []
    for mbit in dict.fromkeys(training.network.mbit for training in demonstration.shown):
        groups = [group for group in grouped(demonstration) if group[0].network.mbit == mbit]
        real = sorted(groups, key=lambda group: _seconds(demonstration, group))
        expected = sorted(groups, key=lambda group: group[0].predicted_step_s)
        names = " < ".join(group[0].strategy for group in real)
        verdict = "as predicted" if real == expected else "not as predicted"
        sentences.append(f"At {mbit} Mbit/s: {names}, {verdict}.")
    return " ".join(sentences)


def interconnects_section(best: Sequence[Best]) -> str:
    """Time to the target by strategy and bandwidth."""
    rates = list(dict.fromkeys(point.rate for point in best))
    rows = []
    for strategy in STRATEGIES:
        by_rate = {point.rate: point for point in best if point.strategy == strategy}
        rows.append((strategy, *(_best_cell(by_rate.get(rate)) for rate in rates)))
    return (
        f"## Which strategy reaches the target first\n\n{MODEL} to {TARGET:.0%} on {DEVICES} devices, each a core of "
        f"the profile's Xeon, and one server on a switch, latency {LATENCY_S * 1e6:.0f} us per link, simulated. Every "
        "strategy at its own best batch (in brackets); asynchronous servers and PipeDream pay for the age of their "
        "gradients. The hypergraph's cut is the best that KaHyPar finds; the strategy also weighs the others.\n\n"
        + table(("strategy", *rates), rows)
        + "\n\n"
        + verdict(best)
        + "\n\n![Time to the target by interconnect](convergence-interconnects.png)"
    )


def _best_cell(point: Best | None) -> str:
    return "never" if point is None else f"{format_time(point.median_s)} ({point.batch_size})"


def verdict(best: Sequence[Best]) -> str:
    """Where hypergraph plans reach the target first, and where they do not."""
    rates = list(dict.fromkeys(point.rate for point in best))
    seconds = {(point.rate, point.strategy): point.median_s for point in best}
    least = {rate: min(point.median_s for point in best if point.rate == rate) for rate in rates}

    def where(strategy: str) -> str:
        first_on = [rate for rate in rates if seconds.get((rate, strategy), inf) <= least[rate] * 1.001]
        return " and ".join(first_on) or "none of them"

    ahead = [rate for rate in rates if seconds[rate, CUT] < seconds[rate, "data, ring"]]
    return (
        f"The thesis's conclusion, checked: a cut of the hypergraph alone is first on {where(CUT)}; it is before data "
        f"parallelism at {' and '.join(ahead) or 'none'}. The hypergraph strategy, which also weighs other strategies' "
        f"plans, is first (alone or with the one whose plan it took) on {where('hypergraph')}; one device alone is as "
        f"fast on {where('one device')}."
    )


def grouped(demonstration: Demonstration) -> list[list[DemonstratedPlan]]:
    """The trainings of one plan in one network, all seeds together."""
    groups: dict[tuple[int, str], list[DemonstratedPlan]] = {}
    for training in demonstration.shown:
        groups.setdefault((training.network.mbit, training.strategy), []).append(training)
    return list(groups.values())


def _shown_row(demonstration: Demonstration, group: Sequence[DemonstratedPlan]) -> tuple[str, ...]:
    first = group[0]
    step_s = statistics.median(each.step_s for each in group)
    expected = [samples / first.batch_size * first.predicted_step_s for samples in first.predicted_samples]
    return (
        first.strategy,
        str(first.network.mbit),
        format_time(step_s),
        format_time(first.predicted_step_s),
        f"{_step_error(group):+.1%}",
        format_time(_seconds(demonstration, group)),
        format_time(expected[0]),
        f"{format_time(expected[1])} to {format_time(expected[2])}",
        f"{_error(demonstration, group):+.1%}",
    )


def _seconds(demonstration: Demonstration, group: Sequence[DemonstratedPlan]) -> float:
    return statistics.median(training.seconds_to(demonstration.target) for training in group)


def _error(demonstration: Demonstration, group: Sequence[DemonstratedPlan]) -> float:
    """Signed relative error of the predicted time to the target."""
    first = group[0]
    return first.predicted_samples[0] / first.batch_size * first.predicted_step_s / _seconds(demonstration, group) - 1


def _step_error(group: Sequence[DemonstratedPlan]) -> float:
    return group[0].predicted_step_s / statistics.median(training.step_s for training in group) - 1


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(cells)} |"

    def lines() -> Iterator[str]:
        yield line(header)
        yield line(["---", *("--:" for _ in header[1:])])
        yield from map(line, rows)

    return "\n".join(lines())


METHOD = """Processes talk through gloo (`traces/convergence`); the batch is near the noise scale. Predicted
from a profile, a calibration and 20 trials in one process, of other seeds. A time is the median over the seeds of the
sum of the steps until the accuracy was first there; a step lasts from the common start of all ranks to the end of its
last task. The first choices, batch 256 and 128, were given up after one seed: samples to the target vary too
much there. The trials went from 5 to 20 after the first miss, so the errors are those of a setup that was chosen."""


if __name__ == "__main__":
    main()
