"""Every error that Shardscope raises on purpose.

ShardscopeError                 catch this to catch them all; the command line prints one line and exits 2
├── InputError(ValueError)      a field, file or option has a value that breaks a rule
├── UnknownNameError(LookupError)  a name that is not in a registry; says which names are
├── MissingExtraError(ImportError)  an optional dependency is absent; says what to install
├── StuckError(RuntimeError)    a task graph cannot proceed; names the blocked tasks
└── RunError(RuntimeError)      real processes or their network failed; names the rank, its last task, its error
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable


class ShardscopeError(Exception):
    """Base of all errors raised on purpose; the message gives field, value, rule and remedy."""


class InputError(ShardscopeError, ValueError):
    """A value breaks a rule."""


class UnknownNameError(ShardscopeError, LookupError):
    """A name is not in a registry."""

    @classmethod
    def of(cls, what: str, name: str, known: Iterable[str]) -> UnknownNameError:
        """The error for an unknown `name` of a `what`, with the nearest known name and the list."""
        names = sorted(known)
        near = nearest(name, names)
        hint = f", did you mean {near!r}?" if near else ";"
        return cls(f"unknown {what} {name!r}{hint} known: {', '.join(names) or 'none'}")


class MissingExtraError(ShardscopeError, ImportError):
    """An optional dependency is not installed."""


class StuckError(ShardscopeError, RuntimeError):
    """A task graph cannot proceed."""


class RunError(ShardscopeError, RuntimeError):
    """Real processes, or the network between them, failed."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name closest in spelling to `name`, or None when nothing is close."""
    matches = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return matches[0] if matches else None


def require(ok: bool, field: str, value: object, rule: str) -> None:
    """Raise InputError naming the field, its value and the rule unless `ok`."""
    if not ok:
        raise InputError(f"{field} is {value}: {rule}")


def require_time(field: str, value: float) -> None:
    """Raise InputError unless `value` is a finite number of seconds (or FLOP) of at least 0."""
    require(math.isfinite(value) and value >= 0, field, value, "it is finite and at least 0")
