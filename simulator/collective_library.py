"""A collective library: what software adds to links where devices sum, gather and exchange together."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.errors import require, require_time


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveLibrary:
    """How collectives run on a cluster; `simulator.network.collective_times` says what its numbers mean together.

    A step of a collective takes the latency of the links between neighbours.
    """

    launch_s: float
    """Of every collective, until its first step."""
    fill_s: float
    """More than that until the protocol of long messages has its buffers full."""
    step_ratio: float = 1.0
    """A step of that protocol between hosts, over one of the protocol of short messages."""
    short_share: float
    """The share of the bandwidth that the protocol of short messages gets, which sends a flag beside the data."""
    short_between: float = 1.0
    """The same of the bandwidth between hosts, at most `short_share`."""
    copy_bytes_per_s: float
    """What a device takes to copy its own part of what is gathered or scattered."""
    switch_share: float | None = None
    """Bytes of an all-reduce per second over the bandwidth inside a host, where its switch sums; None: it does not."""
    switch_fill_s: float = 0.0
    """As fill_s, where the switch sums."""
    two_hosts_once: bool = True
    """Whether trees between two hosts, whose ends differ, send a byte once each way; else twice, as between more."""

    def __post_init__(self) -> None:
        for what in ("launch_s", "fill_s", "switch_fill_s"):
            require_time(what, getattr(self, what))
        require(1 <= self.step_ratio <= 100, "step_ratio", self.step_ratio, "it is from 1 to 100")
        for what in ("short_share", "short_between"):
            require(0 < getattr(self, what) <= 1, what, getattr(self, what), "it is above 0 and at most 1")
        require(
            1e6 <= self.copy_bytes_per_s <= 1e18, "copy_bytes_per_s", self.copy_bytes_per_s, "it is from 1e6 to 1e18"
        )
        share = self.switch_share
        require(share is None or 0 < share <= 10, "switch_share", share, "it is above 0 and at most 10")
