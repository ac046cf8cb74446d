"""Real membership changes of an elastic process group, beside what the simulator predicts of each.

    sudo python -m benchmarks.studies.rehearsal

It trains in a network lab of this machine (root) through two series, twice as many devices each time and back:

    live      joiners start beside the training; leavers leave after a step
    restart   checkpoint, stop, launch, initialise, read: what elastic launchers do

and a device is killed in the middle of a step, and another one's link cut. Every sample of every step is accounted for,
and every loss is compared with that of one process without any membership change.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from benchmarks.studies.rehearsed_changes import CutGroup, RehearsedChange, rehearsed_change
from simulator import files
from simulator.cluster import Cluster
from simulator.elastic.movement import Placed, movement
from simulator.elastic.reconfiguration import Change, Reconfiguration, read_overheads
from simulator.errors import RunError
from simulator.network.catalogue import read_cluster
from simulator.plan import Synchronisation
from simulator.studies.scaling import replicated
from simulator.units import format_time
from simulator.workload import Profile
from traces.elastic.elastic_worker import ElasticWorker, TrainingJob, samples_of
from traces.elastic.process_group import ElasticProcessGroup, Line, MembershipChange
from traces.lab.child_processes import usable_cores
from traces.lab.shaped_network import Lab
from traces.results.executions import nearest_to_median
from traces.results.validation_cases import LabNetwork

SERIES = ("live", "restart", "killed", "cut")
SIZES = (1, 2, 4, 8, 4, 2, 1)
STEPS = 16
"""Steps between two changes."""
SILENCE_S = 3.0
"""How long ranks wait for each other before one counts as lost, in the series in which one is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """A series of membership changes as measured, and whether every step computed each of its samples once.

    loss_difference: the largest of any step's, relative to the first loss; sums of float32 depend on their order.
    """

    changes: tuple[RehearsedChange, ...]
    steps: int
    samples_once: bool
    loss_difference: float


def rehearse(
    training: TrainingJob, lab: Lab | None, cores: Sequence[int], pricing: Reconfiguration, policy: str,
    sizes: Sequence[int] = SIZES,
) -> Rehearsal:  # fmt: skip
    """Train on `sizes` devices, one number after the other, under a policy ("live" or "restart")."""
    policies = []
    with ElasticProcessGroup(training, lab, cores) as group:
        group.start(tuple(range(sizes[0])))
        for before, after in pairwise(sizes):
            group.await_steps(STEPS)
            devices = tuple(range(after))
            joined = after > before and policy == "live"
            group.change(devices, policy, _state_messages(training, pricing, before, after) if joined else [])
            policies.append("shrink" if after < before and policy == "live" else policy)
        group.await_steps(STEPS)
        group.finish()
        return rehearsal(group, training, policies)


def lose(
    training: TrainingJob, lab: Lab | None, cores: Sequence[int], devices: int = 4, silently: bool = False
) -> Rehearsal:
    """Train on `devices` devices and kill the last in the middle of a step; silently: its link is cut before."""
    kind = CutGroup if silently else ElasticProcessGroup
    with kind(training, lab, cores, timeout_s=SILENCE_S) as group:
        group.start(tuple(range(devices)))
        group.await_steps(STEPS)
        group.kill(devices - 1)
        group.await_steps(STEPS)
        group.finish()
        return rehearsal(group, training, ["recover"])


def predicted(training: TrainingJob, pricing: Reconfiguration, change: MembershipChange) -> Change:
    """What the simulator predicts of a membership change."""
    old, new = placed(training, pricing.profile, change.before), placed(training, pricing.profile, change.after)
    if change.policy == "restart":
        return pricing.restart(new)
    if change.policy == "live":
        return pricing.live(old, new)
    if change.policy == "shrink":
        return pricing.shrink(old, new)
    return pricing.recover(old, new, set(old.members) - set(new.members))


def placed(training: TrainingJob, profile: Profile, devices: int) -> Placed:
    """Data parallelism with momentum on the first devices."""
    plan = replicated(profile, devices, training.batch_size, Synchronisation())
    return Placed(plan=plan, members=tuple(range(devices)))


def _state_messages(training: TrainingJob, pricing: Reconfiguration, before: int, after: int) -> list[tuple[int, int]]:
    """Which device sends the state to which, in the order of the simulator's movement."""
    old, new = (placed(training, pricing.profile, devices) for devices in (before, after))
    messages = movement(pricing.profile, pricing.cluster, old, new).messages
    return [(message.source, message.target) for message in messages]


def rehearsal(group: ElasticProcessGroup, training: TrainingJob, policies: Sequence[str]) -> Rehearsal:
    """What a group that has finished measured; policies: of its membership changes, in order."""
    measured_losses = losses(group)
    steps = len(measured_losses)
    samples = samples_seen(group, steps)
    incomplete = "recover" in policies  # the last lines of a killed process may be missing
    expected_losses = _losses_of_one_process(training, steps)
    differences = (abs(a - b) for a, b in zip(measured_losses, expected_losses, strict=True))
    return Rehearsal(
        changes=tuple(rehearsed_change(group, number, policy) for number, policy in enumerate(policies, start=1)),
        steps=steps,
        samples_once=all(_once(samples[step], samples_of(training, step), incomplete) for step in samples),
        loss_difference=max(differences) / expected_losses[0],
    )


def samples_seen(group: ElasticProcessGroup, steps: int) -> dict[int, list[int]]:
    """By step, for the first `steps` of them, the samples that all ranks computed, sorted."""
    samples: dict[int, list[int]] = {step: [] for step in range(steps)}
    for line in _logged_steps(group):
        if line["step"] < steps:
            samples[line["step"]] += line["samples"]
    return {step: sorted(numbers) for step, numbers in samples.items()}


def losses(group: ElasticProcessGroup) -> list[float]:
    """The loss of every step, from the rank that logged it first. Raises RunError when a step is missing."""
    by_step: dict[int, float] = {}
    for line in _logged_steps(group):
        by_step.setdefault(line["step"], line["loss"])
    if sorted(by_step) != list(range(len(by_step))):
        raise RunError(f"of {max(by_step) + 1} steps only {len(by_step)} were logged")
    return [by_step[step] for step in range(len(by_step))]


def _logged_steps(group: ElasticProcessGroup) -> Iterator[Line]:
    """The steps that all devices logged, device by device."""
    for path in sorted(group.folder.glob("*.log")):
        yield from (line for line in group.lines(int(path.stem)) if line["what"] == "step")


def _once(computed: list[int], expected: list[int], incomplete: bool) -> bool:
    """Whether no sample was computed twice, and all that were expected were, unless logs are incomplete."""
    all_there = set(computed) <= set(expected) if incomplete else computed == sorted(expected)
    return all_there and len(set(computed)) == len(computed)


def _losses_of_one_process(training: TrainingJob, steps: int) -> list[float]:
    """The losses without any process group."""
    worker = ElasticWorker(training)
    return [worker.step()[0] for _ in range(steps)]


def table(training: TrainingJob, pricing: Reconfiguration, rehearsals: Sequence[Rehearsal]) -> Iterator[str]:
    """Lines of a Markdown table: each change, medians over the rehearsals that made it, beside its prediction."""
    yield "| change | policy | parts of the pause (predicted) | pause | predicted | error | lost time | start | step |"
    yield "| --- | --- | --- | --: | --: | --: | --: | --: | --: |"
    for repetitions in zip(*(rehearsal.changes for rehearsal in rehearsals), strict=True):
        change = repetitions[nearest_to_median([change.pause_s for change in repetitions])]
        prediction = predicted(training, pricing, change)
        parts = ", ".join(
            f"{name} {format_time(seconds)} ({format_time(prediction.parts_s.get(name, 0.0))})"
            for name, seconds in change.parts_s.items()
        )
        error = prediction.pause_s / change.pause_s - 1
        yield (
            f"| {change.before} → {change.after} | {change.policy} | {parts} | {format_time(change.pause_s)} "
            f"| {format_time(prediction.pause_s)} | {error:+.0%} | {format_time(change.lost_s)} "
            f"| {format_time(change.beside_s)} | {format_time(change.step_s)} |"
        )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.studies.rehearsal", description=__doc__)
    parser.add_argument("--cluster", metavar="FILE", help="measured lab of 8 devices (default: 1 Gbit/s, nominal)")
    parser.add_argument("--overheads", metavar="FILE", required=True, help="what `calibrate --reconfiguration` wrote")
    parser.add_argument("--repeats", metavar="N", type=int, default=1, help="rehearsals of each series (default 1)")
    parser.add_argument(
        "--series", metavar="NAME", nargs="+", choices=SERIES, default=SERIES, help=f"of {', '.join(SERIES)} (all)"
    )
    parser.add_argument("--batch-size", metavar="B", type=int, default=64)
    args = parser.parse_args(argv)
    cores = usable_cores()
    nominal = LabNetwork(ranks=8, mbit=1000).cluster(cores)
    cluster: Cluster = read_cluster(args.cluster) if args.cluster else nominal
    training = TrainingJob(model="vgg_small", batch_size=args.batch_size)
    profile = files.read_profile(training.model)
    pricing = Reconfiguration(profile=profile, cluster=cluster, overheads=read_overheads(args.overheads))
    silent = replace(pricing, overheads=replace(pricing.overheads, detect_s=SILENCE_S))
    with Lab(nominal) as lab:
        for name in args.series:
            if name in ("live", "restart"):
                rehearsals = [rehearse(training, lab, cores, pricing, name) for _ in range(args.repeats)]
            else:
                rehearsals = [lose(training, lab, cores, silently=name == "cut") for _ in range(args.repeats)]
            _print(training, silent if name == "cut" else pricing, rehearsals)
    return 0


def _print(training: TrainingJob, pricing: Reconfiguration, rehearsals: Sequence[Rehearsal]) -> None:
    print("\n".join(table(training, pricing, rehearsals)))
    steps = ", ".join(str(rehearsal.steps) for rehearsal in rehearsals)
    once = "yes" if all(rehearsal.samples_once for rehearsal in rehearsals) else "NO"
    worst = max(rehearsal.loss_difference for rehearsal in rehearsals)
    print(f"\n{steps} steps; every sample once: {once}; losses differ by at most {worst:.1e} of the first\n")
    for change in (change for rehearsal in rehearsals for change in rehearsal.changes):
        print(f"    {change}", file=sys.stderr)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
