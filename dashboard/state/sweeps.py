"""Sweeps that run behind the pages: a grid over one or two parameters, on the project's sweep runner. No Dash here.

A sweep belongs to the server, not to a page: a reload finds it again under its number. One that no page asks for is
paused, and goes on when a page resumes it; its processes can be ended in the middle of a point.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, fields, replace
from math import inf
from pathlib import Path
from typing import Any

import partitioners
from dashboard.state.configuration import DEGREES, NUMBERS, OWN, Configuration
from dashboard.state.planning import batch_of, changed_cluster, tier_links
from dashboard.state.store import Store
from partitioners._choice_search import plan_by_choice
from simulator import files
from simulator.cluster import Cluster
from simulator.errors import InputError, UnknownNameError, require
from simulator.network.catalogue import write_cluster
from simulator.owned_files import temporary_folder
from simulator.plan import OPTIMIZERS
from simulator.sweep.axes import read_values
from simulator.sweep.chart import column_title
from simulator.sweep.engines import Processes
from simulator.sweep.evaluate import PointResult, SweepContext
from simulator.sweep.points import Point, Points, expand
from simulator.sweep.runner import run_points
from simulator.sweep.specification import Specification
from simulator.sweep.sweeping import context_of


class SweepStopped(Exception):
    """Nobody wants the rest of a sweep, or not now."""


class EndableProcesses(Processes):
    """As the runner's own processes, until they are ended: then every point that is asked for raises SweepStopped."""

    def __init__(self, context: SweepContext, jobs: int) -> None:
        super().__init__(context, jobs)
        self._ended = False

    def submit(self, points: Sequence[Point]) -> Future[list[PointResult]]:
        if self._ended:
            raise SweepStopped
        return super().submit(points)

    def end(self) -> None:
        """Kill the processes; the points that they were running are lost."""
        self._ended = True
        for process in list((self._pool._processes or {}).values()):
            process.kill()


MOST_POINTS = 400
KEPT = 8
JOBS = 2
PARAMETERS: Mapping[str, str] = {
    "devices": "2..8 by x2",
    "microbatches": "1..32 by x2",
    "batch_size": "32..256 by x2",
    "inter_bandwidth_bytes_per_s": "1Gbps..64Gbps by x2",
    "inter_latency_s": "5us..80us by x2",
    "intra_bandwidth_bytes_per_s": "50GB/s..400GB/s by x2",
    "speed": "1..16 by x2",
    "bucket_bytes": "1MiB, 5MiB, 25MiB, 100MiB",
    "collective": "ring, tree, ps",
    "schedule": "dataflow, gpipe, 1f1b",
}
"""What can be swept, and an example of its values."""
_HELD = (
    "cluster", "devices", "batch_size", "collective", "overlap", "seed", "effort", *DEGREES, "recomputation",
)  # fmt: skip
_HELD_IF_SET = ("expert_tensor", "chunks", "shard_group", "zero_stage", "microbatches")
OF_STRATEGIES = frozenset({"effort", "microbatches", "schedule", *DEGREES, "expert_tensor", "chunks", "recomputation"})
"""Parameters that a sweep may only hold where one of its strategies takes them."""
RUNNING, DONE, CANCELLED, PAUSED, FAILED = "running", "done", "cancelled", "paused", "failed"
WIDTH = 2
GONE_S = 20.0
"""A sweep that no page has asked for so long is paused: its tab is closed."""
BUDGET_S = 900.0
"""So is one that has run for so long."""


@dataclass(slots=True, kw_only=True)
class Sweep:
    """One sweep and its rows so far; rows carry the point's values, "status", "error" and the report's metrics.

    seen_s: when a page last asked for it. left: the state that its end leads to, once that is wanted.
    """

    number: int
    swept: tuple[str, ...]
    points: Points
    rows: list[dict[str, Any]] = field(default_factory=list)
    state: str = RUNNING
    reason: str = ""
    seen_s: float = field(default_factory=time.monotonic)
    left: str = ""


class Sweeps:
    """The latest sweeps by number. Safe to use from several threads; WIDTH of them run at a time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[int, Sweep] = {}
        self._last = 0
        self._lock = threading.Lock()
        self._turn = threading.Semaphore(WIDTH)

    def start(self, base: Configuration, strategies: list[str], values: Mapping[str, str]) -> int:
        """Begin a sweep of `values` (parameter -> text such as "1..8 by x2"); its number. Raises InputError."""
        points = self._points(base, strategies, values)
        with self._lock:
            self._last += 1
            swept = ("strategy", *values) if len(strategies) > 1 else tuple(values)
            sweep = Sweep(number=self._last, swept=swept, points=points)
            self._known[sweep.number] = sweep
            for old in [n for n, known in self._known.items() if known.state != RUNNING][
                : max(0, len(self._known) - KEPT)
            ]:
                del self._known[old]
        self._begin(sweep)
        return sweep.number

    def get(self, number: int | None) -> Sweep | None:
        """The sweep of that number, None when it is gone; one that nobody asks for any more is paused."""
        with self._lock:
            sweep = self._known.get(number) if number is not None else None
            if sweep is not None:
                sweep.seen_s = time.monotonic()
            return sweep

    def cancel(self, number: int) -> None:
        """End a sweep at once; it can be resumed."""
        sweep = self.get(number)
        if sweep is not None:
            sweep.left = CANCELLED

    def resume(self, number: int) -> None:
        """Go on with the points that a cancelled or paused sweep has not run."""
        sweep = self.get(number)
        if sweep is not None and sweep.state in (CANCELLED, PAUSED):
            sweep.state, sweep.left, sweep.reason = RUNNING, "", ""
            self._begin(sweep)

    def _begin(self, sweep: Sweep) -> None:
        threading.Thread(target=self._run, args=(sweep,), daemon=True).start()

    def _points(self, base: Configuration, strategies: list[str], values: Mapping[str, str]) -> Points:
        require(len(strategies) > 0, "strategies", "[]", "a sweep names at least one")
        for name in values:
            if name not in PARAMETERS:
                raise UnknownNameError.of("parameter", name, PARAMETERS)
        _require_small(strategies, values)
        profile, card = self._store.profile(base), self._store.cards.get(base.profile)
        with temporary_folder() as folder:
            path = Path(folder) / "profile.json"
            if card is None:
                files.write_profile(profile, path)
            taken = {name for strategy in strategies for name in partitioners.options(strategy)}
            if len(strategies) > 1:
                taken -= {"microbatches"}  # beside each other, each strategy takes the number that suits it
            held = fixed(base, batch_of(base, profile), self._store.usual_cluster(base))
            still = {name: value for name, value in held.items() if name in taken or name not in OF_STRATEGIES}
            parameters = {**still, "profile": card or str(path), "strategy": strategies}
            if "@" in base.cluster:
                parameters["cluster"] = str(Path(folder) / "cluster.yaml")
                cluster_file = self._store.clusters.get(base.cluster)
                write_cluster(cluster_file.cluster, parameters["cluster"], cluster_file.runtime)
            parameters |= {name: _written(text) for name, text in values.items()}
            options = {name: tuple(partitioners.options(name)) for name in partitioners.strategies()}
            points = expand(Specification(parameters=parameters), options)
        count = len(points.points)
        require(count <= MOST_POINTS, "points", count, f"at most {MOST_POINTS} here; `shardscope sweep` takes more")
        return points

    def _run(self, sweep: Sweep) -> None:
        engine: EndableProcesses | None = None
        over = threading.Event()
        try:
            with self._turn:
                if sweep.left:
                    raise SweepStopped
                done = {row["number"] for row in sweep.rows}
                waiting = [point for point in sweep.points.points if point.number not in done]
                engine = EndableProcesses(context_of(sweep.points, plan_by_choice), JOBS)
                threading.Thread(target=_watch, args=(sweep, engine, over), daemon=True).start()
                run_points([[point] for point in waiting], engine, lambda results: _record(sweep, results))
                sweep.state = DONE
        except SweepStopped:
            sweep.state = sweep.left
        except (InputError, OSError) as error:
            sweep.state, sweep.reason = FAILED, str(error)
        finally:
            over.set()
            if engine is not None:
                engine.close()


def _record(sweep: Sweep, results: list[PointResult]) -> None:
    if sweep.left:
        raise SweepStopped
    sweep.rows.extend(_row(sweep.points, result) for result in results)


def _watch(sweep: Sweep, engine: EndableProcesses, over: threading.Event) -> None:
    """End the processes of a sweep that was cancelled, that no page asks for, or that takes too long."""
    began_s = time.monotonic()
    while not over.wait(0.1):
        now_s = time.monotonic()
        if now_s - sweep.seen_s > GONE_S or now_s - began_s > BUDGET_S:
            sweep.left = sweep.left or PAUSED
        if sweep.left:
            engine.end()
            return


def _written(text: str) -> list[str]:
    """The values and ranges of a list as a user writes it."""
    return [part.strip() for part in text.split(",") if part.strip()]


def _require_small(strategies: list[str], values: Mapping[str, str]) -> None:
    """Raise InputError where a sweep has too many points, or a value beyond what the page takes, before any is made."""
    count = len(strategies)
    for name, text in values.items():
        parts = _written(text)
        rule = f"write values such as {PARAMETERS[name]}"
        require(len(parts) > 0, f"the list of {column_title(name)}", "empty", rule)
        swept = read_values(name, parts)
        count *= len(swept)
        most = NUMBERS[name].high if name in NUMBERS else inf  # as on Explore
        for value in swept:
            if isinstance(value, (int, float)):
                require(value <= most, name, f"{value:,.0f}", f"at most {most:,} here")
    require(count <= MOST_POINTS, "points", count, f"at most {MOST_POINTS} here; `shardscope sweep` takes more")


def fixed(base: Configuration, batch_size: int, usual: Cluster) -> dict[str, Any]:
    """The parameters of a sweep that hold still at what the controls say."""
    parameters: dict[str, Any] = {name: getattr(base, name) for name in _HELD}
    parameters |= {"batch_size": batch_size} if base.batch_size is None else {}
    parameters |= {name: getattr(base, name) for name in _HELD_IF_SET if getattr(base, name)}
    if base.optimizer != OWN:
        parameters["optimizer_state"] = OPTIMIZERS[base.optimizer]
    if base.schedule != OWN:
        parameters["schedule"] = base.schedule
    if base.speed != 1:
        parameters["speed"] = base.speed
    cluster = changed_cluster(usual, base)
    for tier, link in tier_links(cluster).items():
        bandwidth, latency = base.link_factors(tier)
        if bandwidth != 1:
            parameters[f"{tier}_bandwidth_bytes_per_s"] = link.nominal_bytes_per_s
        if latency != 1:
            parameters[f"{tier}_latency_s"] = link.latency_s
    return parameters


def configuration_of(row: Mapping[str, Any], base: Configuration, store: Store) -> Configuration:
    """The configuration that a row of a sweep was simulated with, to explore it."""
    names = {f.name for f in fields(Configuration)} - {"profile", "cluster"}
    changes = {name: row[name] for name in names if row.get(name) is not None}
    changes["devices"] = int(row["devices"])
    changes["microbatches"] = row.get("microbatches")
    plain = store.usual_cluster(replace(base, devices=changes["devices"]))
    for tier, link in tier_links(plain).items():
        of_preset = {"bandwidth_bytes_per_s": link.nominal_bytes_per_s, "latency_s": link.latency_s}
        for quantity, value_of_preset in of_preset.items():
            value = row.get(f"{tier}_{quantity}")
            if value is not None:
                changes[f"{tier}_{quantity.partition('_')[0]}"] = value / value_of_preset
    return replace(base, **changes)


def _row(points: Points, result: PointResult) -> dict[str, Any]:
    values = dict(points.points[result.number].values)
    values.pop("profile")
    return {"number": result.number, **values, "status": result.status, "error": result.error, **result.metrics}
