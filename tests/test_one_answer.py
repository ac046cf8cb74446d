"""One plan, one number: every command says the same step, peak and verdict of a plan."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from simulator.cli import main

CARD = "schema: 1\nname: small\nlayers: 4\nhidden: 1024\nheads: 8\nffn: 4096\nvocabulary: 4096\nsequence: 1024\n"
MIXTURE = CARD.replace("small", "mixture") + "experts: 4\nexperts_per_token: 2\n"


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """What a command prints as JSON."""
    assert main([*arguments, "--json"]) == 0, capsys.readouterr().err
    printed: dict[str, Any] = json.loads(capsys.readouterr().out)
    return printed


@pytest.mark.parametrize(("text", "devices"), [(CARD, "8"), (CARD, "16"), (MIXTURE, "16")], ids=["8", "16", "mixture"])
def test_grids_of_a_card(text: str, devices: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of every kind of grid that `compare` ranks the one in the middle, by all that take a card or a plan."""
    card, plan = tmp_path / "card.yaml", str(tmp_path / "plan.json")
    card.write_text(text)
    machine = (str(card), "--cluster", "dgx-h100", "--devices", devices)
    ranked = said(capsys, "compare", *machine, "--batch-size", "64", "--top", "50")["grids"]
    kinds: dict[tuple[object, ...], list[dict[str, Any]]] = {}
    for row in ranked:
        degrees = (row[name] > 1 for name in ("tensor", "pipeline", "context", "expert"))
        kinds.setdefault((row["strategy"], row["zero_stage"], *degrees), []).append(row)
    assert len(kinds) >= 6
    for rows in kinds.values():
        row = rows[len(rows) // 2]
        options = shlex.split(row["simulate"])
        simulated = said(capsys, "simulate", *machine, *options, "--plan-out", plan)
        figures = (simulated["step_s"], simulated["peak_memory_bytes"], simulated["fit"])
        assert figures == (row["step_s"], row["peak_bytes"], row["fit"]), options
        again = ("--cluster", "dgx-h100", "--devices", devices, "--profile", str(card))
        explained = said(capsys, "explain", plan, *again)["report"]
        assert (explained["step_s"], explained["peak_memory_bytes"], explained["fit"]) == figures, options


@pytest.mark.parametrize("strategy", ["data", "fsdp", "pipeline", "megatron", "owt"])
def test_plans_of_a_profile(strategy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = str(tmp_path / "plan.json")
    machine = ("--cluster", "p3-8xlarge", "--devices", "4")
    asked = ("--batch-size", "64", "--microbatches", "2") if strategy in ("pipeline", "megatron") else ()
    simulated = said(capsys, "simulate", "vgg16_v100", *machine, "--strategy", strategy, *asked, "--plan-out", plan)
    compared = said(capsys, "compare", "vgg16_v100", *machine, "--strategies", strategy, *asked)["strategies"][0]
    explained = said(capsys, "explain", plan, *machine, "--profile", "vgg16_v100")
    for name in ("step_s", "peak_memory_bytes", "fit", "bubble_ratio"):
        assert compared["report"][name] == explained["report"][name] == simulated[name], name
