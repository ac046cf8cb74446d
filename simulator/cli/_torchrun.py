"""What this process says where torchrun started it with others: an error of all once, and last in torchrun's report."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from simulator.errors import RunError


def speaks(error: Exception) -> bool:
    """Whether to print an error here: what was wrong before a run began is wrong in every process of this host."""
    return isinstance(error, RunError) or os.environ.get("LOCAL_RANK", "0") == "0"


def end_report_with(line: str) -> None:
    """Leave the line where torchrun looks for the cause as a process ends: the end of its report repeats it."""
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if path:
        Path(path).write_text(json.dumps({"message": line, "timestamp": int(time.time())}))
