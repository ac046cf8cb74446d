"""The rows of a table of comma-separated values that may be packed."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from simulator.errors import InputError
from traces.imports._imported import read_text


def read_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file by its header; cells that a row lacks are empty.

    Raises InputError as `read_text` does, and where the file is no table.
    """
    try:
        rows = list(csv.DictReader(io.StringIO(read_text(path)), restkey="", restval=""))
    except csv.Error as error:
        raise InputError(f"{path}: not a table of comma-separated values ({error})") from None
    return [{name: cell for name, cell in row.items() if name} for row in rows]
