"""How the links of a lab are shaped: by `tc`, and by TCP's settings in each namespace.

In the lab's own way an HTB class at the link's rate lets whole TCP segments of up to 64 KiB pass and then waits, where
TBF cuts them into packets and costs several times the CPU. TCP is set alike in every namespace, whatever the machine's
own settings: Reno, which every namespace may choose; windows and queues that never lose a packet; segments and
unsent bytes bounded by time at the link's rate, so that connections share a link evenly. A burst of at most
QUANTUM_S and one segment passes each idle link unshaped, which flatters messages shorter than about 1 ms.

That is the lab for comparing; `Shaping` describes networks as users set them up with `tc` (either discipline, any
burst, TCP as the machine has it), to see what a prediction is worth there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from simulator.cluster import Link
from simulator.errors import require

MTU_BYTES = 1500
QUANTUM_S = 250e-6
"""Bytes that may pass at once, as time at the link's rate: HTB's burst, and the size of a TCP segment."""
UNSENT_S = 1e-3
"""What one connection may have waiting at its own interface, as time at the link's rate."""
WINDOW_S = 10e-3
"""TCP window, as time at the link's rate: rides out a receiver that waits for a core."""
QUEUE_S = 0.4
"""The longest that a user's tbf lets a packet wait."""
FRAME_OVER_PAYLOAD = 1514 / 1448
"""A full Ethernet frame over the payload in it; the rest are Ethernet, IP and TCP headers with timestamps."""

_SMALLEST_SEGMENT_BYTES = 6000
_SMALLEST_WINDOW_BYTES = 256 * 1024
MOST_BYTES_PER_S = (2**31 - 1) / (4 * WINDOW_S)
"""Send buffers of four windows are 32-bit numbers to the kernel."""
_CONNECTIONS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Shaping:
    """How the rates of a lab are enforced: `tc`'s token bucket (tbf) or its hierarchical one (htb), by a user's hand.

    burst_s: tokens that pass at once, as time at the link's rate. A packet that waits for longer than QUEUE_S is
    dropped by tbf, htb keeps all. TCP and segment sizes stay as the machine has them.
    """

    discipline: Literal["htb", "tbf"]
    burst_s: float

    def __post_init__(self) -> None:
        require(0 < self.burst_s <= 1, "burst_s", self.burst_s, "more than 0 and at most 1")


def line_rate(link: Link) -> float:
    """Bytes per second at which a link's interface is shaped; a measured link says what messages get, less headers."""
    if link.achieved is not None and link.line_rate_bytes_per_s is not None:
        return link.line_rate_bytes_per_s
    return link.bandwidth_bytes_per_s * (FRAME_OVER_PAYLOAD if link.curve else 1)


def segment_bytes(slowest_bytes_per_s: float) -> int:
    """TCP segments that fit the slowest link of the lab."""
    return round(min(65536, max(_SMALLEST_SEGMENT_BYTES, QUANTUM_S * slowest_bytes_per_s)))


def queue_commands(interface: str, bytes_per_s: float, devices: int, shaping: Shaping | None) -> list[str]:
    """Commands for `tc` that shape an interface: as a user does, or an HTB class over a queue that holds the windows of
    every connection with as many devices."""
    dev, rate = f"dev {interface}", f"rate {round(8 * bytes_per_s)}bit"
    burst = round(max(2 * MTU_BYTES, (shaping.burst_s if shaping else QUANTUM_S) * bytes_per_s))
    if shaping and shaping.discipline == "tbf":
        return [f"qdisc add {dev} root tbf {rate} burst {burst}b latency {QUEUE_S:g}s"]
    lines = [
        f"qdisc add {dev} root handle 1: htb default 1",
        f"class add {dev} parent 1: classid 1:1 htb {rate} burst {burst}b cburst {burst}b quantum 60000",
    ]
    limit = min(_CONNECTIONS * devices * _window_bytes(bytes_per_s), 2**31 - 1)
    return lines if shaping else [*lines, f"qdisc add {dev} parent 1:1 bfifo limit {limit}"]


def _window_bytes(bytes_per_s: float) -> int:
    return round(max(_SMALLEST_WINDOW_BYTES, WINDOW_S * bytes_per_s))


def tcp_settings(bytes_per_s: float) -> dict[str, str]:
    """Kernel settings of a device on a link of this rate."""
    window = 2 * _window_bytes(bytes_per_s)  # half of a receive buffer is kept for the kernel's own records
    return {
        "ipv4/tcp_congestion_control": "reno",
        "ipv4/tcp_no_metrics_save": "1",
        "ipv4/tcp_slow_start_after_idle": "0",
        "ipv4/tcp_limit_output_bytes": str(round(max(2 * _SMALLEST_SEGMENT_BYTES, UNSENT_S * bytes_per_s))),
        "ipv4/tcp_rmem": f"4096 {window} {window}",
        "ipv4/tcp_wmem": f"4096 16384 {2 * window}",
    }
