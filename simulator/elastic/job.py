"""Simulate a job over a scenario: steady steps between membership changes, one simulation per configuration.

A planned change waits for the end of the step in flight; a device that fails (event "vanish") loses that step. An event
during a pause is handled when the pause is over. Devices with notice leave at once, not at the end of it; where the
notice is too short for what must be done before, they fail at its end.
"""

from __future__ import annotations

from collections.abc import Callable
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
from simulator.run import step_seconds
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


class _Job:
    def __init__(
        self,
        scenario: Scenario,
        profile: Profile,
        cluster: Cluster,
        overheads: Overheads,
        plan_of: PlanOf,
        policy: str,
        runtime: Runtime,
    ) -> None:
        self._runtime = runtime
        self._scenario, self._profile, self._usual, self._overheads = scenario, profile, cluster, overheads
        self._policy, self._conditions = policy, Conditions()
        self._now_s, self._moment_s, self._dollars = 0.0, 0.0, 0.0
        self._step, self._saved_step = 0, 0
        self._segments: list[Segment] = []
        self._incidents: list[Incident] = []
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._checkpoint_due_s = scenario.checkpoint_every_s
        self._present: set[int] = set()
        self._since_s: dict[int, float] = {}
        self._arrive(set(scenario.first_members(cluster)))

        self._plan_of = plan_of
        self._plans: dict[tuple[tuple[int, ...], Conditions, int], Placed] = {}
        self._steps_s: dict[tuple[int, Conditions], float] = {}
        self._placed: Placed | None = None
        self._placed = self._planned(_sorted(self._present), self._conditions)
        self._batch = self._placed.plan.batch_size

    def run(self) -> Account:
        end_s = self._scenario.duration_s
        for event in self._scenario.events:
            self._at(event.at_s, lambda event=event: self._handle(event))  # type: ignore[misc]
        while self._queue and self._queue[0][0] < end_s:
            self._moment_s, _, action = heappop(self._queue)
            self._train_until(self._moment_s)
            action()
        self._train_until(end_s)
        self._spend(max(end_s - self._now_s, 0.0), "train")
        self._depart(set(self._present), self._now_s)
        return Account(
            policy=self._policy,
            duration_s=self._now_s,
            samples=self._step * self._batch,
            dollars=self._dollars,
            segments=tuple(self._segments),
            incidents=tuple(self._incidents),
        )

    # Time.

    def _at(self, moment_s: float, action: Callable[[], None]) -> None:
        heappush(self._queue, (moment_s, next(self._order), action))

    def _spend(self, seconds: float, what: str, rate: float = 0.0) -> None:
        """Let time pass; `rate` is in samples/s."""
        if seconds <= 0:
            return
        members = len(self._placed.members) if self._placed else 0
        start_s, self._now_s = self._now_s, self._now_s + seconds
        self._segments.append(
            Segment(start_s=start_s, end_s=self._now_s, what=what, devices=members, samples_per_s=rate)
        )

    def _train_until(self, moment_s: float) -> None:
        """Whole steps that end by `moment_s`, with checkpoints between them."""
        while self._now_s < moment_s:
            if self._placed is None:
                self._spend(moment_s - self._now_s, "idle")
                return
            if self._checkpoint_due_s <= self._now_s:
                self._checkpoint()
                continue
            whole = floor((moment_s - self._now_s) / self._step_s + _ROUNDING)
            due = (self._checkpoint_due_s - self._now_s) / self._step_s
            steps = whole if due >= whole else ceil(due - _ROUNDING)
            self._advance(steps)
            if steps == whole:
                return

    def _advance(self, steps: int) -> None:
        self._step += steps
        self._spend(steps * self._step_s, "train", self._batch / self._step_s)

    def _finish_step(self) -> None:
        """End the step that is in flight at this moment."""
        if self._placed is not None and self._now_s < self._moment_s - _ROUNDING:
            self._advance(1)

    def _checkpoint(self) -> None:
        assert self._placed is not None
        self._spend(self._pricing.checkpoint_s(self._placed), "checkpoint")
        self._note_checkpoint()

    def _note_checkpoint(self) -> None:
        self._saved_step = self._step
        self._checkpoint_due_s = self._now_s + self._scenario.checkpoint_every_s

    @property
    def _step_s(self) -> float:
        assert self._placed is not None
        return self._seconds(self._placed)

    def _seconds(self, placed: Placed) -> float:
        """The steady step of a plan under the present conditions, simulated once."""
        key = id(placed), self._conditions
        if key not in self._steps_s:
            cluster = select(self._conditions.applied(self._usual), placed.members)
            self._steps_s[key] = step_seconds(self._profile, cluster, placed.plan, self._runtime)
        return self._steps_s[key]

    def _planned(self, members: tuple[int, ...], conditions: Conditions) -> Placed:
        old = self._placed if self._scenario.migration else None
        key = members, conditions, id(old)
        if key not in self._plans:
            cluster = select(conditions.applied(self._usual), members)
            plan = self._plan_of(cluster, renumbered(old, members) if old else None)
            self._plans[key] = Placed(plan=plan, members=members)
        return self._plans[key]

    @property
    def _pricing(self) -> Reconfiguration:
        cluster = self._conditions.applied(self._usual)
        return Reconfiguration(profile=self._profile, cluster=cluster, overheads=self._overheads)

    # Events.

    def _handle(self, event: Event) -> None:
        named = numbers_of(self._usual, event.devices)
        if event.event == "join":
            self._join(event, named)
        elif event.event == "leave":
            self._leave(event, named)
        elif event.event == "vanish":
            self._vanish(event, named)
        else:
            self._change_conditions(event, named)

    def _arrive(self, named: set[int]) -> None:
        self._present |= named
        self._since_s |= dict.fromkeys(named, self._moment_s)

    def _depart(self, named: set[int], moment_s: float) -> None:
        """Devices go, and what they cost since they came is paid."""
        for device in named & self._present:
            price = self._usual.devices[device].dollars_per_hour or 0.0
            self._dollars += price * (moment_s - self._since_s[device]) / 3600
        self._present -= named

    def _join(self, event: Event, named: set[int]) -> None:
        self._arrive(named)
        self._conditions = self._conditions.with_speeds(named, 1.0)
        if self._placed is None or self._policy == "restart":
            self._admit(event, named)
        else:
            new = self._planned(_sorted({*self._placed.members, *named}), self._conditions)
            starting_s = ordered_sum(self._pricing.live(self._placed, new).beside_s.values())
            self._at(max(self._moment_s, self._now_s) + starting_s, lambda: self._admit(event, named))

    def _admit(self, event: Event, named: set[int]) -> None:
        """Let devices in, those that are still there: under live, once their processes have started."""
        self._finish_step()
        old, here = self._placed, named & self._present
        if here and old is None:
            new = self._planned(_sorted(here), self._conditions)
            self._apply(event, self._pricing.resume(new), new)
        elif here and old is not None:
            new = self._planned(_sorted({*old.members, *here}), self._conditions)
            restarts = self._policy == "restart"
            self._apply(event, self._pricing.restart(new) if restarts else self._pricing.live(old, new), new)

    def _leave(self, event: Event, named: set[int]) -> None:
        old, deadline_s = self._placed, event.at_s + event.notice_s
        if old is None or not named & set(old.members):
            self._depart(named, self._moment_s)
            return
        new = self._without(named)
        change = self._leaving(old, new)
        needed_s = change.parts_s.get(WRITE, change.pause_s)
        if max(self._moment_s, self._now_s) + self._step_s + needed_s > deadline_s:
            self._at(deadline_s, lambda: self._vanish(event, named & self._present))
            return
        self._finish_step()
        self._apply(event, change, new)
        self._depart(named, self._now_s)

    def _without(self, named: set[int]) -> Placed | None:
        """The plan of the members that are not named; None where that leaves nobody."""
        staying = _sorted(set(self._placed.members) - named) if self._placed else ()
        return self._planned(staying, self._conditions) if staying else None

    def _leaving(self, old: Placed, new: Placed | None) -> Change:
        if new is None:
            return Change(policy="suspend", parts_s={WRITE: self._pricing.checkpoint_s(old)})
        return self._pricing.restart(new) if self._policy == "restart" else self._pricing.shrink(old, new)

    def _vanish(self, event: Event, named: set[int]) -> None:
        self._depart(named, self._moment_s)
        old = self._placed
        if old is None or not named & set(old.members):
            return
        lost_s = max(self._moment_s - self._now_s, 0.0)
        self._spend(lost_s, "lost step")
        new = self._without(named)
        if new is None:
            change = Change(policy="suspend", parts_s={}, rolls_back=True)
        elif self._policy == "restart":
            change = self._pricing.restart(new, planned=False)
        else:
            change = self._pricing.recover(old, new, named)
        self._apply(event, change, new, lost_s)

    def _change_conditions(self, event: Event, named: set[int]) -> None:
        """From the next step on; a live job takes a new plan where it is faster."""
        self._finish_step()
        if event.event == "slow":
            self._conditions = self._conditions.with_speeds(named, event.to)
        else:
            self._conditions = self._conditions.with_tier(event.tier, event.to)
        old = self._placed
        if old is None:
            return
        new = self._planned(old.members, self._conditions)
        faster = self._seconds(new) < self._seconds(old) * (1 - _ROUNDING)
        if self._policy == "live" and faster:
            self._apply(event, self._pricing.rebalance(old, new), new)
        else:
            self._apply(event, Change(policy="none", parts_s={}), old)

    def _apply(self, event: Event, change: Change, new: Placed | None, lost_s: float = 0.0) -> None:
        """Pause for `change`, go back to the checkpoint where it does, and go on as `new`."""
        self._spend(change.pause_s, change.policy)
        if WRITE in change.parts_s:
            self._note_checkpoint()
        repeated = self._step - self._saved_step if change.rolls_back else 0
        self._step -= repeated
        self._placed = new
        again_s = repeated * self._step_s if new else 0.0
        self._incidents.append(
            Incident(
                at_s=event.at_s,
                event=str(event),
                policy=change.policy,
                parts_s=change.parts_s,
                beside_s=change.beside_s,
                lost_step_s=lost_s,
                again_s=again_s,
                lost_samples=self._batch if lost_s > 0 else 0,
                repeated_samples=repeated * self._batch,
                moved_bytes=change.moved_bytes,
                devices=len(new.members) if new else 0,
                samples_per_s=self._batch / self._step_s if new else 0.0,
            )
        )


def _sorted(devices: set[int]) -> tuple[int, ...]:
    return tuple(sorted(devices))
