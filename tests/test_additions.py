"""A strategy, collective, schedule, command, importer or preset is one new file, and a page is two files.

All are added to one copy of the packages, and a fresh interpreter is asked what it sees there.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

PACKAGES = ("simulator", "partitioners", "traces", "dashboard")
NEW = {
    "partitioners/first_device.py": """
from simulator.plan import Partition, Sharding

def partition(profile, cluster, step):
    return Partition(placements={layer.name: Sharding(devices=(0,)) for layer in profile.layers})
""",
    "simulator/collectives/in_one_go.py": """
from simulator.collectives.ring import COLLECTIVE
""",
    "simulator/lowering/schedules/last_first.py": """
from simulator.lowering.schedules._schedule import Instruction, Schedule
from simulator.taskgraph import Kind

def last_first(devices, device, microbatches, chunks=1):
    for m in range(microbatches):
        yield Instruction(Kind.FORWARD, m)
    for m in reversed(range(microbatches)):
        yield Instruction(Kind.BACKWARD, m)

SCHEDULE = Schedule(name="last-first", order=last_first, receives="late")
""",
    "simulator/cli/greet.py": '''
"""Greet."""

def add_arguments(parser):
    parser.add_argument("name")

def run(args):
    print("hello", args.name)
    return 0
''',
    "traces/imports/notes.py": """
from traces.imports._imported import Imported

OPTIONS = ()

def recognises(head, path):
    return head.startswith("notes of")

def read(paths, options):
    return Imported(profile=None)
""",
}
"""Texts of one file each; the preset is a copy of another under a new name."""
PROGRAM = """
from contextlib import redirect_stdout
from io import StringIO

import partitioners
from simulator import cli, collectives, files
from simulator.lowering import schedules
from simulator.network import catalogue
from simulator.plan import StepSettings, Synchronisation
from simulator.run import run
from traces.imports import _registry

assert partitioners.__file__.startswith({root!r}), partitioners.__file__
assert "first-device" in partitioners.strategies() and "in-one-go" in collectives.names()
assert "last-first" in schedules.SCHEDULES and "office" in catalogue.presets() and "notes" in _registry.formats()
cluster, profile = catalogue.read_cluster("office", devices=2), files.read_profile("vgg_small")
for strategy, step in (
    ("first-device", StepSettings(batch_size=32)),
    ("data", StepSettings(batch_size=32, synchronisation=Synchronisation(collective="in-one-go"))),
    ("pipeline", StepSettings(batch_size=32, microbatches=4, schedule="last-first")),
):
    assert run(profile, cluster, partitioners.make_plan(strategy, profile, cluster, step)).report.step_s > 0
assert _registry.recognised(__import__("pathlib").Path("notes.txt")).__name__ == "traces.imports.notes"
step = ["vgg_small", "--cluster", "office", "--devices", "2"]
with redirect_stdout(StringIO()):
    assert cli.main(["simulate", *step, "--strategy", "first-device"]) == 0
    assert cli.main(["compare", *step, "--strategies", "first-device,data"]) == 0
assert cli.main(["greet", "you"]) == 0
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def python(program: str, root: Path) -> str:
    """What a fresh interpreter prints that finds the packages in `root`."""
    completed = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    return completed.stdout


def test_one_file_each_is_seen_and_used(copy: Path) -> None:
    for name, text in NEW.items():
        assert not (copy / name).exists()
        (copy / name).write_text(text.lstrip())
    presets = copy / "simulator" / "network" / "presets"
    (presets / "office.yaml").write_text((presets / "cpu-1g.yaml").read_text().replace("name: cpu-1g", "name: office"))
    (copy / "notes.txt").write_text("notes of\n")
    assert python(PROGRAM.format(root=str(copy)), copy) == "hello you\n"


def test_a_page_is_its_file_and_a_line_of_the_app(copy: Path) -> None:
    app = copy / "dashboard" / "app.py"
    text = app.read_text().replace("import compare,", "import about, compare,", 1)
    line = '        "/": '
    assert line in text
    app.write_text(text.replace(line, f'        "/about": ("About", about.add(app, store)),\n{line}', 1))
    (copy / "dashboard" / "pages" / "about.py").write_text(
        "def add(app, store):\n    return lambda now, baseline, own: 'What this is.'\n"
    )
    program = "from dashboard.app import create_app\nfrom dashboard.state.store import Store\n"
    program += "from simulator import files\nstore = Store({'small': files.read_profile('vgg_small')})\n"
    program += "print('/about' in str(create_app(store).layout))"
    assert python(program, copy).strip().endswith("True")
