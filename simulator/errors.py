"""Every error that Shardscope raises on purpose.

ShardscopeError                 catch this to catch them all; the command line prints one line and exits 2
├── InputError(ValueError)      a field, file or option has a value that breaks a rule
├── UnknownNameError(LookupError)  a name that is not in a registry; says which names are
├── MissingExtraError(ImportError)  an optional dependency is absent; says what to install
├── StuckError(RuntimeError)    a task graph cannot proceed; names the blocked tasks
└── RunError(RuntimeError)      real processes or their network failed; names the rank, its last task, its error
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager

REQUIREMENTS = {
    "dask": "dask[distributed]>=2024.8",
    "matplotlib": "matplotlib>=3.8",
    "mtkahypar": "mtkahypar>=1.5",
    "pyarrow": "pyarrow>=15",
    "pymetis": "pymetis>=2025.1",
    "scikit-learn": "scikit-learn>=1.4",
    "torch": "torch>=2.6",
    "transformers": "transformers>=4.50",
}
"""Optional packages as the extras of pyproject.toml have them, for pip: Shardscope itself is on no index."""

MOST_NAMES = 40
"""So many known names a message lists."""


class ShardscopeError(Exception):
    """Base of all errors raised on purpose; the message gives field, value, rule and remedy."""


class InputError(ShardscopeError, ValueError):
    """A value breaks a rule."""


class UnknownNameError(ShardscopeError, LookupError):
    """A name is not in a registry."""

    @classmethod
    def of(cls, what: str, name: str, known: Iterable[str]) -> UnknownNameError:
        """The error for an unknown `name` of a `what`, with the nearest known names, and all where they are few."""
        names = sorted(known)
        near = nearest(name, names)
        hint = f", did you mean {near!r}?" if near else ";"
        shown = names if len(names) <= MOST_NAMES else _closest(name, names, 5) or names[:5]
        more = f" and {len(names) - len(shown)} more" if len(shown) < len(names) else ""
        return cls(f"unknown {what} {name!r}{hint} known: {', '.join(shown) or 'none'}{more}")


class MissingExtraError(ShardscopeError, ImportError):
    """An optional dependency is not installed."""

    @classmethod
    def of(cls, what: str, package: str, otherwise: str = "") -> MissingExtraError:
        """`what` needs a package of REQUIREMENTS; otherwise: what needs none. pip is that of this interpreter."""
        install = shlex.join([sys.executable, "-m", "pip", "install", REQUIREMENTS[package]])
        return cls(f"{what} needs {package}, which is not installed: {install}" + f"; {otherwise}" * bool(otherwise))


@contextmanager
def needing(package: str, what: str, otherwise: str = "", module: str = "") -> Iterator[None]:
    """Imports of an optional package, or of what needs it: MissingExtraError where it is absent, see its `of`.

    module: the name that it is imported by, where this is not its own.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in (package, module):
            raise
        raise MissingExtraError.of(what, package, otherwise) from None


class StuckError(ShardscopeError, RuntimeError):
    """A task graph cannot proceed."""


class RunError(ShardscopeError, RuntimeError):
    """Real processes, or the network between them, failed."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name closest in spelling to `name`, or None when nothing is close."""
    return next(iter(_closest(name, known, 1)), None)


def _closest(name: str, known: Iterable[str], most: int) -> list[str]:
    import difflib

    return difflib.get_close_matches(name, list(known), n=most)


def require(ok: bool, field: str, value: object, rule: str) -> None:
    """Raise InputError naming the field, its value and the rule unless `ok`."""
    if not ok:
        shown = f"a number of {_digits(value)} digits" if isinstance(value, int) and abs(value) >= 10**20 else value
        raise InputError(f"{field} is {shown}: {rule}")


def require_name(what: str, name: str, known: Collection[str]) -> None:
    """Raise UnknownNameError for the name of a `what` unless it is one of `known`."""
    if name not in known:
        raise UnknownNameError.of(what, name, known)


def _digits(number: int) -> str:
    """How many digits a number has; Python writes none out that has more than some thousands."""
    return str(len(str(abs(number)))) if abs(number) < 10**4000 else "thousands of"


MOST_SECONDS = 1e9
"""Thirty years; sums and products of what is shorter stay far from the end of floating-point numbers."""
MOST_BYTES = 2**56
"""72 petabytes, more than any device, message or parameter table has; sums of thousands still fit 63 bits."""
MOST_COUNT = 2**31 - 1
"""Of samples, channels, positions."""


def require_time(field: str, value: float) -> None:
    """Raise InputError unless `value` is a finite number of seconds of at least 0."""
    require_from_0(field, value, MOST_SECONDS)


def require_bytes(field: str, value: float) -> None:
    """Raise InputError unless `value` is a number of bytes that something can have."""
    require_from_0(field, value, MOST_BYTES)


def require_from_0(field: str, value: float, most: float) -> None:
    """Raise InputError unless `value` is finite, at least 0 and at most `most`."""
    require(0 <= value <= most, field, value, f"it is finite, at least 0 and at most {most:g}")


def require_count(field: str, value: int) -> None:
    """Raise InputError unless `value` is at least 1 and at most MOST_COUNT."""
    require(value >= 1, field, value, "it is at least 1")
    require(value <= MOST_COUNT, field, value, f"it is at most {MOST_COUNT:,}")
