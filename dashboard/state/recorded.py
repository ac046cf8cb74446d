"""What was recorded, in one verdict: a trace or a log beside the step of the controls, ranks beside each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median_low

from dashboard.state.hardware import sequence_length, utilisation
from dashboard.state.simulating import Outcome
from simulator.errors import InputError
from simulator.readers._log import RunLog, read_log, steady
from simulator.report.step_causes import NOT_ENOUGH, alone, beside, farthest_off, step_causes
from simulator.units import format_time
from traces.imports._aligned_ranks import align_ranks
from traces.imports._rank_verdict import answer, changed
from traces.imports._ranks import read_ranks
from traces.imports._recorded_phases import read_phases


def of_ranks(folder: Path) -> list[str]:
    """What the traces in a folder say, one per rank of a step. Raises InputError."""
    aligned = align_ranks(read_ranks(folder))
    return [*answer(aligned), *changed(aligned)]


def of_trace(path: Path, outcome: Outcome) -> list[str]:
    """A trace of one rank beside the predicted step of its device. Raises InputError."""
    recorded = read_phases(path)
    return list(_beside(recorded.steps_s, outcome, recorded.causes_s, recorded.rank))


def of_log(path: Path, outcome: Outcome) -> list[str]:
    """The steady steps of a log, or times alone, beside the predicted step. Raises InputError."""
    log = read_log(path)
    steps = steady(_steps_s(log, outcome), log.marks)
    apart = "".join(f"; apart: {count} of {name}" for name, count in steps.apart.items())
    spread = f"8 of 10 from {format_time(steps.low_s)} to {format_time(steps.high_s)}"
    return [*_beside([steps.step_s], outcome, {}), f"{steps.count} steps are steady, {spread}{apart}"]


def _steps_s(log: RunLog, outcome: Outcome) -> list[float]:
    """Seconds of each step, whatever the log says of its speed: by the FLOP of the profile and its devices' peak."""
    report, cluster, profile = outcome.report, outcome.cluster, outcome.profile
    if report is None or cluster is None:
        raise InputError(f"there is no step to compare it with: {outcome.reason}")
    sequence = sequence_length(profile) or 1
    flops_per_token = 3 * sum(layer.flops for layer in profile.layers) / profile.batch_size / sequence
    tokens, busy = report.batch_size * sequence, utilisation(profile, cluster, report)
    if (log.kind == "mfu" and not busy) or (log.kind == "device_tflops" and not flops_per_token):
        raise InputError(f"the log says {log.kind} alone, which this model on these devices has not: give step times")
    peak = flops_per_token * tokens / report.step_s / busy if busy else 1.0
    return log.steps_s(tokens, sequence, outcome.configuration.devices, flops_per_token, peak)


def _beside(
    steps_s: Sequence[float], outcome: Outcome, causes_s: Mapping[str, float], rank: int | None = None
) -> Iterator[str]:
    """The recorded steps beside the step of the controls: whether it is as predicted, and what explains it else."""
    if outcome.interval is None:
        raise InputError(f"there is no step to compare it with: {outcome.reason}")
    yield from beside(steps_s, outcome.interval)
    if outcome.run is None:
        return
    run, uses = outcome.run, outcome.run.report.devices
    device = rank if rank in run.plan.devices else max(run.plan.devices, key=lambda number: uses[number].compute_s)
    predicted_s = step_causes(run.graph, run.timeline, device, uses[device])
    if causes_s:
        yield from farthest_off(causes_s, predicted_s)
        return
    longer = alone(predicted_s, median_low(steps_s) - run.report.step_s)
    enough = [f"{cause} {words}" for cause, words in longer.items() if words != NOT_ENOUGH]
    if enough:
        yield f"any of these alone would explain it: {', '.join(enough)}"
