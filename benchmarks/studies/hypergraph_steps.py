"""How often `hypergraph` beats the strongest configuration of every other strategy, with tasks of several prices.

`python -m benchmarks.pages.reproductions hypergraph_steps` prints every case, `make bench` the counts. Cases are
judged by as many worker processes as there are processors, and whatever is not judged within `LIMIT_S` is left out
and said to be.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from multiprocessing import TimeoutError, get_context

from benchmarks.pages.published import BATCH, TITLES, profile, switch, table
from partitioners import make_plan
from partitioners._judge.judge import Judge
from partitioners._strongest import STRATEGIES as OTHERS
from partitioners._strongest import best_of, simulated
from simulator.cluster import Cluster
from simulator.network.catalogue import read_cluster
from simulator.plan import Plan, StepSettings
from simulator.run import step_seconds
from simulator.runtime import Runtime
from simulator.sweep.bounds import compute_bound_s

SWITCHES = {"10 Gb/s": 10, "100 Gb/s": 100}
PRESETS = ("p3-16xlarge", "azure-v100-10g")
"""Nodes of 8 and of 4 V100, the device of the profiles."""
COUNTS, PRESET_DEVICES = (2, 4, 8, 16), 16
PRICES_US = (0, 5, 10)
SHOWN_US = (0, 10)
WIN = 0.02
"""A smaller share of the step is no gain worth the name."""
LIMIT_S = 1800.0
GOALS = {0: 16, 10: 6}
"""Cases in which the search was to win, by the price of a task in us."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchCase:
    """A network on so many devices, on a switch or of a preset, where each compute task takes `price_us` more."""

    network: str
    wires: str
    devices: int
    price_us: int

    @property
    def cluster(self) -> Cluster:
        if self.wires in SWITCHES:
            return switch(self.devices, SWITCHES[self.wires])
        return read_cluster(self.wires, devices=self.devices)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedCase:
    """The best steps of a case in seconds, what they are, and processor seconds of the search."""

    case: SearchCase
    strongest_s: float
    strongest: str
    hypergraph_s: float
    form: str
    bound_s: float
    search_s: float

    @property
    def gain(self) -> float:
        """The share of the strongest other strategy's step that the search saves."""
        return 1 - self.hypergraph_s / self.strongest_s


def cases() -> list[SearchCase]:
    """32 on a switch and 8 on presets, at each price."""
    placed = [*product(SWITCHES, COUNTS), *product(PRESETS, (PRESET_DEVICES,))]
    return [
        SearchCase(network=network, wires=wires, devices=devices, price_us=price)
        for (wires, devices), network, price in product(placed, TITLES, PRICES_US)
    ]


def judged(case: SearchCase) -> JudgedCase:
    """The strongest of the other strategies, each judged alone, and what the search finds."""
    network, cluster = profile(case.network), case.cluster
    runtime = Runtime(name="priced", task_overhead_s=case.price_us * 1e-6)
    step = StepSettings(batch_size=BATCH[case.network], runtime=runtime)
    steps_s = {}
    for strategy in OTHERS:
        verdict = best_of(simulated(Judge(profile=network, cluster=cluster, runtime=runtime), step, strategy))
        if verdict is not None and not verdict.excess_bytes:
            steps_s[strategy] = verdict.step_s
    best = min(steps_s, key=lambda strategy: steps_s[strategy])
    began_s = time.process_time()
    plan = make_plan("hypergraph", network, cluster, step)
    search_s = time.process_time() - began_s
    return JudgedCase(
        case=case,
        strongest_s=steps_s[best],
        strongest=best,
        hypergraph_s=step_seconds(network, cluster, plan, runtime),
        form=form(plan),
        bound_s=compute_bound_s(network, cluster, BATCH[case.network]),
        search_s=search_s,
    )


def form(plan: Plan) -> str:
    """What a plan needs: "degrees", where every layer's shards are on devices in order from the first, as layer-wise
    plans have them; "groups", where each layer's are on devices of its own in order, one each; or a "map" of shards."""
    numbers = [sharding.devices for sharding in plan.placements.values()]
    if not all(devices == tuple(range(devices[0], devices[0] + len(devices))) for devices in numbers):
        return "map"
    return "groups" if any(devices[0] for devices in numbers) else "degrees"


def judged_by_workers(search_cases: Sequence[SearchCase]) -> list[JudgedCase]:
    """The cases judged within `LIMIT_S`, in their order."""
    until_s, done = time.monotonic() + LIMIT_S, dict[SearchCase, JudgedCase]()
    by_place: dict[tuple[str, str, int], list[SearchCase]] = {}
    for case in search_cases:
        by_place.setdefault((case.network, case.wires, case.devices), []).append(case)
    largest_first = sorted(by_place.values(), key=lambda same: -same[0].devices * len(profile(same[0].network).layers))
    with get_context("spawn").Pool(os.cpu_count()) as pool:  # leaving it ends its processes
        results = pool.imap_unordered(_all_judged, largest_first)
        for _ in largest_first:
            try:
                done |= results.next(timeout=max(until_s - time.monotonic(), 0.0))
            except TimeoutError:
                break
    return [done[case] for case in search_cases if case in done]


def _all_judged(search_cases: Sequence[SearchCase]) -> dict[SearchCase, JudgedCase]:
    """Cases of one network and cluster, which share tables, in one process."""
    return {case: judged(case) for case in search_cases}


def rows() -> Iterator[tuple[str, ...]]:
    """The rows of `benchmarks.speed` on how good the search is."""
    search_cases = cases()
    try:
        results = judged_by_workers(search_cases)
    except FileNotFoundError as error:
        yield "`hypergraph` against the strongest other strategy", "", str(error), "", ""
        return
    left_out = f", {len(search_cases) - len(results)} not judged in time" if len(results) < len(search_cases) else ""
    of_price = {price: [r for r in results if r.case.price_us == price] for price in PRICES_US}
    worse = {price: sum(r.gain < -1e-9 for r in judged_) for price, judged_ in of_price.items()}
    better = {price: sum(r.gain > WIN for r in judged_) for price, judged_ in of_price.items()}
    prices = " / ".join(map(str, PRICES_US))
    goals = " / ".join(str(GOALS.get(price, "-")) for price in PRICES_US)
    count = len(search_cases) // len(PRICES_US)
    yield (
        f"`hypergraph` worse than the strongest other strategy, of {count} cases at {prices} us a task{left_out}",
        "0 / 0 / 0", " / ".join(map(str, worse.values())), str(int(not any(worse.values()))), "",
    )  # fmt: skip
    yield (
        f"`hypergraph` better than it by more than {WIN:.0%}, of {count} cases at {prices} us a task{left_out}",
        goals, " / ".join(map(str, better.values())),
        f"{min(better[price] / goal for price, goal in GOALS.items()):.2g}", "",
    )  # fmt: skip


def section() -> str:
    return described(judged_by_workers(cases()))


def described(results: Sequence[JudgedCase]) -> str:
    """The section of the page on these cases."""
    return "\n\n".join(
        [
            "## Hypergraph search against the strongest of every other strategy",
            "Simulated steps in ms of the strongest configuration of any other strategy and of what `hypergraph` "
            "finds, where a compute task costs so many us beside its work: splitting is free only on paper. "
            "PipeDream's V100 profiles on switches and on 16 devices of two presets. Every strategy may choose "
            "micro-batches, a schedule, fewer stages and replicas. In brackets whose placements they are: another "
            "strategy's; *degrees*, each layer split its own way on devices in order; *groups*, layers on devices of "
            "their own, too; or a *map* of shards. *Room* is how far the best step is above perfectly shared compute.",
            " ".join(_summary(price, [r for r in results if r.case.price_us == price]) for price in PRICES_US),
            *(_steps(wires, [r for r in results if r.case.wires == wires]) for wires in (*SWITCHES, *PRESETS)),
        ]
    )


def _steps(wires: str, results: Sequence[JudgedCase]) -> str:
    lines = []
    by_place = {(r.case.network, r.case.devices, r.case.price_us): r for r in results}
    for network, devices in dict.fromkeys((r.case.network, r.case.devices) for r in results):
        at_prices = [by_place.get((network, devices, price)) for price in SHOWN_US]
        cells = [cell for result in at_prices for cell in (_cells(result) if result else ("", ""))]
        free = at_prices[0]
        room = f"{min(free.strongest_s, free.hypergraph_s) / free.bound_s - 1:.0%}" if free else ""
        lines.append([TITLES[network], devices, *cells, room])
    titles = [title for price in SHOWN_US for title in (f"others, {price} us", f"hypergraph, {price} us")]
    return table([wires, "devices", *titles, f"room at {SHOWN_US[0]} us"], lines)


def _cells(result: JudgedCase) -> tuple[str, str]:
    gain = f" {-result.gain:+.1%}" if abs(result.gain) > 5e-4 else ""
    ours = f"{result.hypergraph_s * 1e3:.1f} ({result.form if gain else result.strongest}){gain}"
    return f"{result.strongest_s * 1e3:.1f} ({result.strongest})", ours


def _summary(price: int, results: Sequence[JudgedCase]) -> str:
    worse, better = sum(r.gain < -1e-9 for r in results), [r for r in results if r.gain > WIN]
    forms = ", ".join(f"{count} by {what}" for what, count in sorted(Counter(r.form for r in better).items()))
    return (
        f"At {price} us a task `hypergraph` is worse than the strongest other strategy in {worse} of {len(results)} "
        f"cases and better by more than {WIN:.0%} in {len(better)}{f' ({forms})' if forms else ''}."
    )
