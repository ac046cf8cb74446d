"""Lines for people, as wide as the terminal is."""

from __future__ import annotations

import shutil
import sys
from textwrap import TextWrapper
from typing import TextIO


def folded(text: str, stream: TextIO | None = None) -> str:
    """`text` with its lines folded between words where `stream` (default stdout) is a terminal.

    Elsewhere lines stay as they are: whoever reads the output on finds them whole, however long.
    """
    if not (stream or sys.stdout).isatty():
        return text
    columns = shutil.get_terminal_size().columns
    within = TextWrapper(columns, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return "\n".join(map(within.fill, text.split("\n")))


def say(*lines: str, stream: TextIO | None = None) -> None:
    """Print lines for people to read on `stream` (default stdout), see `folded`; what they copy is printed whole."""
    for line in lines:
        print(folded(line, stream), file=stream)
