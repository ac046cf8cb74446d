"""Every plan of a model on so many devices, ranked behind the pages by the search of `compare`. No Dash here.

A card's grids, and of a measured profile what each strategy says there is to try, are bounded and simulated until the
best are certain or the time is over.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from math import inf
from multiprocessing.connection import Connection
from typing import Any

import partitioners
from dashboard.state.caps import searches
from dashboard.state.configuration import DEGREES, OWN, Configuration
from dashboard.state.planning import batch_of, changed_cluster, usual_cluster
from dashboard.state.simulating import Request
from dashboard.state.store import Store
from dashboard.state.worker_process import NotStartedError, WorkerProcess, process_context
from partitioners import StrategyChoice
from partitioners._choice_search import ChoiceSearch, Simulated
from partitioners._grids.ranking import Ranking, SimulatedGrid, ranked_grids
from simulator.cluster import Cluster
from simulator.errors import InputError, ShardscopeError
from simulator.exports.launch import launched_by
from simulator.language_models.card_files import read_card
from simulator.language_models.grids import default_batch
from simulator.language_models.training_stack import TrainingStack, stack_for
from simulator.plan import Plan, StepSettings
from simulator.report.interval import StepInterval
from simulator.report.metrics import Report
from simulator.run import expected_interval, step_report
from simulator.units import format_time

BUDGET_S = 60.0
"""Seconds of simulating; what is left keeps its bound."""
GONE_S = 20.0
"""A ranking that no page has asked for so long is ended."""
SHOWN_S = 0.4
"""Seconds between two states of a ranking that are told of."""
KEPT = 8
MOST_STRATEGIES = 5
"""Strategies of a measured profile that nothing left is faster than when its ranking is over, as splits of a card."""
_SPLIT = (*DEGREES, "expert_tensor", "chunks", "recomputation", "shard_group")
"""Of a row, as the configuration has them that it opens."""
_FREE = ("microbatches", "schedule", "zero_stage", "plan", *_SPLIT)
"""Fields of a configuration that a ranking chooses itself, beside the strategy."""
Row = dict[str, Any]
Tell = Callable[[Callable[[], "Ranked"]], None]
"""Is given what makes the ranking so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """A ranking so far."""

    rows: tuple[Row, ...] = ()
    """A simulated plan each, those that run first, by their steps; quantities under the names of a sweep's columns."""
    words: str = "starting"
    """What was tried, and what was not."""
    over: bool = False
    failed: bool = False


@dataclass(slots=True, eq=False)
class _RankingJob:
    ranked: Ranked = field(default_factory=Ranked)
    seen_s: float = field(default_factory=time.monotonic)


class Plans:
    """The latest rankings, each in a process of its own. Safe to use from several threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._jobs: dict[Configuration, _RankingJob] = {}
        self._lock = threading.Lock()

    def ask(self, now: Configuration) -> Ranked:
        """The ranking of a configuration's model and machine as far as it has come; it begins here."""
        now = asked(self._store.resolved(now))
        with self._lock:
            job = self._jobs.get(now)
            if job is None or (job.ranked.over and not job.ranked.rows and not job.ranked.failed):
                job = self._jobs[now] = _RankingJob()
                while len(self._jobs) > KEPT:
                    self._jobs.pop(next(iter(self._jobs))).seen_s = -GONE_S
                threading.Thread(target=_follow, args=(job, self._store.request(now)), daemon=True).start()
            job.seen_s = time.monotonic()
            return job.ranked


def asked(now: Configuration) -> Configuration:
    """A configuration without what a ranking chooses: two that differ in nothing else have one ranking."""
    default: dict[str, Any] = {each.name: each.default for each in fields(Configuration)}
    return replace(now, **{name: default[name] for name in _FREE}, strategy="data")


def _follow(job: _RankingJob, request: Request) -> None:
    """Keep what the process of a ranking tells, until it is over or nobody asks for it."""
    process: WorkerProcess | None = None
    try:
        process = WorkerProcess(process_context(), 0, rank)
        while not process.started(0.1):
            pass
        process.send(request)
        while not job.ranked.over and time.monotonic() - job.seen_s < GONE_S:
            if process.pipe.poll(0.1):
                kind, content = process.receive()
                job.ranked = Ranked(words=content, over=True, failed=True) if kind == "failed" else content
    except (NotStartedError, EOFError, OSError) as error:
        job.ranked = replace(job.ranked, words=f"ended by the machine ({error})", over=True, failed=True)
    if not job.ranked.over:
        job.ranked = replace(job.ranked, rows=(), over=True)  # whoever comes back begins anew
    if process is not None:
        process.kill()


def rank(request: Request, pipe: Connection) -> tuple[str, Any]:
    """What the process of a ranking does; tells of it, now and then, before its last word."""
    told_s = 0.0

    def tell(ranked: Callable[[], Ranked]) -> None:
        nonlocal told_s
        if time.monotonic() - told_s > SHOWN_S:
            pipe.send(("so far", ranked()))
            told_s = time.monotonic()

    try:
        return "ranked", ranked_plans(request, tell)
    except ShardscopeError as error:
        return "failed", str(error)


def ranked_plans(request: Request, tell: Tell = lambda ranked: None) -> Ranked:
    """The ranking of a request. Raises InputError."""
    now = request.configuration
    cluster = changed_cluster(usual_cluster(now, request.uploaded), now)
    return (_grids if request.card else _choices)(request, cluster, time.monotonic() + BUDGET_S, tell)


def _grids(request: Request, cluster: Cluster, ends_s: float, tell: Tell) -> Ranked:
    """Of a model card."""
    card, stack = read_card(request.card), replace(stack_for(cluster), runtime=request.runtime)
    batch = request.configuration.batch_size or default_batch(card, cluster.workers)
    known: dict[int, Row] = {}

    def row(each: SimulatedGrid) -> Row:
        if id(each) not in known:
            known[id(each)] = _grid_row(request.configuration, each, stack)
        return known[id(each)]

    def so_far(ranking: Ranking, over: bool = False) -> Ranked:
        words = _said(
            "grid", len(ranking.simulated), len(ranking.bounded), len(ranking.too_large) + len(ranking.refused),
            ranking.bound_s, ranking.may_be_best, over,
        )  # fmt: skip
        return Ranked(rows=_ordered(map(row, ranking.simulated)), words=words, over=over)

    ranking = ranked_grids(
        card, request.profile, cluster, stack, batch,
        progress=lambda words: tell(lambda: Ranked(words=words)) if not known else None,
        show=lambda ranking: tell(partial(so_far, ranking)),
        time_left_s=lambda: ends_s - time.monotonic(),
    )  # fmt: skip
    return so_far(ranking, over=True)


def _choices(request: Request, cluster: Cluster, ends_s: float, tell: Tell) -> Ranked:
    """Of a measured profile: what strategies say there is to try, in the order of bounds; of each strategy one at once,
    so that the first rows are soon there, and those last that search by themselves."""
    now, profile, runtime = request.configuration, request.profile, request.runtime
    rows: list[Row] = []

    def simulate(choice: StrategyChoice, part: Cluster, plan: Plan) -> Simulated:
        report = step_report(profile, part, plan, runtime=runtime)
        interval = expected_interval(report, profile, part, plan, runtime)
        rows.append(_choice_row(now, choice, plan, report, interval))
        tell(so_far)
        return Simulated(report.step_s, report.fits)

    search = ChoiceSearch(profile=profile, runtime=runtime, simulate=simulate, group=lambda choice: choice.strategy)

    def so_far(over: bool = False) -> Ranked:
        left_out = len(search.too_large) + len(search.refused)
        may_be_best = all(search.least < row["step_s"] for row in rows if row["fits"])
        words = _said("plan", len(rows), len(search.queue), left_out, search.least, may_be_best, over)
        return Ranked(rows=_ordered(rows), words=words, over=over)

    def until(done: float = inf) -> None:
        search.run(MOST_STRATEGIES, lambda: not rows or (time.monotonic() < ends_s and len(rows) < done))

    for name, choices in _tried(request, cluster, StepSettings(batch_size=batch_of(now, profile), runtime=runtime)):
        if searches(name):
            until()
        for choice in choices:
            search.add(choice, cluster)
        until(len(rows) + 1)
    until()
    return so_far(over=True)


def _said(what: str, done: int, bounded: int, left_out: int, bound_s: float, may_be_best: bool, over: bool) -> str:
    """What was tried, and what was not: `bounded` of it, none of which is faster than bound_s."""
    so_far = f"{done} {what}{'s' if done > 1 else ''} simulated so far"
    words = f"{done} of {done + bounded} {what}s simulated" if over else so_far
    if over and bounded:
        words += f"; none of the others is faster than {format_time(bound_s)}" if bound_s else ""
        words += " (time ran out: one of them may be the best)" if may_be_best else ""
    return words + (f"; {left_out} do not fit or are refused" if left_out else "")


def _tried(request: Request, cluster: Cluster, step: StepSettings) -> Iterator[tuple[str, list[StrategyChoice]]]:
    """By strategy: those with many choices after those with few, what searches last."""
    names = [name for name in partitioners.strategies() if name not in partitioners.BASELINES]
    tried = {name: list(partitioners.choices(name, request.profile, cluster, step)) for name in names}
    for name in sorted(names, key=lambda name: (searches(name), len(tried[name]))):
        effort = partitioners.applicable(name, effort=request.configuration.effort, seed=request.configuration.seed)
        yield name, [replace(choice, own={**effort, **choice.own}) for choice in tried[name]]


def _ordered(rows: Iterator[Row] | Sequence[Row]) -> tuple[Row, ...]:
    ordered = sorted(rows, key=lambda row: (not row["fits"], row["step_s"], row["zero_stage"]))
    return tuple({**row, "number": number} for number, row in enumerate(ordered, start=1))


def _grid_row(now: Configuration, each: SimulatedGrid, stack: TrainingStack) -> Row:
    grid = each.grid
    opened = replace(
        now, strategy=grid.strategy, batch_size=grid.batch, microbatches=grid.accumulation, zero_stage=grid.zero_stage,
        recomputation=grid.recomputation, shard_group=grid.shard_group, chunks=grid.chunks if grid.chunks > 1 else 0,
        expert_tensor=grid.expert_tensor, **{name: getattr(grid, name) for name in DEGREES},
    )  # fmt: skip
    try:
        _, command = launched_by(each.card, grid, stack, each.plan)
    except InputError as error:
        command = f"# no command: {error}"
    return {
        **_row(opened, each.plan, each.report, each.interval), "data": grid.data,
        "micro": f"{grid.microbatch} × {grid.accumulation}", "mfu": each.mfu,
        "per_device_per_s": each.tokens_per_s / grid.devices, "command": command,
    }  # fmt: skip


def _choice_row(now: Configuration, choice: StrategyChoice, plan: Plan, report: Report, interval: StepInterval) -> Row:
    own, schedule = choice.own, choice.step.schedule or OWN
    strange = {name: value for name, value in own.items() if not hasattr(now, name)}
    other = [name if value is True else f"{name} {value}" for name, value in strange.items() if value is not False]
    degrees: dict[str, Any] = {name: int(own.get(name, 1)) for name in DEGREES}
    degrees |= {name: int(own.get(name, 0)) for name in ("expert_tensor", "chunks")}
    opened = replace(
        now, strategy=choice.strategy, batch_size=plan.batch_size, microbatches=choice.step.microbatches,
        zero_stage=choice.step.states.stage, shard_group=choice.step.states.group, schedule=schedule,
        recomputation=own.get("recomputation", "none"), **degrees,
    )  # fmt: skip
    row = _row(opened, plan, report, interval)
    if strange:
        row["query"] = ""  # Explore has no control for them
    return row | {"more": [*([schedule] if choice.step.schedule else []), *other]}


def _row(opened: Configuration, plan: Plan, report: Report, interval: StepInterval) -> Row:
    low_s, high_s = (interval.low_s, interval.high_s) if interval.parts else (None, None)
    return {
        **{name: getattr(opened, name) for name in ("strategy", *_SPLIT)},
        "zero_stage": plan.states.stage, "micro": f"{plan.microbatches}", "command": "", "query": opened.query(),
        "per_device_per_s": report.samples_per_s / opened.devices, "limited": str(report.bottleneck),
        "step_s": report.step_s, "step_low_s": low_s, "step_high_s": high_s, "fit": report.fit, "fits": report.fits,
        "peak_memory_bytes": report.peak_memory_bytes, "bubble_ratio": report.bubble_ratio,
    }  # fmt: skip
