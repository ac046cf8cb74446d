"""Rows of a sweep as files for other programs: CSV and Parquet."""

from __future__ import annotations

import csv
import importlib
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from simulator import files
from simulator.errors import needing


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """`rows` below a header line, the columns of all in the order in which they come; what is empty stays empty."""
    text = io.StringIO()
    columns = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(text, fieldnames=columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def write_csv(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write `csv_text` of `rows`. Raises OSError."""
    files.write_text_atomic(path, csv_text(rows))


def write_parquet(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write `rows` as a Parquet file. Raises OSError, or MissingExtraError when pyarrow is absent."""
    with needing("pyarrow", "Parquet", "CSV needs nothing"):
        pyarrow: Any = importlib.import_module("pyarrow")
        parquet: Any = importlib.import_module("pyarrow.parquet")
    content = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist([dict(row) for row in rows]), content)
    files.write_bytes_atomic(path, content.getvalue())
