"""Where messages wait for their receivers: one transfer at a time from each device to another."""

from __future__ import annotations

from collections import defaultdict, deque

from simulator.engine.run_context import RunContext


class RendezvousLines:
    """Transfers of one pair of devices, in the order in which they became ready."""

    def __init__(self, run: RunContext) -> None:
        self._route, self._line = run.columns.route.tolist(), run.columns.line.tolist()
        self._lines: dict[int, deque[int]] = defaultdict(deque)

    def enter(self, task: int) -> bool:
        """Whether `task` may begin at once."""
        number = self._line[self._route[task]]
        if number < 0:
            return True
        line = self._lines[number]
        line.append(task)
        return len(line) == 1

    def leave(self, task: int) -> int | None:
        """`task` has ended; who begins next."""
        number = self._line[self._route[task]]
        if number < 0:
            return None
        line = self._lines[number]
        line.popleft()
        return line[0] if line else None
