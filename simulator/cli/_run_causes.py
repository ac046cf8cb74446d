"""What would explain a step that is slower than predicted, and with which number: each cause alone, by simulating.

A cause is a what-if with one number, and a range in which that number occurs. Its most is tried first; where it leaves
more than a fifth of the loss it is excluded, else the number is looked for that makes the step what it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import log

from simulator.cluster import Cluster
from simulator.engine.noise import Noise
from simulator.plan import Plan
from simulator.run import step_report
from simulator.runtime import Runtime
from simulator.studies.bandwidth_need import per_device_bytes_per_s
from simulator.workload import Profile

EXPLAINED = 0.8
"""Of the loss: a cause that explains less is not named."""
SHORTEST_STALL_S, LONGEST_STALL_S = 0.005, 2.0
MANAGEMENT_BYTES_PER_S = 1.25e9
"""Of a node: 10 Gbit/s, over which collectives run in sockets where nothing else is found."""
LEAST_RANGE = 4.0
CHECK_S = 1e-4
"""Three of them for each member are a third more than such checks took in public runs (docs/language_models.md)."""
TRIES = 7
"""Halvings of the range, by its logarithm: the number is right to 3 % of a range of 50."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedRun:
    """What was predicted, and what a cause changes of it."""

    profile: Profile
    cluster: Cluster
    plan: Plan
    runtime: Runtime
    noise: Noise = Noise()  # noqa: RUF009  # frozen

    @property
    def step_s(self) -> float:
        return step_report(self.profile, self.cluster, self.plan, runtime=self.runtime, noise=self.noise).step_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A cause with one number, `most` times worse at most."""

    name: str
    most: float
    """How many times worse it is seen to be; the source stands in docs/run_check.md."""
    changed: Callable[[SimulatedRun, float], SimulatedRun]
    said: Callable[[SimulatedRun, float], str]
    """What would explain it, with the number."""
    measured: str
    """How it is measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedCause:
    """A cause with the factor that it needs, and the share of the loss that it explains."""

    cause: Cause
    factor: float
    share: float
    text: str

    @property
    def named(self) -> bool:
        return self.share >= EXPLAINED

    @property
    def reach(self) -> float:
        """How far into its range the number lies, by the logarithm: the least is the likeliest."""
        return log(self.factor) / log(self.cause.most)


def tried_causes(run: SimulatedRun, step_s: float) -> list[TriedCause]:
    """Every cause that this run can have, the likeliest first, and those excluded behind them."""
    predicted_s = run.step_s
    tried = [_explained(run, cause, predicted_s, step_s) for cause in causes(run)]
    return sorted(tried, key=lambda each: (not each.named, each.reach if each.named else -each.share))


def _explained(run: SimulatedRun, cause: Cause, predicted_s: float, step_s: float) -> TriedCause:
    loss_s = step_s - predicted_s

    def share(factor: float) -> float:
        return (cause.changed(run, factor).step_s - predicted_s) / loss_s

    most = share(cause.most)
    if most <= 1:
        return TriedCause(cause=cause, factor=cause.most, share=most, text=cause.said(run, cause.most))
    low, high = 1.0, cause.most
    for _ in range(TRIES):
        middle = (low * high) ** 0.5
        low, high = (low, middle) if share(middle) >= 1 else (middle, high)
    return TriedCause(cause=cause, factor=high, share=1.0, text=cause.said(run, high))


def causes(run: SimulatedRun) -> Iterator[Cause]:
    """Those that this run can have."""
    if "inter" in run.cluster.tiers and len(run.plan.devices) > run.cluster.devices_per_host:
        yield _slower_tier(
            "inter",
            _slowest_inter(run.cluster),
            "between nodes",
            "all_reduce_perf of nccl-tests on two nodes: busbw is that number x GPUs",
        )
    if "intra" in run.cluster.tiers and len(run.plan.devices) > 1:
        yield _slower_tier(
            "intra", 20.0, "inside a node", "all_reduce_perf of nccl-tests on one node; nvidia-smi topo -m"
        )
    yield Cause(
        name="compute", most=3.0, changed=lambda run, x: replace(run, cluster=run.cluster.with_speed(1 / x)),
        said=lambda _, x: f"GPUs that compute {x:.2f} times as slowly (clocks, power cap, kernels that are not fused)",
        measured="nvidia-smi -q -d CLOCK,POWER,PERFORMANCE, and a matrix product of 8,192 alone",
    )  # fmt: skip
    if len(run.plan.devices) > 1:
        worst = max(run.plan.devices)
        yield Cause(
            name="straggler", most=2.0, changed=lambda run, x: replace(run, noise=Noise(stragglers={worst: x})),
            said=lambda _, x: f"one GPU that takes {x:.2f} times as long as the others",
            measured="the step's time of every rank without collectives, or a profile of each",
        )  # fmt: skip
        yield Cause(
            name="checks", most=4.0, changed=_checking,
            said=lambda _, x: f"checks of collectives, {1e3 * CHECK_S * (x - 1):.2f} ms for each member of a group",
            measured="the environment of the run: TORCH_DISTRIBUTED_DEBUG is DETAIL",
        )  # fmt: skip
    if run.runtime.forward_launch_s:
        yield Cause(
            name="launches", most=10.0, changed=_launching,
            said=lambda run, x: f"each host launch at {1e6 * x * run.runtime.forward_launch_s:.0f} us instead of "
            f"{1e6 * run.runtime.forward_launch_s:.0f}",
            measured="a profile of one step: gaps between kernels; py-spy; CPU clocks and pinning",
        )  # fmt: skip
    yield Cause(
        name="stall", most=LONGEST_STALL_S / SHORTEST_STALL_S, changed=_stalling,
        said=lambda _, x: f"{SHORTEST_STALL_S * x:.2f} s a step in which GPUs wait for data, logging or collection",
        measured="the same run on synthetic data; time around next(batch)",
    )  # fmt: skip


def _slower_tier(tier: str, most: float, where: str, measured: str) -> Cause:
    def changed(run: SimulatedRun, factor: float) -> SimulatedRun:
        return replace(run, cluster=run.cluster.with_links(tier, lambda link: link.times(1 / factor)))

    def said(run: SimulatedRun, factor: float) -> str:
        usual = per_device_bytes_per_s(run.cluster, tier) / 1e9
        return f"{where} {usual / factor:.1f} GB/s for each GPU instead of {usual:.1f}"

    return Cause(name=tier, most=most, changed=changed, said=said, measured=measured)


def _slowest_inter(cluster: Cluster) -> float:
    """How many times slower nodes are linked where they talk over their management network."""
    fastest = max(link.bandwidth_bytes_per_s for link in cluster.links if link.tier == "inter")
    return max(LEAST_RANGE, fastest / MANAGEMENT_BYTES_PER_S)


def _launching(run: SimulatedRun, factor: float) -> SimulatedRun:
    names = ("forward_launch_s", "backward_launch_s")
    slower = {name: factor * getattr(run.runtime, name) for name in names}
    return replace(run, runtime=replace(run.runtime, **slower))


def _checking(run: SimulatedRun, factor: float) -> SimulatedRun:
    checked_s = run.runtime.collective_check_s + CHECK_S * (factor - 1)
    return replace(run, runtime=replace(run.runtime, collective_check_s=checked_s))


def _stalling(run: SimulatedRun, factor: float) -> SimulatedRun:
    stall_s = SHORTEST_STALL_S * (factor - 1)
    return replace(run, runtime=replace(run.runtime, step_overhead_s=run.runtime.step_overhead_s + stall_s))
