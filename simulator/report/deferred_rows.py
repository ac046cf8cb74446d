"""Rows of a report that are made when somebody reads them: a search that judges plans by their step reads few."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar, overload

Row = TypeVar("Row")


class DeferredRows(Sequence[Row]):
    """A tuple that `make` gives at first use; `count` long. Equal to any sequence of the same rows."""

    def __init__(self, count: int, make: Callable[[], tuple[Row, ...]]) -> None:
        self._count, self._make = count, make
        self._rows: tuple[Row, ...] | None = None

    @property
    def rows(self) -> tuple[Row, ...]:
        """All of them."""
        if self._rows is None:
            self._rows = self._make()
            del self._make  # and what it holds on to
        return self._rows

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Row: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Row, ...]: ...

    def __getitem__(self, index: int | slice) -> Row | tuple[Row, ...]:
        return self.rows[index]

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self.rows == tuple(other)

    def __hash__(self) -> int:
        return hash(self.rows)

    def __repr__(self) -> str:
        return repr(self.rows)

    def __reduce__(self) -> tuple[type[tuple[Row, ...]], tuple[tuple[Row, ...]]]:
        """Other processes get the rows."""
        return tuple, (self.rows,)
