"""Strategies with more devices or faster links: is an answer ever slower? Usage: python -m benchmarks.never_slower
[--profiles NAMES] [--strategies model,pipeline] [--batch-size 64] [--plain]

A pair is one answer and the same with the next number of devices, or the next bandwidth. A violation is a step more
than 0.5 % longer. --plain: of the unjudged cuts, to compare with.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product

from benchmarks.published import table
from partitioners import make_plan
from simulator import files
from simulator.cluster import Cluster
from simulator.errors import ShardscopeError
from simulator.network.topologies import Wire, flat_switch, two_tier
from simulator.plan import StepSettings
from simulator.run import step_seconds
from simulator.workload import Profile

PROFILES = "alexnet,vgg_small,vgg16,vgg16_v100,resnet_small,resnet50_v100,inception_v3,gpt_1_3b_v100,bert_large_v100"
DEVICES = (1, 2, 3, 4, 6, 8, 12, 16)
GIGABITS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
NVLINK = Wire(bandwidth_bytes_per_s=1.2e11, latency_s=3e-6, tier="intra")
TOLERANCE = 0.005


def cluster_of(shape: str, devices: int, gigabits: float, speed: float) -> Cluster:
    """Devices on one switch, or four to a node."""
    wire = Wire(bandwidth_bytes_per_s=gigabits / 8 * 1e9, latency_s=2e-5, tier="inter")
    cluster = two_tier(devices, 4, NVLINK, wire) if shape == "nodes" else flat_switch(devices, wire)
    return cluster.with_speed(speed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """Steps of a strategy for a profile, by (devices, Gb/s), and what the plans took."""

    steps_s: dict[tuple[int, float], float]
    planned_s: list[float]

    def longer(self) -> list[float]:
        """By how much, relative, the step of each pair is longer with more."""
        pairs = [((few, g), (many, g)) for few, many in pairwise(DEVICES) for g in GIGABITS]
        pairs += [((n, slow), (n, fast)) for slow, fast in pairwise(GIGABITS) for n in DEVICES]
        return [
            self.steps_s[more] / self.steps_s[less] - 1 for less, more in pairs if {less, more} <= set(self.steps_s)
        ]


def answers(profile: Profile, strategy: str, shape: str, speed: float, batch_size: int, judged: bool) -> Answers:
    """The strategy's steps for every number of devices and bandwidth that it has a plan for."""
    steps_s, planned_s = {}, []
    for devices, gigabits in product(DEVICES, GIGABITS):
        cluster = cluster_of(shape, devices, gigabits, speed)
        began = time.perf_counter()
        try:
            plan = make_plan(strategy, profile, cluster, StepSettings(batch_size=batch_size), judged=judged)
        except ShardscopeError:
            continue
        planned_s.append(time.perf_counter() - began)
        steps_s[devices, gigabits] = step_seconds(profile, cluster, plan)
    return Answers(steps_s=steps_s, planned_s=planned_s)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profiles", default=PROFILES)
    parser.add_argument("--strategies", default="model,pipeline")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--plain", action="store_true")
    args = parser.parse_args(argv)
    longer: list[float] = []
    rows = []
    for row, pairs in _rows(args):
        print(" ".join(row), file=sys.stderr, flush=True)
        rows.append(row)
        longer += pairs
    header = ["profile", "strategy", "cluster", "pairs", "longer by over 0.5 %", "worst", "plan, median", "longest"]
    print(table(header, rows))
    violated = sum(share > TOLERANCE for share in longer)
    print(f"\n{len(longer)} pairs, {violated} longer by over {TOLERANCE:.1%}, worst {max(longer):+.2%}")


def _rows(args: argparse.Namespace) -> Iterator[tuple[list[str], list[float]]]:
    for name, strategy, shape in product(args.profiles.split(","), args.strategies.split(","), ("switch", "nodes")):
        profile = files.read_profile(name)
        speed = 60.0 if "thread" in profile.device else 1.0  # a GPU in the place of a measured CPU
        done = answers(profile, strategy, shape, speed, args.batch_size, not args.plain)
        longer = done.longer()
        over = sum(share > TOLERANCE for share in longer)
        times = [f"{statistics.median(done.planned_s):.2f} s", f"{max(done.planned_s):.2f} s"]
        yield [name, strategy, shape, str(len(longer)), str(over), f"{max(longer):+.2%}", *times], longer


if __name__ == "__main__":
    main()
