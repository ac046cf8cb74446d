"""With more devices, faster links or more memory: is an answer ever slower?

Usage: python -m benchmarks.robustness.never_slower
[--pairs 200] [--seed 0] [--profiles NAMES] [--strategies NAMES]

A pair is one random case (profile, strategy, cluster, memory, batch, micro-batches, schedule) and the same with more of
one thing. A violation is a step more than 0.5 % longer, or a plan that no longer fits. More devices count for the
strategies that may leave some idle; data parallelism and its like take all that there are, and a sum over more of them
takes longer: that is physics.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from benchmarks.pages.published import table
from partitioners import make_plan, options, strategies
from simulator import files
from simulator.cluster import Cluster
from simulator.errors import ShardscopeError
from simulator.network.topologies import Wire, flat_switch, two_tier
from simulator.plan import StepSettings
from simulator.run import step_report
from simulator.workload import Profile

PROFILES = "alexnet,vgg_small,vgg16,vgg16_v100,resnet_small,resnet50_v100,inception_v3,gpt_1_3b_v100,bert_large_v100"
DEVICES = (1, 2, 3, 4, 6, 8, 12, 16)
GIGABITS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
GIBIBYTES = (2.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 80.0)
BATCHES = (64, 128, 256, 1024)
MICROBATCHES = (None, 1, 2, 4, 8)
SCHEDULES = (None, "gpipe", "1f1b")
MAY_IDLE = ("model", "pipeline", "hypergraph")
"""Strategies that choose how many devices they use."""
LEFT_OUT = ("shuffle", "greedy", "metis")
"""Whose plans are not made with links or memory in mind."""
NVLINK = Wire(bandwidth_bytes_per_s=1.2e11, latency_s=3e-6, tier="intra")
TOLERANCE = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCase:
    """What a strategy is asked for."""

    profile: str
    strategy: str
    nodes: bool
    """Four devices to a node, or all on one switch."""
    devices: int
    gigabits: float
    gibibytes: float
    batch: int
    microbatches: int | None
    schedule: str | None

    def cluster(self) -> Cluster:
        wire = Wire(bandwidth_bytes_per_s=self.gigabits / 8 * 1e9, latency_s=2e-5, tier="inter")
        made = two_tier(self.devices, 4, NVLINK, wire) if self.nodes else flat_switch(self.devices, wire)
        fitted = tuple(replace(device, memory_bytes=int(self.gibibytes * 2**30)) for device in made.devices)
        speed = 60.0 if "thread" in profile_called(self.profile).device else 1.0  # a GPU in place of a measured CPU
        return replace(made, devices=fitted).with_speed(speed)


@cache
def profile_called(name: str) -> Profile:
    return files.read_profile(name)


def answer(case: StepCase) -> tuple[bool, float] | None:
    """Whether the strategy's plan fits, and its step in seconds; None where it has no plan."""
    profile, cluster = profile_called(case.profile), case.cluster()
    own: dict[str, Any] = {"effort": 0.1} if "effort" in options(case.strategy) else {}
    step = StepSettings(batch_size=case.batch, microbatches=case.microbatches, schedule=case.schedule)
    try:
        report = step_report(profile, cluster, make_plan(case.strategy, profile, cluster, step, **own))
    except ShardscopeError:
        return None
    return report.fits, report.step_s


def random_pair(draw: random.Random, profiles: Sequence[str], names: Sequence[str]) -> tuple[str, StepCase, StepCase]:
    """What there is more of, and a case with less and with more of it."""
    case = StepCase(
        profile=draw.choice(profiles),
        strategy=draw.choice(names),
        nodes=draw.random() < 0.5,
        devices=draw.choice(DEVICES),
        gigabits=draw.choice(GIGABITS),
        gibibytes=draw.choice(GIBIBYTES),
        batch=draw.choice(BATCHES),
        microbatches=draw.choice(MICROBATCHES),
        schedule=draw.choice(SCHEDULES),
    )
    unread: dict[str, Any] = {name: None for name in ("schedule", "microbatches") if name not in options(case.strategy)}
    case = replace(case, **unread)
    more = {"gigabits": GIGABITS, "gibibytes": GIBIBYTES, "devices": DEVICES}
    what = draw.choice([*more] if case.strategy in MAY_IDLE else ["gigabits", "gibibytes"])
    few, many = sorted(draw.sample(more[what], 2))
    less_of, more_of = dict[str, Any]({what: few}), dict[str, Any]({what: many})
    return what, replace(case, **less_of), replace(case, **more_of)


def longer(less: StepCase, more: StepCase) -> float | None:
    """By how much, relative, the step with more is longer; infinite where it no longer fits, None where nothing is
    comparable."""
    before, after = answer(less), answer(more)
    if before is None or after is None or not before[0]:
        return None
    return after[1] / before[1] - 1 if after[0] else float("inf")


def pairs(
    count: int, seed: int, profiles: Sequence[str], names: Sequence[str]
) -> Iterator[tuple[str, StepCase, float]]:
    """So many comparable pairs: what there is more of, the case with less, by how much more is longer."""
    draw, compared = random.Random(seed), 0
    while compared < count:
        what, less, more = random_pair(draw, profiles, names)
        share = longer(less, more)
        if share is not None:
            compared += 1
            if share > TOLERANCE:
                print(f"{share:+.2%} with more {what}: {less} and {getattr(more, what)}", file=sys.stderr, flush=True)
            yield what, less, share


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--profiles", default=PROFILES)
    parser.add_argument("--strategies", default=",".join(name for name in strategies() if name not in LEFT_OUT))
    args = parser.parse_args(argv)
    counts: dict[tuple[str, str], list[float]] = {}
    for what, less, share in pairs(args.pairs, args.seed, args.profiles.split(","), args.strategies.split(",")):
        counts.setdefault((less.strategy, what), []).append(share)
    rows = [
        [*key, str(len(shares)), str(sum(share > TOLERANCE for share in shares)), f"{max(shares):+.2%}"]
        for key, shares in sorted(counts.items())
    ]
    print(table(["strategy", "more of", "pairs", "longer by over 0.5 %", "worst"], rows))


if __name__ == "__main__":
    main()
