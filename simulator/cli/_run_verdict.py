"""Is a run as fast as it should be: its log beside the step that its configuration is predicted to take.

docs/run_check.md has the policy and where its thresholds are from.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simulator.cli import _printing, _started_run
from simulator.errors import InputError, require
from simulator.terminal import say
from simulator.units import format_time

if TYPE_CHECKING:
    from simulator.cli._run_causes import TriedCause
    from simulator.cli._started_run import PlannedRun
    from simulator.readers._log import RunLog, SteadySteps

OTHER_SOFTWARE = (0.80, 1.35)
"""Measured over predicted, of 9 in 10 published steps of other software than the stack's (docs/accuracy.md: 19 steps of
NeMo, torchtitan and Megatron-LM are from 0.84 to 1.33)."""
OWN_SOFTWARE = (0.87, 1.15)
"""The same of the stack's own (docs/accuracy.md, Ultra-Scale Playbook)."""
MOST_MFU = 0.85
"""Of the dense peak of its products: no published training step reaches it."""
FEWER_PARAMETERS = 1.2
"""Times: the log's model is another than the configuration's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunVerdict:
    """A word of VERDICTS, what was measured and expected, and why."""

    word: str
    measured_s: float
    predicted_s: float
    low_s: float
    high_s: float
    mfu: float
    """Model FLOPs of a step over the dense bf16 peak of all devices, attention counted."""
    causes: tuple[str, ...] = ()
    """What explains it, the likeliest first."""
    measure: tuple[str, ...] = ()
    """How each of the first two is measured."""
    excluded: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def lines(self) -> tuple[str, str]:
        """What is to be read first."""
        expected = f"{format_time(self.low_s)} to {format_time(self.high_s)} expected"
        ratio = self.measured_s / self.predicted_s
        times = f"{ratio:.2f} times the {format_time(self.predicted_s)} predicted"
        cause = self.causes[0] if self.causes else "not explained" if self.word == SLOWER else "nothing to explain"
        return f"{self.word}: {format_time(self.measured_s)} a step, {expected}; {times}", cause


AS_EXPECTED, SLOWER, TOO_FAST, FASTER = (
    "as expected", "slower than 9 of 10 such steps", "faster than possible", "faster than 9 of 10 such steps",
)  # fmt: skip


def run(args: argparse.Namespace) -> None:
    """Print the verdict on args.recorded, or on the numbers beside it, for the run that was started."""
    planned = _started_run.planned(args)
    log = read_log_or_numbers(args)
    verdict = verdict_of(planned, log)
    if args.json:
        _printing.print_json({**asdict(verdict), "unread": planned.started.unread})
        return
    say(*verdict_lines(planned, verdict))


def read_log_or_numbers(args: argparse.Namespace) -> RunLog:
    """The log, or one step of the number given. Raises InputError where there are both or neither."""
    from simulator.readers._log import RunLog, read_log

    said = {"step_s": args.step_time, "device_tokens_per_s": args.tokens_per_s, "device_tflops": args.tflops,
             "mfu": args.mfu and (args.mfu / 100 if args.mfu > 1.5 else args.mfu)}  # fmt: skip
    numbers = {kind: value for kind, value in said.items() if value is not None}
    if args.recorded and not numbers:
        return read_log(Path(args.recorded))
    if args.recorded or len(numbers) != 1:
        raise InputError("give a log, or one of --step-time, --tokens-per-s, --tflops and --mfu")
    kind, value = next(iter(numbers.items()))
    require(1e-6 <= value <= 1e9, kind, value, "it is from 1e-6 to 1e9")
    return RunLog(kind=kind, speeds=(value,))


def verdict_of(planned: PlannedRun, log: RunLog) -> RunVerdict:
    """What the steps of a log say of the run."""
    from simulator.cli._run_causes import tried_causes
    from simulator.language_models.accelerators import accelerator
    from simulator.readers._log import steady

    card, grid, run = planned.started.card, planned.started.grid, planned.simulated
    tokens = grid.batch * card.sequence
    gpu, eight = accelerator(planned.stack.accelerator), planned.stack.device.precision != "bf16"
    peak = gpu.flops_per_s * grid.devices
    steps = steady(log.steps_s(tokens, card.sequence, grid.devices, card.flops_per_token, peak), log.marks)
    predicted_s = run.step_s
    low, high = OWN_SOFTWARE if planned.own_software else OTHER_SOFTWARE
    ratio, mfu = steps.step_s / predicted_s, tokens * card.flops_per_token / peak / steps.step_s
    parts: dict[str, Any] = {
        "measured_s": steps.step_s, "predicted_s": predicted_s, "low_s": low * predicted_s, "mfu": mfu,
        "high_s": high * predicted_s, "notes": tuple(_notes(planned, log, steps, mfu)),
    }  # fmt: skip
    other = tuple(_other_model(card.parameters, log.parameters))
    used = mfu * gpu.flops_per_s / gpu.fp8_flops_per_s if eight else mfu
    if used > MOST_MFU:
        needed = f"{used:.0%} of the dense peak{' of 8 bits' * eight}"
        causes = other or tuple(_too_fast(ratio, needed, grid.devices, (low, high)))
        return RunVerdict(word=TOO_FAST, causes=causes, **parts)
    if ratio < low:
        return RunVerdict(word=FASTER, causes=other, **parts)
    if ratio <= high:
        return RunVerdict(word=AS_EXPECTED, causes=other, **parts)
    tried = tried_causes(run, steps.step_s)
    named = [each for each in tried if each.named]
    certain = (*other, *_configured(planned, ratio))
    return RunVerdict(
        word=SLOWER, causes=(*certain, *(each.text for each in named)),
        measure=tuple(each.cause.measured for each in named[:2]) if not certain else (),
        excluded=tuple(_excluded(tried)), **parts,
    )  # fmt: skip


def _other_model(parameters: int, logged: int | None) -> Iterator[str]:
    if logged and not 1 / FEWER_PARAMETERS < logged / parameters < FEWER_PARAMETERS:
        times = max(logged / parameters, parameters / logged)
        yield (
            f"the model of the log has {logged / 1e9:.2f} billion parameters, {times:.0f} times "
            f"{'fewer' if logged < parameters else 'more'} than the configuration's {parameters / 1e9:.2f}"
        )


def _too_fast(ratio: float, needed: str, devices: int, usual: tuple[float, float]) -> Iterator[str]:
    """A wrong number: of all devices instead of one, or what it would need of the peak."""
    low, high = usual
    if devices > 1 and low <= ratio * devices <= high:
        yield f"the number is of all {devices} devices, not of one"
    if low <= 2 * ratio <= high:
        yield "twice the number is counted: a sparse peak, or tokens of inputs and labels"
    yield f"it would need {needed}: a number or the configuration is wrong"


def _configured(planned: PlannedRun, ratio: float) -> Iterator[str]:
    """What the configuration itself says that the prediction has not."""
    precision = planned.started.precision
    if precision == "fp32" and not planned.stack.accelerator.startswith("v100"):
        yield f"it computes in 32 bits: nothing says bf16, which is {ratio:.1f} times as fast here or more"


def _excluded(tried: Sequence[TriedCause]) -> Iterator[str]:
    for each in tried:
        if not each.named:
            yield f"{each.text}: explains {max(0.0, each.share):.0%}"


def _notes(planned: PlannedRun, log: RunLog, steps: SteadySteps, mfu: float) -> Iterator[str]:
    card, grid = planned.started.card, planned.started.grid
    rate = grid.batch * card.sequence / steps.step_s / grid.devices
    plain = 6.0 * card.matrices_per_token / card.flops_per_token * mfu
    eight = planned.stack.device.precision != "bf16"
    peak = f"dense {'bf16 ' * eight}peak"
    yield f"{rate:,.0f} tokens/s a GPU; MFU {mfu:.1%} of the {peak} with attention, {plain:.1%} by 6 per parameter"
    reported = log.middle.get("mfu")
    if reported and not 0.85 < reported / mfu < 1.18:
        yield f"the log's MFU is {reported:.1%}, {reported / mfu:.2f} times that: {_other_mfu(reported / mfu, eight)}"
    if steps.count + sum(steps.apart.values()) > 1:
        lost = f"; the others add {format_time(steps.lost_s)} a step" if steps.lost_s > 0.01 * steps.step_s else ""
        yield f"{steps.words}{lost}"


def _other_mfu(ratio: float, eight: bool) -> str:
    if 0.42 < ratio < 0.6:
        return f"it is of the {'8-bit' if eight else 'sparse'} peak, twice the dense one{' of bf16' * eight}"
    return "another peak, or other FLOPs of a token"


def verdict_lines(planned: PlannedRun, verdict: RunVerdict) -> Iterator[str]:
    """The verdict for people: two lines, then why."""
    yield from verdict.lines
    yield ""
    yield planned.started.described()
    whose = "its own software" if planned.own_software else "other software, so the range is wide"
    host = planned.stack.runtime.name
    host_words = "" if planned.stack.name.startswith(host) else f" and {host}'s host"
    yield f"predicted with {planned.stack.name}{host_words} on {planned.cluster.name}: {whose}"
    yield from verdict.notes
    for other in verdict.causes[1:]:
        yield f"or: {other}"
    for number, measured in enumerate(verdict.measure, start=1):
        yield f"measure {number}: {measured}"
    for excluded in verdict.excluded:
        yield f"not: {excluded}"
    if planned.started.unread:
        yield f"not counted: {'; '.join(planned.started.unread)}"
