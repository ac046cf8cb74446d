"""Devices that come and go in a training for real, beside what the simulator says.

    sudo python -m traces.elastic.rehearsal

A crew trains in a network lab of this machine (root) through two series, twice as many devices each time and back:

    live      joiners start beside the training; leavers leave after a step
    restart   checkpoint, stop, launch, initialise, read: what elastic launchers do

and a device is killed in the middle of a step, and another one's link cut. Every sample of every step is accounted for,
and every loss is compared with that of one process without any change.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from simulator import files
from simulator.cluster import Cluster
from simulator.elastic.movement import Placed, movement
from simulator.elastic.reconfiguration import Change, Reconfiguration, read_overheads
from simulator.network.catalogue import read_cluster
from simulator.plan import Placement, Plan
from simulator.units import format_time
from simulator.workload import Profile
from traces.elastic.elastic_worker import ElasticWorker, TrainingJob, samples_of
from traces.elastic.membership_changes import MembershipChange, losses, samples_seen, switch_of
from traces.elastic.process_group import ElasticProcessGroup
from traces.lab.shaped_network import Lab
from traces.results.validation_cases import LabNetwork

SERIES = ("live", "restart", "killed", "cut")
SIZES = (1, 2, 4, 8, 4, 2, 1)
STEPS = 16
"""Steps between two changes."""
SILENCE_S = 3.0
"""How long members wait for each other before they hold one for gone, where one is lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """A series of changes: how each went, whether each sample came once.

    loss_difference: the largest of any step's, relative to the first loss; sums of float32 depend on their order.
    """

    switches: tuple[MembershipChange, ...]
    steps: int
    samples_once: bool
    loss_difference: float


def rehearse(
    training: TrainingJob, lab: Lab | None, cores: Sequence[int], pricing: Reconfiguration, policy: str,
    sizes: Sequence[int] = SIZES,
) -> Rehearsal:  # fmt: skip
    """Train through `sizes` devices, one after the other, under a policy ("live" or "restart")."""
    names = []
    with ElasticProcessGroup(training, lab, cores) as crew:
        crew.start(tuple(range(sizes[0])))
        for before, after in pairwise(sizes):
            crew.await_steps(STEPS)
            members = tuple(range(after))
            if after > before:
                moved = _moved(training, pricing, before, after) if policy == "live" else []
                crew.expand(members, policy, moved)
            else:
                crew.shrink(members, policy if policy == "restart" else "shrink")
            names.append("shrink" if after < before and policy == "live" else policy)
        crew.await_steps(STEPS)
        crew.finish()
        return rehearsal(crew, training, names)


def lose(
    training: TrainingJob, lab: Lab | None, cores: Sequence[int], members: int = 4, silently: bool = False
) -> Rehearsal:
    """Train on `members` devices and kill the last in the middle of a step, or cut its link."""
    with ElasticProcessGroup(training, lab, cores, timeout_s=SILENCE_S) as crew:
        crew.start(tuple(range(members)))
        crew.await_steps(STEPS)
        crew.kill(members - 1, silently=silently)
        crew.await_steps(STEPS)
        crew.finish()
        return rehearsal(crew, training, ["recover"])


def predicted(training: TrainingJob, pricing: Reconfiguration, switch: MembershipChange) -> Change:
    """What the simulator says of a change."""
    old, new = placed(training, pricing.profile, switch.before), placed(training, pricing.profile, switch.after)
    if switch.policy == "restart":
        return pricing.restart(new)
    if switch.policy == "live":
        return pricing.live(old, new)
    if switch.policy == "shrink":
        return pricing.shrink(old, new)
    return pricing.recover(old, new, set(old.members) - set(new.members))


def placed(training: TrainingJob, profile: Profile, devices: int) -> Placed:
    """Data parallelism with momentum on the first devices."""
    placement = Placement(degrees=(devices, 1, 1, 1), devices=tuple(range(devices)))
    placements = {layer.name: placement for layer in profile.layers}
    plan = Plan(model=profile.model, batch_size=training.batch_size, placements=placements, strategy="data")
    return Placed(plan=plan, members=tuple(range(devices)))


def _moved(training: TrainingJob, pricing: Reconfiguration, before: int, after: int) -> list[tuple[int, int]]:
    """Who sends the state to whom, as the simulator has it move."""
    old, new = (placed(training, pricing.profile, devices) for devices in (before, after))
    return [(one.source, one.target) for one in movement(pricing.profile, pricing.cluster, old, new).messages]


def rehearsal(crew: ElasticProcessGroup, training: TrainingJob, names: Sequence[str]) -> Rehearsal:
    """What a crew that has finished went through; `names` are the policies of its changes."""
    found = losses(crew)
    seen = samples_seen(crew, len(found))
    allowed = "recover" in names  # the last lines of a killed process may be missing
    once = all(_once(seen[step], samples_of(training, step), allowed) for step in seen)
    expected = _alone(training, len(found))
    return Rehearsal(
        switches=tuple(switch_of(crew, number, name) for number, name in enumerate(names, start=1)),
        steps=len(found),
        samples_once=once,
        loss_difference=max(abs(a - b) for a, b in zip(found, expected, strict=True)) / expected[0],
    )


def _once(seen: list[int], wanted: list[int], some_missing: bool) -> bool:
    return len(set(seen)) == len(seen) and (set(seen) <= set(wanted) if some_missing else seen == sorted(wanted))


def _alone(training: TrainingJob, steps: int) -> list[float]:
    """The losses of one process to which nothing happens."""
    worker = ElasticWorker(training)
    return [worker.step()[0] for _ in range(steps)]


def table(training: TrainingJob, pricing: Reconfiguration, rehearsals: Sequence[Rehearsal]) -> Iterator[str]:
    """Lines of a Markdown table: each change, medians over the rehearsals that made it, beside its prediction."""
    yield "| change | policy | parts of the pause (predicted) | pause | predicted | error | lost time | start | step |"
    yield "| --- | --- | --- | --: | --: | --: | --: | --: | --: |"
    for alike in zip(*(one.switches for one in rehearsals), strict=True):
        switch = min(alike, key=lambda one: abs(one.pause_s - statistics.median(x.pause_s for x in alike)))
        change = predicted(training, pricing, switch)
        parts = ", ".join(
            f"{name} {format_time(seconds)} ({format_time(change.parts_s.get(name, 0.0))})"
            for name, seconds in switch.parts_s.items()
        )
        error = change.pause_s / switch.pause_s - 1
        yield (
            f"| {switch.before} → {switch.after} | {switch.policy} | {parts} | {format_time(switch.pause_s)} "
            f"| {format_time(change.pause_s)} | {error:+.0%} | {format_time(switch.lost_s)} "
            f"| {format_time(switch.beside_s)} | {format_time(switch.step_s)} |"
        )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m traces.elastic.rehearsal", description=__doc__)
    parser.add_argument("--cluster", metavar="FILE", help="measured lab of 8 devices (default: 1 Gbit/s, nominal)")
    parser.add_argument("--overheads", metavar="FILE", required=True, help="what `calibrate --reconfiguration` wrote")
    parser.add_argument("--repeats", metavar="N", type=int, default=1, help="rehearsals of each series (default 1)")
    parser.add_argument(
        "--series", metavar="NAME", nargs="+", choices=SERIES, default=SERIES, help=f"of {', '.join(SERIES)} (all)"
    )
    parser.add_argument("--batch-size", metavar="B", type=int, default=64)
    args = parser.parse_args(argv)
    cores = sorted(os.sched_getaffinity(0))
    nominal = LabNetwork(ranks=8, mbit=1000).cluster(cores)
    cluster: Cluster = read_cluster(args.cluster) if args.cluster else nominal
    training = TrainingJob(model="vgg_small", batch_size=args.batch_size)
    profile = files.read_profile(training.model)
    pricing = Reconfiguration(profile=profile, cluster=cluster, overheads=read_overheads(args.overheads))
    silent = replace(pricing, overheads=replace(pricing.overheads, detect_s=SILENCE_S))
    with Lab(nominal) as lab:
        for name in args.series:
            if name in ("live", "restart"):
                _tell(training, pricing, [rehearse(training, lab, cores, pricing, name) for _ in range(args.repeats)])
            else:
                cut = name == "cut"
                found = [lose(training, lab, cores, silently=cut) for _ in range(args.repeats)]
                _tell(training, silent if cut else pricing, found)
    return 0


def _tell(training: TrainingJob, pricing: Reconfiguration, found: Sequence[Rehearsal]) -> None:
    print("\n".join(table(training, pricing, found)))
    once, worst = all(one.samples_once for one in found), max(one.loss_difference for one in found)
    steps, told = ", ".join(str(one.steps) for one in found), "yes" if once else "NO"
    print(f"\n{steps} steps; every sample once: {told}; losses differ by at most {worst:.1e} of the first\n")
    for one in found:
        for switch in one.switches:
            print(f"    {switch}", file=sys.stderr)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
