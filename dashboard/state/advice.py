"""What to try next: a fixed list of single changes to a configuration, each simulated, the best one first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import partitioners
from dashboard.state.caps import searches
from dashboard.state.configuration import MOST_MICROBATCHES, OWN, TIERS, Configuration
from dashboard.state.measures import Share, shares
from dashboard.state.simulating import Glance, Outcome
from dashboard.state.store import Store
from simulator import collectives
from simulator.lowering.schedules import SCHEDULES

MOST_TASKS = 60_000
"""A step with more tasks than this is not re-simulated a dozen times for advice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A single change in words, the configuration after it, and whether it needs other hardware."""

    words: str
    configuration: Configuration
    hardware: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedMove:
    """A move with the simulated step, in seconds, its interval as of Glance, and whether it fits into memory."""

    move: Move
    step_s: float
    interval_s: tuple[float, float] | None
    fits: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The largest loss of the step, and the moves that make it shorter (or make it fit), best first.

    settings: how many changes of settings alone were tried. note: why none was.
    """

    loss: Share | None
    helpful: tuple[SimulatedMove, ...]
    settings: int
    note: str = ""

    @property
    def best(self) -> SimulatedMove | None:
        """The best change of a setting, or of the hardware where no setting helps."""
        settings = (simulated for simulated in self.helpful if not simulated.move.hardware)
        return next(settings, self.helpful[0] if self.helpful else None)

    @property
    def hardware(self) -> SimulatedMove | None:
        """The best change of the hardware."""
        return next((simulated for simulated in self.helpful if simulated.move.hardware), None)


def moves(outcome: Outcome) -> Iterator[Move]:
    """Every single change worth a try, whatever the loss."""
    now = outcome.configuration
    if now.plan:
        yield from _other_strategies(now)
        return
    pieces = outcome.run.plan.microbatches if outcome.run else now.microbatches or 1
    for count in (pieces * 2, pieces // 2):
        if 1 <= count <= MOST_MICROBATCHES and "microbatches" in partitioners.options(now.strategy):
            yield Move(words=f"micro-batches {pieces} → {count}", configuration=replace(now, microbatches=count))
    schedule = outcome.run.plan.schedule if outcome.run else now.schedule
    for name in SCHEDULES:
        if name != schedule and now.strategy == "pipeline":
            yield Move(words=f"schedule {schedule} → {name}", configuration=replace(now, schedule=name))
    yield from _other_strategies(now)
    if not now.overlap:
        yield Move(words="overlap gradient synchronisation", configuration=replace(now, overlap=True))
    if now.collective != "ring":
        served = collectives.load(now.collective).updates_on_server
        words = "ring all-reduce, no parameter server" if served else "ring all-reduce"
        yield Move(words=words, configuration=replace(now, collective="ring"))
    for tier in TIERS:
        if outcome.cluster is None or tier not in outcome.cluster.tiers:
            continue
        changes: dict[str, Any] = {f"{tier}_bandwidth": now.link_factors(tier)[0] * 2}
        faster = replace(now, **changes)
        yield Move(words=f"{tier} links twice as fast", configuration=faster, hardware=True)


def _other_strategies(now: Configuration) -> Iterator[Move]:
    """Every strategy that does not search, with the same controls, and with its own micro-batches."""
    for name in partitioners.strategies():
        if (now.plan or name != now.strategy) and not searches(name):
            words, other = f"strategy {now.strategy} → {name}", replace(now, strategy=name, plan="")
            yield Move(words=words, configuration=other)
            if now.microbatches is not None or now.schedule != OWN:
                free = replace(other, microbatches=None, schedule=OWN)
                yield Move(words=f"{words}, its own micro-batches", configuration=free)


def advise(store: Store, outcome: Outcome, *, waits: bool = True) -> Advice:
    """Simulate every move of a feasible or infeasible outcome and keep those that help.

    waits: for moves that are not simulated yet; else these are left out.
    """
    loss = largest_loss(outcome)
    if too_large(outcome):
        note = f"Steps of more than {MOST_TASKS:,} tasks are not re-simulated for advice"
        return Advice(loss=loss, helpful=(), settings=0, note=note)
    helpful, settings = [], 0
    for move in moves(outcome):
        seen = (store.glance if waits else store.desk.glance)(move.configuration)
        settings += not move.hardware and seen is not None
        if seen is not None and seen.ran and _helps(seen, outcome):
            helpful.append(SimulatedMove(move=move, step_s=seen.step_s, interval_s=seen.interval_s, fits=seen.fits))
    helpful.sort(key=lambda simulated: (not simulated.fits, simulated.step_s))
    return Advice(loss=loss, helpful=tuple(helpful), settings=settings)


def too_large(outcome: Outcome) -> bool:
    """Whether the step is too large to be simulated a dozen times for advice."""
    return outcome.report is not None and outcome.report.tasks > MOST_TASKS


def largest_loss(outcome: Outcome) -> Share | None:
    """The largest share of device time that is not compute, None without a run or a loss."""
    if outcome.run is None or outcome.cluster is None:
        return None
    lost = [share for share in shares(outcome.run, outcome.cluster).total if share.lost and share.ratio > 0.005]
    return max(lost, key=lambda share: share.ratio, default=None)


def _helps(simulated: Glance, outcome: Outcome) -> bool:
    """Shorter by at least 0.5 % and no worse in memory, or fitting where the present one does not."""
    if outcome.run is None:
        return True
    report = outcome.run.report
    if simulated.fits != report.fits:
        return simulated.fits
    return simulated.step_s < report.step_s * 0.995
