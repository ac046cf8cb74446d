"""What to try next: a fixed list of single changes to a configuration, each simulated, the best one first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import log
from typing import Any

import partitioners
from dashboard.state.alternatives import alternatives
from dashboard.state.caps import searches
from dashboard.state.configuration import MOST_MICROBATCHES, OWN, SHARES_STATES, TIERS, Configuration
from dashboard.state.measures import Share, sequence_length
from dashboard.state.planning import degrees
from dashboard.state.simulating import Glance, Outcome
from dashboard.state.store import Store
from simulator import collectives
from simulator.language_models.training_grid import RECOMPUTATION
from simulator.lowering.schedules import SCHEDULES
from simulator.plan_rules import COMBINED, may_hide_experts
from simulator.units import format_time

MOST_S = 5.0
"""A step that takes longer than this to simulate is not simulated a dozen times again for advice."""
AS_LONG = 0.005
"""Steps that differ by less are as long as each other: then fewer bytes are better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A single change in words, the configuration after it, and whether it needs other hardware."""

    words: str
    configuration: Configuration
    hardware: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The largest loss of the step, and the moves that make it shorter (or make it fit) with what each comes to,
    best first.

    settings: how many changes of settings alone were tried. note: why none was.
    """

    loss: Share | None
    helpful: tuple[tuple[Move, Glance], ...]
    settings: int
    note: str = ""

    @property
    def offered(self) -> list[tuple[Move, Glance]]:
        """The best two changes of a setting, then the best of the hardware."""
        settings, hardware = (
            [each for each in self.helpful if each[0].hardware == of_hardware] for of_hardware in (False, True)
        )
        return settings[:2] + hardware[:1]


def moves(outcome: Outcome) -> Iterator[Move]:
    """Every single change worth a try, whatever the loss."""
    now = outcome.configuration
    if now.plan:
        yield from _other_strategies(now)
        return
    plan = outcome.plan
    pieces = plan.microbatches if plan else now.microbatches or 1
    for count in (pieces * 2, pieces // 2):
        if 1 <= count <= MOST_MICROBATCHES and "microbatches" in partitioners.options(now.strategy):
            yield Move(words=f"micro-batches {pieces} → {count}", configuration=replace(now, microbatches=count))
    schedule = plan.schedule if plan else now.schedule
    for name in SCHEDULES:
        if name != schedule and now.strategy == "pipeline":
            yield Move(words=f"schedule {schedule} → {name}", configuration=replace(now, schedule=name))
    yield from _other_strategies(now)
    if sequence_length(outcome.profile):
        yield from _of_grids(outcome)
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


def _of_grids(outcome: Outcome) -> Iterator[Move]:
    """Of a language model's grid: a degree doubled or halved, a stage of ZeRO or a kind of recomputation further."""
    now, taken = outcome.configuration, partitioners.options(outcome.configuration.strategy)
    for name, offered in degrees(now, outcome.profile).items():
        set_to = getattr(now, name)
        for degree in (set_to * 2, set_to // 2) if name in taken else ():
            if degree in offered:
                yield Move(words=f"{name} {set_to} → {degree}", configuration=replace(now, **{name: degree}))
    if outcome.plan and may_hide_experts(outcome.profile, outcome.plan):
        joined = replace(now, schedule=COMBINED)
        yield Move(words=f"schedule {outcome.plan.schedule} → {COMBINED} (Megatron-LM)", configuration=joined)
    stage = outcome.plan.states.stage if outcome.plan else now.zero_stage
    for other in (stage + 1, stage - 1) if now.strategy in SHARES_STATES else ():
        if 1 <= other <= 3:
            yield Move(words=f"ZeRO stage {stage} → {other}", configuration=replace(now, zero_stage=other))
    if "recomputation" in taken and now.recomputation in RECOMPUTATION:
        much = RECOMPUTATION.index(now.recomputation)
        for kind in (*RECOMPUTATION[:much][-1:], *RECOMPUTATION[much + 1 : much + 2]):
            changed = replace(now, recomputation=kind)
            yield Move(words=f"recomputation {now.recomputation} → {kind}", configuration=changed)


def advise(store: Store, outcome: Outcome) -> Advice:
    """The moves of a feasible or infeasible outcome that help, of those that are simulated by now."""
    loss = largest_loss(outcome)
    if too_large(outcome):
        note = f"A step that takes {format_time(outcome.took_s)} to simulate is not simulated again for advice"
        return Advice(loss=loss, helpful=(), settings=0, note=note)
    helpful, settings = [], 0
    tried = list(moves(outcome))
    for move in [*tried, *_of_table(outcome, tried)]:
        seen = store.desk.glance(move.configuration)
        settings += not move.hardware and seen is not None
        if seen is not None and seen.ran and _helps(seen, outcome):
            helpful.append((move, seen))
    helpful.sort(key=lambda each: _order(each[1]))
    return Advice(loss=loss, helpful=tuple(helpful), settings=settings)


def too_large(outcome: Outcome) -> bool:
    """Whether the step takes too long to be simulated a dozen times for advice, but for a search for its plan."""
    return outcome.report is not None and outcome.took_s > MOST_S and not searches(outcome.configuration.strategy)


def _of_table(outcome: Outcome, tried: Sequence[Move]) -> Iterator[Move]:
    """The strategies beside it that are no single change: those that search, grids of their own."""
    now, single = outcome.configuration, {move.configuration for move in tried}
    for option in alternatives(now, outcome.profile):
        if option not in single and option != now:
            grid = f", tensor {option.tensor}" if option.tensor != now.tensor else ""
            yield Move(words=f"strategy {now.strategy} → {option.strategy}{grid}", configuration=option)


def largest_loss(outcome: Outcome) -> Share | None:
    """The largest share of device time that is not compute, None without a run or a loss."""
    total = outcome.shares.total if outcome.shares else ()
    lost = [share for share in total if share.lost and share.ratio > 0.005]
    return max(lost, key=lambda share: share.ratio, default=None)


def _order(simulated: Glance) -> tuple[bool, int, float]:
    return not simulated.fits, round(log(simulated.step_s) / AS_LONG), simulated.total_bytes


def _helps(simulated: Glance, outcome: Outcome) -> bool:
    """Shorter and no worse in memory, or fitting where the present one does not."""
    report = outcome.report
    if report is None:
        return True
    if simulated.fits != report.fits:
        return simulated.fits
    return simulated.step_s < report.step_s * (1 - AS_LONG)
