"""Measure a network layer by layer on this machine and write its profile (needs torch).

With --json it prints what was measured as JSON, and the summary on standard error.
"""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout

from simulator import files
from simulator.cli import _printing
from simulator.errors import needing


def main(argv: list[str]) -> int:
    """Hand the arguments to the capture program, which also runs alone as `python -m traces.capture`."""
    with needing("torch", "capture"):
        from traces.capture import command
    if "--json" not in argv:
        return command.main(argv)

    arguments = [word for word in argv if word != "--json"]
    output = command.parser().parse_args(arguments).output
    with redirect_stdout(sys.stderr):
        code = command.main(arguments)
    if code == 0 and os.environ.get("RANK", "0") == "0":
        profile = files.read_profile(str(output))
        fields = ("model", "device", "batch_size", "parameter_bytes", "layers_s", "step_s", "step_spread_s")
        measured = {field: getattr(profile, field) for field in (*fields, "layers_to_step")}
        _printing.print_json({"output": str(output), "layers": len(profile.layers), **measured})
    return code
