"""`shardscope compare --to-accuracy`: the same plans, ranked by when they reach an accuracy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from small_networks import chain, switched

from simulator import cli, files
from simulator.convergence.curves import Curves, Regime, Trial
from simulator.network.catalogue import write_cluster


@pytest.fixture
def argv(tmp_path: Path) -> list[str]:
    """A comparison on drawn curves, with which a stashing pipeline of two stages takes twice the samples."""
    files.write_profile(chain([1.0, 1.0]), tmp_path / "profile.json")
    write_cluster(switched([1.0] * 2), tmp_path / "cluster.yaml")
    regimes = [Regime(batch_size=8), Regime(batch_size=2), Regime(batch_size=2, method="stashing", staleness=1)]
    trials = [
        Trial(regime=regime, learning_rate=0.1, seed=seed, points=((0, 0.1), (samples + 80 * seed, 0.9)))
        for regime, samples in zip(regimes, (800, 400, 800), strict=True)
        for seed in (0, 1)
    ]
    files.write_json(Curves(model="small", dataset="drawn", target=0.9, trials=tuple(trials)), tmp_path / "curves.json")
    inputs = [str(tmp_path / "profile.json"), "--cluster", str(tmp_path / "cluster.yaml")]
    return [
        "compare",
        *inputs,
        "--batch-size",
        "8",
        "--strategies",
        "data,pipeline",
        "--curves",
        str(tmp_path / "curves.json"),
    ]


def rows(argv: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, object]]:
    assert cli.main([*argv, "--json"]) == 0
    return {row["strategy"]: row for row in json.loads(capsys.readouterr().out)["strategies"]}


def test_synchronous_strategies_take_the_same_samples_and_their_own_time(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    by_strategy = rows([*argv, "--to-accuracy", "0.9"], capsys)
    assert list(by_strategy) == ["data", "pipeline"]
    for row in by_strategy.values():
        report, reached = row["report"], row["to_accuracy"]
        assert reached["samples"]["interval"] == {"median": 840, "low": 800, "high": 880}  # type: ignore[index]
        assert reached["seconds"]["median"] == pytest.approx(105 * report["step_s"])  # type: ignore[index]
        assert reached["dollars"] is None  # type: ignore[index]


def test_stashed_weights_take_samples_of_their_own(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    more = ["--to-accuracy", "0.9", "--schedule", "pipedream", "--microbatches", "4", "--set", "judged=false"]
    reached = rows([*argv, *more], capsys)["pipeline"]["to_accuracy"]
    assert reached["regime"] == {"batch_size": 2, "method": "stashing", "staleness": 1}  # type: ignore[index]
    assert reached["samples"]["interval"]["median"] == 840  # type: ignore[index]


def test_the_table_and_what_it_cannot_say(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*argv, "--to-accuracy", "0.9"]) == 0
    shown = capsys.readouterr().out
    assert "to 0.9" in shown and "840" in shown and "105" in shown and "measured, 2 trials of small on drawn" in shown
    for wrong, why in ((["--to-accuracy", "0.99"], "reached 0.9"), ([], "add --to-accuracy")):
        assert cli.main([*argv, *wrong]) == 2
        assert why in capsys.readouterr().err
