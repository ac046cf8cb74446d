"""Command lines run in the tests' own process, and a profile small enough to work out by hand."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from simulator import cli, files
from simulator.workload import Layer, Profile

MB = 10**6
REPORT_KEYS = {
    "step_s",
    "samples_per_s",
    "load_balance_ratio",
    "bubble_ratio",
    "communication_bytes",
    "peak_memory_bytes",
    "devices",
    "bottleneck",
}


def _layer(name: str, *inputs: str) -> Layer:
    return Layer(
        name=name,
        kind="linear",
        inputs=inputs,
        output_shape=(8, 1, 1),
        forward_s=4e-3,
        backward_s=8e-3,
        update_s=1e-3,
        parameter_bytes=MB,
        output_bytes=8 * MB,
        saved_bytes=8 * MB,
    )


def written_tiny(folder: Path) -> str:
    """The path of a chain of four equal layers, 26 ms each on one device at batch 8."""
    layers = (_layer("a"), _layer("b", "a"), _layer("c", "b"), _layer("d", "c"))
    path = folder / "tiny.json"
    files.write_profile(Profile(model="tiny", device="Acme CPU, 1 thread", batch_size=8, layers=layers), path)
    return str(path)


def shardscope(*arguments: object) -> int:
    """The exit code of a command line, run here."""
    try:
        return cli.main([str(argument) for argument in arguments])
    except SystemExit as stop:  # argparse, for help and for arguments that it refuses
        assert isinstance(stop.code, int)
        return stop.code


def exported(folder: Path, made: tuple[str, ...], *to: str) -> str:
    """The script of a plan that `partition` makes."""
    plan, script = folder / "plan.json", folder / "script"
    assert shardscope("partition", *made, "--output", plan) == 0
    assert shardscope("export", plan, "--to", *to, "--output", script) == 0
    return script.read_text()


def report(capsys: pytest.CaptureFixture[str], *arguments: object) -> Any:
    """What a command prints with --json."""
    assert shardscope(*arguments, "--json") == 0
    return json.loads(capsys.readouterr().out)


def options_in(command: str) -> Iterator[str]:
    """The options of a runtime that stand in a line that launches it: torchrun's own are before its script."""
    lines = (line for line in command.splitlines() if not line.startswith("#"))
    script = re.split(r"\S+\.py\b|-m \S+", " ".join(lines), maxsplit=1)[-1]
    yield from (word.partition("=")[0] for word in script.split() if word.startswith("--"))
    yield from (word for word in script.split() if re.fullmatch(r"[a-z-]+:[a-z-]+", word))
