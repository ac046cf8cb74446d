"""Compute that is slower while a transfer from or to its device is in flight."""

from __future__ import annotations

from simulator.engine.run_context import RunContext


class Overlap:
    """How many transfers each device takes part in, and the rate at which it computes."""

    def __init__(self, run: RunContext) -> None:
        self._run = run
        self._route, self._touched = run.columns.route.tolist(), run.columns.touched.lists()
        self._in_flight = [0] * run.columns.devices

    def count(self, task: int, change: int) -> None:
        """Transfer `task` begins (change 1) or has ended (-1)."""
        run = self._run
        for device in self._touched[self._route[task]]:
            self._in_flight[device] += change
            rate = run.columns.overlap_rate if self._in_flight[device] else 1.0
            run.sharing.set_cap(run.classes[run.columns.routes + device], rate, run.now_s)
            run.wake_network()
