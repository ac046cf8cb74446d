"""Whether an installed Shardscope works: run by the Python that it is installed in, in an empty folder.

    cd EMPTY && PYTHON .../benchmarks/robustness/smoke.py

What ships beside the code (profiles, presets, cards, the compiled engine, examples) is read through the command line;
benchmarks and tests do not ship.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

PROGRAM = "import sys; from simulator.cli import main; sys.argv[0] = 'shardscope'; sys.exit(main())"
STEP = ("vgg_digits", "--cluster", "cpu-1g", "--devices", "2")
COMMANDS = (
    ("profiles",),
    ("clusters",),
    ("compare", *STEP, "--strategies", "data,pipeline,hypergraph"),
    ("partition", *STEP, "--strategy", "data", "--output", "plan.json"),
    ("explain", "plan.json"),
    ("simulate", "vgg_digits", "--plan", "plan.json", "--cluster", "cpu-1g", "--devices", "2", "--trace-out", "t.json"),
    ("scale", "vgg_digits", "--cluster", "cpu-1g", "--devices", "1..4"),
    ("report", *STEP, "--strategies", "data", "--output", "report.html"),
    ("compare", "llama3-8b", "--cluster", "dgx-h100", "--devices", "8", "--batch-size", "64"),
    ("export", "plan.json", "--to", "ddp", "--model", "mine:net", "--input-shape", "1x8x8", "--output", "train.py"),
    ("completion", "bash"),
)


def main() -> None:
    if list(Path().iterdir()):
        sys.exit("the folder is not empty: an installed Shardscope is tested where nothing else can be imported")
    for words in COMMANDS:
        completed = subprocess.run([sys.executable, "-c", PROGRAM, *words], capture_output=True, text=True, timeout=300)
        if completed.returncode or not (completed.stdout or "--output" in words):
            complaint = completed.stderr.strip()[-500:]
            sys.exit(f"shardscope {' '.join(words)} ended with {completed.returncode}: {complaint}")
        print(f"shardscope {' '.join(words)}: done")
    json.loads(Path("plan.json").read_text())
    find = "from importlib.util import find_spec; print(*filter(find_spec, ('benchmarks', 'tests')))"
    more = subprocess.run([sys.executable, "-c", find], capture_output=True, text=True, check=True).stdout.strip()
    if more:
        sys.exit(f"{more} can be imported: the wheel holds the product alone")
    names = "import shardscope; print(len([getattr(shardscope, name) for name in shardscope.__all__]))"
    for asked in (["-m", "shardscope", "--version"], ["-c", names]):
        print(subprocess.run([sys.executable, *asked], capture_output=True, text=True, check=True).stdout.strip())
    program = "import simulator; print(simulator.__file__)"
    where = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()
    print(f"{len(COMMANDS)} commands work from {where}")


if __name__ == "__main__":
    main()
