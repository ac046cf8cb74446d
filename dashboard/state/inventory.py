"""Profiles, clusters, runs ... that pages can name: those the server started with, and what users uploaded. No Dash."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Generic, TypeVar

from simulator.errors import UnknownNameError

T = TypeVar("T")
_UPLOADS = 20


class Inventory(Generic[T]):
    """Items of one kind by identity "name@hash": the initial ones and the latest uploads. Safe to use from threads."""

    def __init__(self, kind: str, initial: Mapping[str, T], content: Callable[[T], bytes] | None = None) -> None:
        """kind: what errors call an item. content: the bytes that identify an item, by default those of its repr."""
        self._kind = kind
        self._content = content or (lambda item: repr(item).encode())
        self._items = {self.identity(name, item): item for name, item in initial.items()}
        self._initial = len(self._items)
        self._lock = threading.Lock()

    def identity(self, name: str, item: T) -> str:
        """name@hash, the hash over all of the item's content."""
        return f"{name}@{hashlib.sha256(self._content(item)).hexdigest()[:10]}"

    def everything(self) -> dict[str, T]:
        """All items by identity, the initial ones first."""
        with self._lock:
            return dict(self._items)

    def resolve(self, name: str) -> str:
        """The identity that `name` stands for; a hash that is not there gives way to the name alone.

        Raises UnknownNameError.
        """
        known = self.everything()
        same = [key for key in known if key.partition("@")[0] == name.partition("@")[0]]
        if same:
            return name if name in known else same[0]
        raise UnknownNameError.of(self._kind, name, known)

    def get(self, name: str) -> T:
        """The item of an identity, or of a name without a hash. Raises UnknownNameError."""
        return self.everything()[self.resolve(name)]

    def options(self, before: str = "") -> list[dict[str, str]]:
        """All of them for a menu, each with `before` in front of its name."""
        return [{"value": key, "label": f"{before}{label(key)}"} for key in self.everything()]

    def shown(self, name: str | None) -> str | None:
        """The identity `name` where it is one of those that are here, else the first, None where there is none."""
        known = self.everything()
        return name if name in known else next(iter(known), None)

    def put(self, filename: str, item: T) -> str:
        """Keep an upload in place of the oldest one where there are too many; its identity."""
        key = self.identity(Path(filename).stem[:60] or "upload", item)
        with self._lock:
            self._items[key] = item
            for old in list(self._items)[self._initial : -_UPLOADS]:
                del self._items[old]
        return key


def label(identity: str) -> str:
    """An identity without its hash."""
    return identity.partition("@")[0]
