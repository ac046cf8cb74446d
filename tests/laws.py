"""How many cases a law is tried on: few of them in the suite, all of them by `make laws`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

ALL = bool(os.environ.get("SHARDSCOPE_LAWS"))
Case = TypeVar("Case")


def examples(few: int, every: int) -> int:
    """How many random examples a property is tried on."""
    return every if ALL else few


def some(cases: Sequence[Case], *few: int) -> Sequence[Case]:
    """The cases, or only those of these positions."""
    return cases if ALL else [cases[number] for number in few]
