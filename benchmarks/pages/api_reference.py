"""The public names, from their signatures and docstrings. Usage: python -m benchmarks.pages.api_reference"""

from __future__ import annotations

import inspect
from dataclasses import is_dataclass
from typing import Any

import shardscope
from benchmarks.pages.file_reference import dataclasses_below, kinds, sections

TABLES = ("Report", "StepSettings")
"""Records whose fields stand here; those of files stand with the files."""


def main() -> None:
    print("\n\n".join(section(name, getattr(shardscope, name)) for name in shardscope.__all__))


def section(name: str, what: Any) -> str:
    """A heading, how it is called, what it says of itself."""
    text = inspect.getdoc(what) or ""
    if name in TABLES:
        return f"### {name}\n\n{next(sections(what)).partition(': ')[2]}"
    if inspect.isfunction(what):
        return f"### {name}\n\n`{called(name, what)}`\n\n{text}"
    if what in in_files():
        return f"### {name}\n\n{text.partition(chr(10) * 2)[0]} Its fields stand in [files](files.md)."
    return f"### {name}\n\n{text}"


def in_files() -> set[type]:
    """The records that files hold, and those inside them."""
    return {inner for kind in kinds().values() for inner in (kind, *dataclasses_below(kind))}


def called(name: str, function: Any) -> str:
    """Its parameters, with a default where that is a plain value; "..." stands for any other."""
    signature = inspect.signature(function)
    plain = [
        parameter.replace(
            annotation=parameter.empty, default=... if is_dataclass(parameter.default) else parameter.default
        )
        for parameter in signature.parameters.values()
    ]
    return name + str(inspect.Signature(plain)).replace("Ellipsis", "...")


if __name__ == "__main__":
    main()
