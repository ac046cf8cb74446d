"""What users bring along, kept under names that links can hold. No Dash here."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Generic, TypeVar

from simulator.errors import UnknownNameError

T = TypeVar("T")
_UPLOADS = 20


class Shelf(Generic[T]):
    """Things of one kind by identity "name@hash": those given at first, and the latest uploads. Safe for threads."""

    def __init__(self, kind: str, given: Mapping[str, T], content: Callable[[T], bytes] | None = None) -> None:
        """kind: what one of them is called. content: the bytes that tell one from another, by default its repr."""
        self._kind = kind
        self._content = content or (lambda thing: repr(thing).encode())
        self._things = {self.identity(name, thing): thing for name, thing in given.items()}
        self._given = len(self._things)
        self._lock = threading.Lock()

    def identity(self, name: str, thing: T) -> str:
        """name@hash, the hash over all of the thing's content."""
        return f"{name}@{hashlib.sha256(self._content(thing)).hexdigest()[:10]}"

    def everything(self) -> dict[str, T]:
        """All by identity, those given first."""
        with self._lock:
            return dict(self._things)

    def resolve(self, name: str) -> str:
        """The identity that `name` stands for; a hash that is not at hand gives way to the name alone.

        Raises UnknownNameError.
        """
        known = self.everything()
        same = [key for key in known if key.partition("@")[0] == name.partition("@")[0]]
        if name in known or same:
            return name if name in known else same[0]
        raise UnknownNameError.of(self._kind, name, known)

    def get(self, name: str) -> T:
        """The thing of an identity, or of a name without a hash. Raises UnknownNameError."""
        return self.everything()[self.resolve(name)]

    def put(self, filename: str, thing: T) -> str:
        """Keep an upload in place of the oldest one where there are too many; its identity."""
        key = self.identity(Path(filename).stem[:60] or "upload", thing)
        with self._lock:
            self._things[key] = thing
            for old in list(self._things)[self._given : -_UPLOADS]:
                del self._things[old]
        return key


def label(identity: str) -> str:
    """An identity without its hash."""
    return identity.partition("@")[0]
