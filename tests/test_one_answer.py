"""One plan, one number: every surface says the same step, peak, fit and interval of a plan."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import laws
import pytest

import partitioners
from dashboard.state.configuration import Configuration
from dashboard.state.simulating import Request, compute, glance_of
from simulator import files
from simulator.cli import main
from simulator.language_models.modelled_profile import read_profile_or_card
from simulator.network.catalogue import read_cluster
from simulator.sweep.evaluate import DONE, evaluate
from simulator.sweep.points import expand
from simulator.sweep.specification import Specification
from simulator.sweep.sweeping import context_of

Figures = tuple[float, float, str]
"""Step, peak and fit."""
CARD = (
    "schema: 1\nname: small\nlayers: {layers}\nhidden: 1024\nheads: 8\nffn: 4096\nvocabulary: 4096\n"
    "sequence: {sequence}\n"
)
KINDS = {
    "dense": CARD.format(layers=4, sequence=1024),
    "long": CARD.format(layers=2, sequence=16384),
    "mixture": CARD.format(layers=2, sequence=1024) + "experts: 4\nexperts_per_token: 2\n",
}
MACHINES = [
    ("dense", 8, 16, 10), ("dense", 16, 32, 8), ("dense", 64, 64, 6), ("dense", 512, 512, 6), ("dense", 2048, 2048, 4),
    ("long", 8, 8, 8), ("mixture", 8, 16, 12), ("mixture", 16, 32, 10),
]  # fmt: skip
"""Card, devices, batch and how many kinds of grids; 64 in all, a third of those of four machines in the suite."""
MOST_WHOLE = 16
"""Devices up to which the surfaces that keep every task are asked too."""


@pytest.fixture(autouse=True, scope="module")
def _profiles_are_read_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "read_profile", cache(files.read_profile))
        yield


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """What a command prints as JSON."""
    assert main([*arguments, "--json"]) == 0, capsys.readouterr().err
    printed: dict[str, Any] = json.loads(capsys.readouterr().out)
    return printed


def figures(report: Mapping[str, Any]) -> Figures:
    return report["step_s"], report["peak_memory_bytes"], report["fit"]


def of_kinds(rows: Sequence[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """Of every kind of grid the one in the middle, as many as `count` in equal steps through the kinds."""
    kinds: dict[tuple[object, ...], list[dict[str, Any]]] = {}
    for row in rows:
        degrees = (row[name] > 1 for name in ("tensor", "pipeline", "chunks", "context", "expert", "shard_group"))
        degrees = (*degrees, bool(row["expert_tensor"]))
        kinds.setdefault((row["strategy"], row["zero_stage"], row["recomputation"], *degrees), []).append(row)
    assert len(kinds) >= count
    middles = [kinds[kind][len(kinds[kind]) // 2] for kind in sorted(kinds)]
    return [middles[number * len(middles) // count] for number in range(count)]


def swept(profile: str, cluster: str, devices: int, **parameters: Any) -> tuple[Figures, tuple[float, float]]:
    """What a sweep of one point has in its table; fits stands for fit."""
    asked = {"profile": profile, "cluster": cluster, "devices": devices, **parameters}
    points = expand(
        Specification(parameters=asked), {name: tuple(partitioners.options(name)) for name in partitioners.strategies()}
    )
    result = evaluate(context_of(points, partitioners.make_plan), points.points[0])
    assert result.status == DONE, result.error
    row: Mapping[str, Any] = result.metrics
    return (row["step_s"], row["peak_memory_bytes"], row["fits"]), (row["step_low_s"], row["step_high_s"])


class Surfaces:
    """What is asked about a plan in a file, or about the strategy that made it."""

    def __init__(self, capsys: pytest.CaptureFixture[str], folder: Path, profile: str, cluster: str, devices: int):
        self._capsys, self._profile, self._cluster, self._devices = capsys, profile, cluster, devices
        self.plan, self._log, self._page = (str(folder / name) for name in ("plan.json", "steps.log", "report.html"))
        Path(self._log).write_text("412 ms 405 ms 409 ms\n")
        self.machine = ("--cluster", cluster, "--devices", str(devices))

    def simulate(self, *options: str) -> dict[str, Any]:
        """By strategy; the plan is in its file then."""
        return said(self._capsys, "simulate", self._profile, *self.machine, *options, "--plan-out", self.plan)

    def require_same(self, simulated: Mapping[str, Any]) -> None:
        """All that take a plan file say what `simulate` said when it made the file."""
        expected, interval = figures(simulated), simulated["interval"]
        again = said(self._capsys, "simulate", self._profile, *self.machine, "--plan", self.plan)
        assert (figures(again), again["interval"]) == (expected, interval)
        of_plan = (self.plan, *self.machine, "--profile", self._profile)
        assert figures(said(self._capsys, "explain", *of_plan)["report"]) == expected
        checked = said(self._capsys, "check", self._log, *of_plan)
        assert (checked["predicted_s"], checked["peak_memory_bytes"], checked["fit"]) == expected
        assert checked["interval"] == interval
        self._require_dashboard(expected, (interval["low_s"], interval["high_s"]))

    def require_report(self, simulated: Mapping[str, Any], *options: str) -> None:
        """`report` makes the plan by its strategy."""
        command = ("report", self._profile, *self.machine, *options, "--output", self._page)
        assert figures(said(self._capsys, *command)["strategies"][0]) == figures(simulated)

    def _require_dashboard(self, expected: Figures, interval_s: tuple[float, float]) -> None:
        configuration = Configuration(
            profile=self._profile, cluster=self._cluster, strategy="data", devices=self._devices, plan=self.plan
        )
        profile = read_profile_or_card(self._profile, read_cluster(self._cluster))
        outcome = compute(Request(configuration=configuration, profile=profile, plan=files.read_plan(self.plan)))
        assert outcome.run is not None and outcome.interval is not None, outcome.reason
        report, glance = outcome.run.report, glance_of(outcome)
        assert (report.step_s, report.peak_memory_bytes, report.fit) == expected
        assert (glance.step_s, glance.peak_memory_bytes, glance.fits) == (*expected[:2], report.fits)
        assert (outcome.interval.low_s, outcome.interval.high_s) == interval_s


@pytest.mark.parametrize(("kind", "devices", "batch", "count"), laws.some(MACHINES, 0, 3, 5, 6))
def test_grids_of_a_card(
    kind: str, devices: int, batch: int, count: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the kinds of grids that `compare` ranks, by all that take a card or a plan."""
    card = tmp_path / "card.yaml"
    card.write_text(KINDS[kind])
    surfaces = Surfaces(capsys, tmp_path, str(card), "dgx-h100", devices)
    count = laws.examples(count // 3, count)
    ranked = said(capsys, "compare", str(card), *surfaces.machine, "--batch-size", str(batch), "--top", str(5 * count))
    for row in of_kinds(ranked["grids"], count):
        words = shlex.split(row["simulate"])
        simulated = surfaces.simulate(*words)
        expected = (row["step_s"], row["peak_bytes"], row["fit"])
        assert figures(simulated) == expected, words
        assert (simulated["interval"]["low_s"], simulated["interval"]["high_s"]) == (row["low_s"], row["high_s"])
        names = ("strategy", "zero_stage", "shard_group", "tensor", "pipeline", "chunks", "context", "expert")
        asked = {name: row[name] for name in names if row[name] not in (0, 1) or name == "zero_stage"}
        asked |= {"expert_tensor": 1} if row["expert_tensor"] and row["expert"] > 1 else {}
        asked |= {"recomputation": row["recomputation"]} if row["recomputation"] != "none" else {}
        point, interval_s = swept(
            str(card), "dgx-h100", devices, batch_size=batch, microbatches=row["accumulation"], **asked
        )
        assert point == (*expected[:2], row["fit"] in ("fits", "border")), asked
        assert interval_s == (row["low_s"], row["high_s"])
        if devices <= MOST_WHOLE:
            surfaces.require_same(simulated)
            surfaces.require_report(simulated, *("--strategies" if word == "--strategy" else word for word in words))


@pytest.mark.parametrize(
    "asked", [("--stack", "nemo-h100", "--precision", "fp8"), ("--runtime", "megatron"), ("--sequence", "1024")]
)
def test_grids_of_other_software_and_sequences(
    asked: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What `compare` says of them `simulate` says by the words that it gives."""
    surfaces = Surfaces(capsys, tmp_path, "llama3-1b", "dgx-h100", 8)
    ranked = said(capsys, "compare", "llama3-1b", *surfaces.machine, "--batch-size", "32", "--top", "1", *asked)
    for row in ranked["grids"][:3]:
        simulated = surfaces.simulate(*shlex.split(row["simulate"]))
        assert figures(simulated) == (row["step_s"], row["peak_bytes"], row["fit"]), row["simulate"]
        assert (simulated["interval"]["low_s"], simulated["interval"]["high_s"]) == (row["low_s"], row["high_s"])
        assert figures(said(capsys, "explain", surfaces.plan)["report"]) == figures(simulated)


PROFILES = {
    "vgg16_v100": ("p3-8xlarge", 4, "64"), "alexnet": ("gcp-v100", 8, "512"),
    "opt_350m_gh200": ("dgx-h100", 8, "64"), "resnet_small": ("cpu-1g", 4, "64"),
}  # fmt: skip
STRATEGIES = {
    "data": ((), ("--zero", "1"), ("--zero", "2", "--microbatches", "2"), ("--recompute", "2"), ("--bucket", "0B")),
    "fsdp": ((), ("--zero", "2"), ("--set", "group=2")),
    "pipeline": (("--microbatches", "4"), ("--microbatches", "4", "--schedule", "gpipe")),
    "megatron": (("--set", "tensor=2"), ("--set", "pipeline=2", "--microbatches", "4")),
    "owt": ((),),
    "model": ((),),
    "greedy": ((),),
}
"""Options of `simulate`, by strategy: 16 plans of each profile."""


@pytest.mark.parametrize("profile", laws.some(list(PROFILES), 0, 2))
def test_plans_of_a_profile(profile: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster, devices, batch = PROFILES[profile]
    surfaces = Surfaces(capsys, tmp_path, profile, cluster, devices)
    for strategy, settings in STRATEGIES.items():
        for options in settings:
            asked = ("--batch-size", batch, *options)
            simulated = surfaces.simulate("--strategy", strategy, *asked)
            surfaces.require_same(simulated)
            surfaces.require_report(simulated, "--strategies", strategy, *asked)
    compared = said(
        capsys, "compare", profile, *surfaces.machine, "--strategies", ",".join(STRATEGIES), "--batch-size", batch
    )
    for row in compared["strategies"]:
        assert figures(surfaces.simulate(*shlex.split(row["simulate"]))) == figures(row["report"]), row["simulate"]
