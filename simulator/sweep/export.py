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


def write_csv(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write `rows` with a header line; what is empty stays empty. Raises OSError."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    files.write_text_atomic(path, text.getvalue())


def write_parquet(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write `rows` as a Parquet file. Raises OSError, or MissingExtraError when pyarrow is absent."""
    with needing("pyarrow", "Parquet", "CSV needs nothing"):
        pyarrow: Any = importlib.import_module("pyarrow")
        parquet: Any = importlib.import_module("pyarrow.parquet")
    content = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist([dict(row) for row in rows]), content)
    files.write_bytes_atomic(path, content.getvalue())
