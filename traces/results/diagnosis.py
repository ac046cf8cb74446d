"""Three short real steps beside their predictions: whether predictions can be trusted here, and what is off if not.

    alone            compute only, on every device at once      off: the profile
    data parallel    compute beside all-reduces                 off: all-reduces, or what they take from compute
    pipeline         passes and messages                        off: messages, or what the runtime adds to passes

The step alone comes first: where the profile is off, so is everything that is made of it, and by as much.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from simulator.taskgraph import Kind
from traces.results.timeline_comparison import Comparison, Total

TRUSTED = 0.10
"""A step predicted within this share of the actual one is trusted."""
_COMPUTE = (Kind.FORWARD, Kind.BACKWARD, Kind.WEIGHT, Kind.UPDATE)
_MESSAGES = (Kind.ACTIVATION, Kind.GRADIENT, Kind.READY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkup:
    """One short run: its name, the predicted and the actual step, and where both went if tasks were watched.

    spent: on the actual run's critical path, (predicted, actual) seconds of compute, sums, messages and waits.
    """

    name: str
    predicted_s: float
    actual_s: float
    spread_s: float
    spent: Mapping[str, tuple[float, float]]

    @property
    def error(self) -> float:
        """Signed relative error of the predicted step."""
        return self.predicted_s / self.actual_s - 1

    @property
    def unsteady(self) -> bool:
        """Whether the run's own steps differ more than a trusted prediction may be off."""
        return self.spread_s > TRUSTED * self.actual_s


def spent_on_path(comparison: Comparison) -> dict[str, tuple[float, float]]:
    """Seconds of the actual critical path by what they went into: (predicted, actual)."""
    totals = comparison.totals(comparison.path)
    spent = {
        "compute": _sum(totals, _COMPUTE),
        "all-reduces": _sum(totals, (Kind.SYNCHRONISATION,)),
        "messages": _sum(totals, _MESSAGES),
    }
    waits_s = comparison.waits_s
    return {name: seconds for name, seconds in spent.items() if any(seconds)} | {"waits": (0.0, waits_s)}


def _sum(totals: Mapping[Kind, Total], kinds: tuple[Kind, ...]) -> tuple[float, float]:
    present = [totals[kind] for kind in kinds if kind in totals]
    return sum(total.predicted_s for total in present), sum(total.actual_s for total in present)


def diagnose(alone: Checkup, others: tuple[Checkup, ...]) -> list[str]:
    """What is wrong and what to do about it, a sentence each; empty where every prediction can be trusted."""
    lines = [*_of_alone(alone), *(line for checkup in others for line in _of_run(checkup, alone.error))]
    return lines or [line for checkup in others for line in _of_sum(checkup, alone.error)]


def _of_steps(checkup: Checkup) -> Iterator[str]:
    """Whether they differ too much for a prediction to be judged."""
    if checkup.unsteady:
        yield (
            f"steps {checkup.name} differ by {checkup.spread_s / checkup.actual_s:.0%} among themselves: something "
            "else uses this machine, and no prediction is better than that"
        )


def _of_alone(alone: Checkup) -> Iterator[str]:
    yield from _of_steps(alone)
    if abs(alone.error) > TRUSTED:
        less, slower, fewer = ("less", "slower", "fewer") if alone.error < 0 else ("more", "faster", "more")
        yield (
            f"the profile is off: its layers alone take {abs(alone.error):.0%} {less} than a step does here now; the "
            f"machine is {slower} than when it was captured, or {fewer} ranks computed then: capture again, on as many "
            "cores at once as compute here"
        )


def _of_run(checkup: Checkup, alone_error: float) -> Iterator[str]:
    """What of a run's error is not the profile's already, and is more than its own steps differ by."""
    own = (1 + checkup.error) / (1 + alone_error) - 1
    if abs(own) <= TRUSTED:
        return
    yield from _of_steps(checkup)
    if abs(own) <= checkup.spread_s / checkup.actual_s:
        return
    where = {name: actual_s - predicted_s for name, (predicted_s, actual_s) in checkup.spent.items()}
    largest = max(where, key=lambda name: where[name] if own < 0 else -where[name], default="")
    part = f", most of it in {largest} ({where[largest] * 1e3:+.1f} ms)" if largest else ""
    yield f"{checkup.name} is off by {own:+.0%} beyond the profile{part}: {_ADVICE.get(largest, _ADVICE['waits'])}"


def _of_sum(checkup: Checkup, alone_error: float) -> Iterator[str]:
    """Where neither error is large by itself."""
    if abs(checkup.error) > TRUSTED:
        own = (1 + checkup.error) / (1 + alone_error) - 1
        yield (
            f"{checkup.name} is off by {checkup.error:+.0%}: {alone_error:+.0%} by the profile and {own:+.0%} by the "
            "rest; capture and calibrate again one after the other, so that the machine is the same"
        )


_ADVICE = {
    "compute": "compute beside communication is not what the cluster's core time per byte says; calibrate again with "
    "as many ranks as train, and see whether ranks share cores",
    "all-reduces": "the all-reduce curve is off; calibrate again up to the sizes of this plan (--plan)",
    "messages": "the message curve is off; calibrate again between these hosts",
    "waits": "tasks start later than what they wait for ends; calibrate the runtime again (waits of a round, passes)",
}
