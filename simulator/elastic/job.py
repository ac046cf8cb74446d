"""Simulate a job over a scenario: steady steps between membership changes, one simulation per configuration.

A planned change waits for the end of the step in flight; a device that fails (event "vanish") loses that step. An event
during a pause is handled when the pause is over. Devices with notice leave at once, not at the end of it; where the
notice is too short for what must be done before, they fail at its end. Devices on which the step does not fit are idle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from itertools import count
from math import ceil, floor

from simulator.cluster import Cluster
from simulator.elastic.job_account import Account, Incident, Segment
from simulator.elastic.movement import Placed, renumbered
from simulator.elastic.reconfiguration import WRITE, Change, Overheads, Reconfiguration
from simulator.elastic.scenario import POLICIES, Conditions, Event, Scenario, numbers_of
from simulator.errors import require
from simulator.network.topologies import select
from simulator.ordered_sum import ordered_sum
from simulator.plan import Plan
from simulator.report.metrics import Report
from simulator.run import step_report
from simulator.runtime import IDEAL, Runtime
from simulator.workload import Profile

PlanOf = Callable[[Cluster, Plan | None], Plan]
"""The plan for a cluster, given the one before it in the cluster's numbers where it is to stay close to that."""
_ROUNDING = 1e-9


def simulate_job(
    scenario: Scenario,
    profile: Profile,
    cluster: Cluster,
    overheads: Overheads,
    plan_of: PlanOf,
    policy: str = "",
    runtime: Runtime = IDEAL,
) -> Account:
    """The account of the job that `scenario` describes: samples, dollars, and the seconds that each event costs.

    plan_of: makes the plan for a cluster of the present devices; called once per configuration (and preceding plan,
    where the scenario has a `migration`). policy: instead of the scenario's.
    Raises InputError when events or plans do not fit the cluster.
    """
    policy = policy or scenario.policy
    require(policy in POLICIES, "policy", policy, f"it is one of {', '.join(POLICIES)}")
    scenario.check(cluster)
    return _Job(scenario, profile, cluster, overheads, plan_of, policy, runtime).run()


@dataclass(slots=True)
class _Job:
    """A job under way: what `simulate_job` is given, and how far it is."""

    scenario: Scenario
    profile: Profile
    usual: Cluster
    overheads: Overheads
    plan_of: PlanOf
    policy: str
    runtime: Runtime
    conditions: Conditions = field(default_factory=Conditions)
    now_s: float = 0.0
    moment_s: float = 0.0
    dollars: float = 0.0
    step: int = 0
    saved_step: int = 0
    segments: list[Segment] = field(default_factory=list)
    incidents: list[Incident] = field(default_factory=list)
    queue: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    order: Iterator[int] = field(default_factory=count)
    checkpoint_due_s: float = field(init=False)
    present: set[int] = field(default_factory=set)
    since_s: dict[int, float] = field(default_factory=dict)
    plans: dict[tuple[tuple[int, ...], Conditions, int], Placed] = field(default_factory=dict)
    steps: dict[tuple[int, Conditions], Report] = field(default_factory=dict)
    placed: Placed | None = None
    batch: int = field(init=False)

    def __post_init__(self) -> None:
        self.checkpoint_due_s = self.scenario.checkpoint_every_s
        self._arrive(set(self.scenario.first_members(self.usual)))
        self.placed = self._planned(self.present)
        self.batch = self.placed.plan.batch_size

    def run(self) -> Account:
        end_s = self.scenario.duration_s
        for event in self.scenario.events:
            self._at(event.at_s, partial(self._handle, event))
        while self.queue and self.queue[0][0] < end_s:
            self.moment_s, _, action = heappop(self.queue)
            self._train_until(self.moment_s)
            action()
        self._train_until(end_s)
        self._spend(max(end_s - self.now_s, 0.0), "train")
        self._depart(set(self.present), self.now_s)
        return Account(
            policy=self.policy, duration_s=self.now_s, samples=self.step * self.batch, dollars=self.dollars,
            segments=tuple(self.segments), incidents=tuple(self.incidents),
        )  # fmt: skip

    def _at(self, moment_s: float, action: Callable[[], None]) -> None:
        heappush(self.queue, (moment_s, next(self.order), action))

    def _spend(self, seconds: float, what: str, rate: float = 0.0) -> None:
        """Let time pass; `rate` is in samples/s."""
        if seconds <= 0:
            return
        members = len(self.placed.members) if self.placed else 0
        start_s, self.now_s = self.now_s, self.now_s + seconds
        why = self._step(self.placed).verdict if what == "idle" and self.placed else ""
        self.segments.append(
            Segment(start_s=start_s, end_s=self.now_s, what=what, devices=members, samples_per_s=rate, why=why)
        )

    def _train_until(self, moment_s: float) -> None:
        """Whole steps that end by `moment_s`, with checkpoints between them."""
        while self.now_s < moment_s:
            if self.placed is None or not self._rate(self.placed):
                self._spend(moment_s - self.now_s, "idle")
                return
            if self.checkpoint_due_s <= self.now_s:
                self._spend(self._pricing.checkpoint_s(self.placed), "checkpoint")
                self._note_checkpoint()
                continue
            step_s = self._step(self.placed).step_s
            whole = floor((moment_s - self.now_s) / step_s + _ROUNDING)
            due = (self.checkpoint_due_s - self.now_s) / step_s
            steps = whole if due >= whole else ceil(due - _ROUNDING)
            self._advance(steps)
            if steps == whole:
                return

    def _advance(self, steps: int) -> None:
        self.step += steps
        self._spend(steps * self._step(self.placed).step_s, "train", self._rate(self.placed))

    def _finish_step(self) -> None:
        """End the step that is in flight at this moment."""
        if self.placed is not None and self.now_s < self.moment_s - _ROUNDING:
            self._advance(1)

    def _note_checkpoint(self) -> None:
        self.saved_step = self.step
        self.checkpoint_due_s = self.now_s + self.scenario.checkpoint_every_s

    def _rate(self, placed: Placed | None) -> float:
        """In samples/s; 0 where nobody is there or the step does not fit."""
        return self.batch / self._step(placed).step_s if placed and self._step(placed).fits else 0.0

    def _step(self, placed: Placed | None) -> Report:
        """The steady step of a plan under the present conditions, simulated once."""
        assert placed is not None
        key = id(placed), self.conditions
        if key not in self.steps:
            cluster = select(self.conditions.applied(self.usual), placed.members)
            self.steps[key] = step_report(self.profile, cluster, placed.plan, runtime=self.runtime)
        return self.steps[key]

    def _planned(self, devices: Iterable[int]) -> Placed:
        """The plan on these devices under the present conditions."""
        members, old = tuple(sorted(devices)), self.placed if self.scenario.migration else None
        key = members, self.conditions, id(old)
        if key not in self.plans:
            cluster = select(self.conditions.applied(self.usual), members)
            plan = self.plan_of(cluster, renumbered(old, members) if old else None)
            self.plans[key] = Placed(plan=plan, members=members)
        return self.plans[key]

    @property
    def _pricing(self) -> Reconfiguration:
        cluster = self.conditions.applied(self.usual)
        return Reconfiguration(profile=self.profile, cluster=cluster, overheads=self.overheads)

    def _handle(self, event: Event) -> None:
        devices_change = {"join": self._join, "leave": self._leave, "vanish": self._vanish}
        devices_change.get(event.event, self._change_conditions)(event, numbers_of(self.usual, event.devices))

    def _arrive(self, named: set[int]) -> None:
        self.present |= named
        self.since_s |= dict.fromkeys(named, self.moment_s)

    def _depart(self, named: set[int], moment_s: float) -> None:
        """Devices go, and what they cost since they came is paid."""
        for device in named & self.present:
            price = self.usual.devices[device].dollars_per_hour or 0.0
            self.dollars += price * (moment_s - self.since_s[device]) / 3600
        self.present -= named

    def _join(self, event: Event, named: set[int]) -> None:
        self._arrive(named)
        self.conditions = self.conditions.with_speeds(named, 1.0)
        if self.placed is None or self.policy == "restart":
            self._admit(event, named)
        else:
            new = self._planned({*self.placed.members, *named})
            starting_s = ordered_sum(self._pricing.live(self.placed, new).beside_s.values())
            self._at(max(self.moment_s, self.now_s) + starting_s, lambda: self._admit(event, named))

    def _admit(self, event: Event, named: set[int]) -> None:
        """Let devices in, those that are still there: under live, once their processes have started."""
        self._finish_step()
        old, here = self.placed, named & self.present
        if here and old is None:
            new = self._planned(here)
            self._apply(event, self._pricing.resume(new), new)
        elif here and old is not None:
            new = self._planned({*old.members, *here})
            restarts = self.policy == "restart"
            self._apply(event, self._pricing.restart(new) if restarts else self._pricing.live(old, new), new)

    def _leave(self, event: Event, named: set[int]) -> None:
        old, deadline_s = self.placed, event.at_s + event.notice_s
        if old is None or not named & set(old.members):
            self._depart(named, self.moment_s)
            return
        new = self._without(named)
        change = self._leaving(old, new)
        needed_s = change.parts_s.get(WRITE, change.pause_s)
        if max(self.moment_s, self.now_s) + self._step(self.placed).step_s + needed_s > deadline_s:
            self._at(deadline_s, lambda: self._vanish(event, named & self.present))
            return
        self._finish_step()
        self._apply(event, change, new)
        self._depart(named, self.now_s)

    def _without(self, named: set[int]) -> Placed | None:
        """The plan of the members that are not named; None where that leaves nobody."""
        staying = set(self.placed.members) - named if self.placed else ()
        return self._planned(staying) if staying else None

    def _leaving(self, old: Placed, new: Placed | None) -> Change:
        if new is None:
            return Change(policy="suspend", parts_s={WRITE: self._pricing.checkpoint_s(old)})
        return self._pricing.restart(new) if self.policy == "restart" else self._pricing.shrink(old, new)

    def _vanish(self, event: Event, named: set[int]) -> None:
        self._depart(named, self.moment_s)
        old = self.placed
        if old is None or not named & set(old.members):
            return
        lost_s = max(self.moment_s - self.now_s, 0.0)
        self._spend(lost_s, "lost step")
        new = self._without(named)
        if new is None:
            change = Change(policy="suspend", parts_s={}, rolls_back=True)
        elif self.policy == "restart":
            change = self._pricing.restart(new, planned=False)
        else:
            change = self._pricing.recover(old, new, named)
        self._apply(event, change, new, lost_s)

    def _change_conditions(self, event: Event, named: set[int]) -> None:
        """From the next step on; a live job takes a new plan where it is faster."""
        self._finish_step()
        if event.event == "slow":
            self.conditions = self.conditions.with_speeds(named, event.to)
        else:
            self.conditions = self.conditions.with_tier(event.tier, event.to)
        old = self.placed
        if old is None:
            return
        new = self._planned(old.members)
        faster = self.policy == "live" and self._rate(new) * (1 - _ROUNDING) > self._rate(old)
        change = self._pricing.rebalance(old, new) if faster else Change(policy="none", parts_s={})
        self._apply(event, change, new if faster else old)

    def _apply(self, event: Event, change: Change, new: Placed | None, lost_s: float = 0.0) -> None:
        """Pause for `change`, go back to the checkpoint where it does, and go on as `new`."""
        self._spend(change.pause_s, change.policy)
        if WRITE in change.parts_s:
            self._note_checkpoint()
        repeated = self.step - self.saved_step if change.rolls_back else 0
        self.step -= repeated
        self.placed = new
        rate = self._rate(new)
        self.incidents.append(
            Incident(
                at_s=event.at_s,
                event=str(event),
                policy=change.policy,
                parts_s=change.parts_s,
                beside_s=change.beside_s,
                lost_step_s=lost_s,
                again_s=repeated * self._step(self.placed).step_s if rate else 0.0,
                lost_samples=self.batch if lost_s > _ROUNDING else 0,
                repeated_samples=repeated * self.batch,
                moved_bytes=change.moved_bytes,
                devices=len(new.members) if new else 0,
                samples_per_s=rate,
            )
        )
