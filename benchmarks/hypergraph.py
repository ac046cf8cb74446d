"""Hypergraph-partitioned model parallelism (Bilkent thesis, 2019): volume, balance and step of every strategy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from benchmarks.published import BATCH, MIB, TITLES, profile, switch, table
from partitioners import make_plan, options
from partitioners._judge import Judge
from partitioners._strongest import STRATEGIES as OTHERS
from partitioners._strongest import strongest
from simulator.errors import ShardscopeError
from simulator.plan import Plan, StepSettings
from simulator.report.metrics import Report
from simulator.run import run, step_seconds
from simulator.runtime import Runtime
from simulator.sweep.bounds import compute_bound_s

DEVICES = (2, 4, 8, 16)
GIGABITS = (10, 100)
PRICES_US = (0, 5, 10)
LAYERWISE_EFFORT = 0.2
"""Of the simulations of `layerwise` for the step: what the search itself gives it."""
PROTOTYPE = {
    4: {"alexnet": -93.6, "vgg16": -90.1, "resnet50": -41.7, "inception_v3": -39.5},
    8: {"alexnet": -95.3, "vgg16": -90.8, "resnet50": -45.7, "inception_v3": -60.8},
}


def section() -> str:
    prices = [judged(*case) for case in product(TITLES, DEVICES, GIGABITS, PRICES_US)]
    return "\n\n".join(
        [
            "## Hypergraph partitioning cuts data parallelism's communication by 93 % (Bilkent thesis, 2019)",
            "PipeDream's V100 profiles. Volume: MiB per step of data parallelism (ring) and of the least-volume "
            "hypergraph plan whose load balance ratio is at most 1.03. *Prototype* is the change that a first trial "
            "with a single 8x8 grid reached.",
            _volumes(),
            "Simulated steps in ms on one switch, the strongest configuration of any other strategy before what "
            "`hypergraph` finds, at a price of 0, 5 and 10 us for every compute task: splitting is free only on paper. "
            "Every strategy may choose micro-batches and a schedule or none, stages may be fewer than devices and have "
            "replicas, and `layerwise` may look for the step, at a fifth of its usual effort. In brackets whose "
            "placements they are: another strategy's; *degrees*, where each layer is split its own way but shards "
            "stand on devices in order; or *map*, where they do not. *Room* is how far the best step is above the "
            "bound of perfectly shared compute.",
            *(_steps(gigabits, prices) for gigabits in (10, 100)),
            _summary(prices),
        ]
    )


def _volumes() -> str:
    rows = []
    for name, title in TITLES.items():
        for devices in DEVICES:
            data, cut = (_report(name, devices, 10, s, o) for s, o in (("data", ""), ("hypergraph", "volume")))
            if isinstance(data, str) or isinstance(cut, str):
                rows.append([title, devices, data if isinstance(data, str) else "", cut, "", "", ""])
                continue
            volumes = data.communication_bytes.total, cut.communication_bytes.total
            prototype = PROTOTYPE.get(devices, {}).get(name)
            rows.append(
                [
                    title,
                    devices,
                    f"{volumes[0] / MIB:.1f}",
                    f"{volumes[1] / MIB:.1f}",
                    f"{volumes[1] / volumes[0] - 1:+.1%}",
                    "" if prototype is None else f"{prototype:+.1f}%",
                    f"{cut.load_balance_ratio:.3f}",
                ]
            )
    return table(["network", "devices", "data", "hypergraph", "change", "prototype", "load balance ratio"], rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedCase:
    """The best steps of a network on a switch, in seconds, where each compute task takes `price_us` more."""

    network: str
    devices: int
    gigabits: int
    price_us: int
    strongest_s: float
    strongest: str
    hypergraph_s: float
    form: str
    bound_s: float

    @property
    def gain(self) -> float:
        """The share of the strongest other strategy's step that the search saves."""
        return 1 - self.hypergraph_s / self.strongest_s


def judged(name: str, devices: int, gigabits: int, price_us: int) -> JudgedCase:
    """The strongest of the other strategies and what the search finds."""
    cluster, runtime = switch(devices, gigabits), Runtime(name="priced", task_overhead_s=price_us * 1e-6)
    step = StepSettings(batch_size=BATCH[name], runtime=runtime)
    verdicts = {}
    for strategy in OTHERS:
        judge = Judge(profile=profile(name), cluster=cluster, runtime=runtime)
        verdict = strongest(judge, step, strategy, effort=LAYERWISE_EFFORT)
        if verdict is not None:
            verdicts[strategy] = verdict.step_s
    best = min(verdicts, key=lambda strategy: verdicts[strategy])
    plan = make_plan("hypergraph", profile(name), cluster, step)
    return JudgedCase(
        network=name,
        devices=devices,
        gigabits=gigabits,
        price_us=price_us,
        strongest_s=verdicts[best],
        strongest=best,
        hypergraph_s=step_seconds(profile(name), cluster, plan, runtime),
        form=plan.strategy.partition("(as ")[2].rstrip(")") or _form(plan),
        bound_s=compute_bound_s(profile(name), cluster, BATCH[name]),
    )


def _form(plan: Plan) -> str:
    """Whether shards of every layer stand on devices in order."""
    in_order = (
        p.devices == tuple(range(p.devices[0], p.devices[0] + len(p.devices))) for p in plan.placements.values()
    )
    return "degrees" if all(in_order) else "map"


def _steps(gigabits: int, cases: Sequence[JudgedCase]) -> str:
    rows = []
    for name, devices in product(TITLES, DEVICES):
        of_case = [c for c in cases if (c.network, c.devices, c.gigabits) == (name, devices, gigabits)]
        cells: list[object] = []
        for c in of_case:
            cells.append(f"{c.strongest_s * 1e3:.1f} ({c.strongest})")
            cells.append(f"{c.hypergraph_s * 1e3:.1f} ({c.form})" + (f" {-c.gain:+.1%}" if abs(c.gain) > 5e-4 else ""))
        room = min(of_case[0].strongest_s, of_case[0].hypergraph_s) / of_case[0].bound_s - 1
        rows.append([TITLES[name], devices, *cells, f"{room:.0%}"])
    titles = [title for price in PRICES_US for title in (f"others, {price} us", f"hypergraph, {price} us")]
    return table([f"{gigabits} Gb/s", "devices", *titles, "room at 0 us"], rows)


def _summary(cases: Sequence[JudgedCase]) -> str:
    lines = []
    for price in PRICES_US:
        of_price = [c for c in cases if c.price_us == price]
        worse, better = (sum(c.gain < -1e-9 for c in of_price), [c for c in of_price if c.gain > 0.02])
        maps = sum(c.form == "map" for c in better)
        lines.append(
            f"At {price} us a task `hypergraph` is worse than the strongest other strategy in {worse} of "
            f"{len(of_price)} cases and better by more than 2 % in {len(better)}, of which {maps} need a map of shards."
        )
    return " ".join(lines)


def _report(name: str, devices: int, gigabits: float, strategy: str, objective: str) -> Report | str:
    """The report, or why there is none."""
    cluster = switch(devices, gigabits)
    own = {"objective": objective} if "objective" in options(strategy) and strategy == "hypergraph" else {}
    try:
        plan = make_plan(strategy, profile(name), cluster, StepSettings(batch_size=BATCH[name]), **own)
    except ShardscopeError as error:
        return str(error)
    return run(profile(name), cluster, plan).report
