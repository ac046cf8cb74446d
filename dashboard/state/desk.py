"""Who waits for what: a tab's latest request wins, and work that nobody waits for any more is ended."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace

from dashboard.state.caps import searches
from dashboard.state.configuration import Configuration
from dashboard.state.simulating import Glance, Outcome, Request, compute, glance_of, stopped
from dashboard.state.workers import BACKGROUND, CLICKS, SEARCHES, Simulation, Workers

GONE_S = 12.0
"""A tab that has not asked for so long is taken to be closed."""
_OUTCOMES, _GLANCES = 128, 4000
_REMEMBERED_TASKS = 3_000_000
_REMEMBERED_REQUESTS = 20_000
Describe = Callable[[Configuration], Request]


class Desk:
    """Outcomes and glances that are known, and jobs for those that are not. Safe to use from several threads.

    Without workers everything is computed by whoever asks, while they wait. A tab numbers what it sends: requests may
    be handled in another order than they were sent in, and one that was sent before what is handled already (the
    tab's end, say) starts nothing.
    """

    def __init__(self, describe: Describe, workers: Workers | None = None) -> None:
        """describe: makes a configuration's request. workers: who simulate, which may be set later, too."""
        self.workers = workers
        self._describe = describe
        self._outcomes: OrderedDict[Configuration, Outcome] = OrderedDict()
        self._glances: OrderedDict[Configuration, Glance] = OrderedDict()
        self._jobs: dict[tuple[Configuration, bool], Simulation] = {}
        self._seen: dict[str, float] = {}
        self._numbers: OrderedDict[tuple[str, bool], int] = OrderedDict()
        self._cancelled: dict[str, Outcome] = {}
        self._running: dict[Configuration, threading.Lock] = {}
        self._lock = threading.RLock()

    def known(self, configuration: Configuration) -> Outcome | None:
        """The outcome, if it is at hand."""
        with self._lock:
            outcome = self._outcomes.get(configuration)
            if outcome is not None:
                self._outcomes.move_to_end(configuration)
            return outcome

    def so_far(self, configuration: Configuration) -> Outcome | None:
        """What the best plan of a search that goes on, or that somebody has cancelled, comes to."""
        with self._lock:
            job = self._jobs.get((configuration, False))
            ended = (each for each in self._cancelled.values() if each.configuration == configuration)
            return job.best if job is not None else next(ended, None)

    def glance(self, configuration: Configuration) -> Glance | None:
        """The outcome in figures, if it is at hand."""
        with self._lock:
            glance, outcome = self._glances.get(configuration), self._outcomes.get(configuration)
        if glance is None and outcome is not None:
            glance = glance_of(outcome)
            self.keep(configuration, None, glance)
        return glance

    def outcome(self, configuration: Configuration) -> Outcome:
        """The outcome, waited for as long as it takes; computed once however many ask."""
        known = self.known(configuration)
        if known is not None:
            return known
        if self.workers is None:
            return self._computed(configuration)
        waiter = f"thread {threading.get_ident()}"
        job = self._job(configuration, waiter, light=False)
        if job is None:
            return self.outcome(configuration)
        while not job.over.wait(1.0):
            self._touch(waiter)
        return self._taken(job)

    def ask(
        self,
        configuration: Configuration,
        tab: str,
        patience_s: float,
        beside: Configuration | None = None,
        number: int | None = None,
        showing: bool = False,
    ) -> Outcome | Simulation:
        """The outcome for a tab, or its job: after `patience_s`, or as soon as a first plan of its can be shown.

        showing: the tab shows such a plan already.

        What the tab asked before is dropped, but for `beside`. What it has cancelled stays so until it asks for else.
        number: of the request, where the tab numbers them.
        """
        known = self._computed(configuration) if self.workers is None else self.known(configuration)
        with self._lock:  # so that the tab's end comes before all of this or after it
            if self._overtaken(tab, number, False):
                return known or stopped(self._describe(configuration), "overtaken", 0.0)
            self._touch(tab)
            self._drop(tab, keep=(configuration, beside), background=False)
            ended = self._cancelled.get(tab)
            if ended is not None and ended.configuration not in (configuration, beside):
                self._cancelled.pop(tab, None)
            elif ended is not None and ended.configuration == configuration:
                return known or ended
            if known is not None:
                return known
            job = self._job(configuration, tab, light=False)
        if job is not None:
            (job.over if showing else job.shows).wait(patience_s)
        if job is None or job.over.is_set():
            return self._taken(job) if job else self.outcome(configuration)
        return job

    def want(self, configurations: Sequence[Configuration], tab: str, number: int | None = None) -> list[Configuration]:
        """Let these be computed behind a tab, in order and in place of what it wanted before; those still unknown."""
        with self._lock:
            unknown = [each for each in dict.fromkeys(configurations) if self.glance(each) is None]
            if self._overtaken(tab, number, True):
                return unknown
            self._touch(tab)
            self._drop(tab, keep=configurations, background=True)
            for configuration in unknown if self.workers is not None else ():
                if (configuration, False) not in self._jobs:
                    self._job(configuration, tab, light=True)
        for configuration in unknown if self.workers is None else ():
            self.outcome(configuration)
        return [configuration for configuration in unknown if self.glance(configuration) is None]

    def leave(self, tab: str, number: int | None = None) -> None:
        """A tab is closed, or shows something else: end what only it waits for."""
        with self._lock:
            if self._overtaken(tab, number, False, True):
                return
            self._drop(tab, keep=(), background=False)
            self._drop(tab, keep=(), background=True)
            self._seen.pop(tab, None)
            self._cancelled.pop(tab, None)

    def cancel(self, configuration: Configuration, tab: str, number: int | None = None) -> None:
        """The user of a tab does not want to wait for `configuration`, be its job there or not yet."""
        with self._lock:
            if self._overtaken(tab, number, False):
                return
            if configuration not in self._outcomes:
                job = self._jobs.get((configuration, False))
                best, ran_s = (job.best, time.monotonic() - job.asked_s) if job is not None else (None, 0.0)
                note = "cancelled before its tasks were simulated"
                if best and best.candidates:
                    note = f"the search was cancelled: this is the best of {len(best.candidates)} plans"
                ended = replace(best, note=note) if best else stopped(self._describe(configuration), "cancelled", ran_s)
                self._cancelled[tab] = ended
            self._drop(tab, keep=(), background=False)

    def jobs(self) -> list[Simulation]:
        """What is waiting or running."""
        with self._lock:
            return list(self._jobs.values())

    def _overtaken(self, tab: str, number: int | None, *background: bool) -> bool:
        """Whether something of its kind that the tab sent after its request `number` was handled before it.

        background: False for what the tab shows, True for what it wants behind that; its end is of both kinds.
        """
        if number is None:
            return False
        overtaken = False
        for kind in background:
            latest = max(number, self._numbers.pop((tab, kind), number))
            self._numbers[tab, kind] = latest
            overtaken = overtaken or number < latest
        while len(self._numbers) > _REMEMBERED_REQUESTS:
            self._numbers.popitem(last=False)
        return overtaken

    def _touch(self, tab: str) -> None:
        now = time.monotonic()
        with self._lock:
            self._seen[tab] = now
            for name in [name for name, seen in self._seen.items() if now - seen > GONE_S]:
                self.leave(name)

    def _drop(self, tab: str, keep: Sequence[Configuration | None], background: bool) -> None:
        with self._lock:
            for (configuration, light), job in list(self._jobs.items()):
                if light == background and tab in job.tabs and configuration not in keep:
                    job.tabs.discard(tab)
                    if not job.tabs:
                        job.cancelled.set()
                        del self._jobs[configuration, light]

    def _job(self, configuration: Configuration, tab: str, light: bool) -> Simulation | None:
        """The job that makes an outcome, which `tab` now waits for; None where the outcome is there by now."""
        assert self.workers is not None
        with self._lock:
            self._seen[tab] = time.monotonic()
            if configuration in self._outcomes:
                return None
            job = self._jobs.get((configuration, light))
            if job is None:
                glance = self._glances.get(configuration)
                request = self._describe(configuration)
                lane = BACKGROUND if light else SEARCHES if searches(configuration.strategy) else CLICKS
                plan = request.plan or (glance.plan if glance else None)
                job = Simulation(replace(request, light=light, plan=plan), CLICKS if plan is not None else lane)
                threading.Thread(target=self._follow, args=(job,), daemon=True).start()  # or nobody waits for it
                self._jobs[configuration, light] = job
                self.workers.submit(job)
            job.tabs.add(tab)
            return job

    def _follow(self, job: Simulation) -> None:
        """Keep what a job brings."""
        while not job.over.wait(2.0):
            with self._lock:
                now = time.monotonic()
                for tab in [tab for tab in job.tabs if now - self._seen[tab] > GONE_S]:
                    self.leave(tab)
        self._settle(job)

    def _taken(self, job: Simulation) -> Outcome:
        """What a job that is not light, and over, came to."""
        self._settle(job)
        assert job.outcome is not None
        return job.outcome

    def _settle(self, job: Simulation) -> None:
        with self._lock:
            key = job.request.configuration, job.request.light
            if self._jobs.get(key) is job:
                del self._jobs[key]
            if not job.cancelled.is_set() or (job.outcome is not None and job.outcome.report is not None):
                self.keep(job.request.configuration, job.outcome, job.glance)

    def _computed(self, configuration: Configuration) -> Outcome:
        with self._lock:
            running = self._running.setdefault(configuration, threading.Lock())
        with running:
            known = self.known(configuration)
            if known is None:
                known = compute(self._describe(configuration))
                self.keep(configuration, known, None)
        with self._lock:
            self._running.pop(configuration, None)
        return known

    def keep(self, configuration: Configuration, outcome: Outcome | None, glance: Glance | None) -> None:
        """Remember an outcome, and forget those that were not asked for the longest."""
        with self._lock:
            if glance is not None:
                self._glances[configuration] = glance
                while len(self._glances) > _GLANCES:
                    self._glances.popitem(last=False)
            if outcome is not None:
                self._outcomes[configuration] = outcome
                self._outcomes.move_to_end(configuration)
                known = self._glances.get(configuration)
                if known is not None and known.by_layer is None and outcome.run is not None:
                    del self._glances[configuration]  # it was counted alone
            sizes = [kept.run.report.tasks if kept.run else 0 for kept in self._outcomes.values()]
            while len(sizes) > 1 and (len(sizes) > _OUTCOMES or sum(sizes) > _REMEMBERED_TASKS):
                self._outcomes.popitem(last=False)
                sizes.pop(0)
