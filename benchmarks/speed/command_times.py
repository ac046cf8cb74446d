"""What users wait for: processor seconds of whole commands, from the start of the interpreter, beside their goals."""

from __future__ import annotations

import compileall
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks import ROOT

PACKAGES = ("simulator", "partitioners", "traces", "dashboard", "shardscope")
COMMANDS = (
    ("--version", 0.15),
    ("simulate resnet50_v100 --cluster p3-16xlarge --devices 16 --strategy data", 0.5),
    ("simulate gpt2_large_h100 --cluster dgx-h100 --devices 1024 --strategy data", 0.8),
    ("simulate gpt2_large_h100 --cluster dgx-h100 --devices 16384 --strategy data", 2.0),
    ("partition vgg16_v100 --cluster p3-16xlarge --devices 16 --strategy layerwise --output plan.json", 1.0),
    ("explain plan.json", 1.0),
    ("report resnet50_v100 --cluster p3-16xlarge --devices 16 --strategies data --output report.html", 3.0),
    ("compare resnet50_v100 --cluster p3-16xlarge --devices 16 --strategies data,fsdp,owt,pipeline,layerwise", 2.0),
    ("compare resnet50_v100 --cluster p3-16xlarge --devices 16 --strategies data,pipeline,hypergraph", 5.0),
    ("compare llama3-8b --cluster dgx-h100 --devices 64", 6.0),
    ("compare llama3-70b --cluster dgx-h100 --devices 2048", 15.0),
    ("compare deepseek-v3 --cluster dgx-h100 --devices 1024", 30.0),
    ("compare deepseek-v3 --cluster gb200-nvl72 --devices 2304", 40.0),
)
"""Arguments and goal in processor seconds of each, in order: one reads what another wrote."""


def command_rows() -> Iterator[tuple[str, ...]]:
    """command, goal, measured, of the goal; one run of each, of modules that are compiled as an installation's are."""
    for package in PACKAGES:
        compileall.compile_dir(ROOT / package, quiet=1)
    with tempfile.TemporaryDirectory() as folder:
        processor_s("--version", Path(folder))
        for arguments, goal_s in COMMANDS:
            taken_s = processor_s(arguments, Path(folder))
            yield f"`{arguments}`", f"{goal_s:g} s", f"{taken_s:.2f} s", f"{goal_s / taken_s:.2g}"


def processor_s(arguments: str, folder: Path) -> float:
    """Processor seconds of a command in a folder, with all its processes. Raises CalledProcessError where it fails."""
    before = os.times()
    line = [sys.executable, "-m", "shardscope", *arguments.split()]
    # what is compiled is taken, also where to write it is forbidden
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    quiet = subprocess.DEVNULL
    subprocess.run(line, check=True, cwd=folder, env=environment, stdout=quiet, stderr=quiet)
    after = os.times()
    return after.children_user - before.children_user + after.children_system - before.children_system
