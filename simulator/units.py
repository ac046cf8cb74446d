"""Reading and printing quantities. Inside the project only seconds, bytes, FLOP and ratios exist.

>>> parse_bandwidth("10Gbps"), parse_bandwidth("1GB/s"), parse_time("5us"), parse_bytes("25MiB")
(1250000000.0, 1000000000.0, 5e-06, 26214400)
>>> format_bytes(4423680000), format_time(0.0123)
('4.12 GiB', '12.3 ms')
>>> counted(1, "device"), counted(8, "device")
('1 device', '8 devices')
>>> parse_duration("1d2h30min"), parse_duration("90s"), format_duration(9000), format_duration(75)
(95400.0, 90.0, '2 h 30 min', '1 min 15 s')
"""

from __future__ import annotations

import math
import re

from simulator.errors import MOST_BYTES, InputError

_DECIMAL = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
_NUMBER = r"\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*"
_BANDWIDTH = re.compile(_NUMBER + r"([kKMGT]i?)?(bit/s|b/s|bps|B/s|Bps)\s*$")
_BYTES = re.compile(_NUMBER + r"([kKMGT]i?)?B?\s*$")
_TIME = re.compile(_NUMBER + r"(ns|us|µs|μs|ms|s)?\s*$")
_DURATION = re.compile(r"\s*(?:(\d+)\s*d)?\s*(?:(\d+)\s*h)?\s*(?:(\d+)\s*min)?\s*(?:(\d+(?:\.\d+)?)\s*s)?\s*$")
_PER_SECOND = {"ns": 1e9, "us": 1e6, "µs": 1e6, "μs": 1e6, "ms": 1e3, "s": 1.0, None: 1.0}


def parse_bandwidth(text: str) -> float:
    """Bytes per second from `10Gbps`, `10Gbit/s`, `10Gb/s` (all bits) or `1.25GB/s` (bytes).

    Raises InputError when `text` is none of these, has no unit or is not positive.
    """
    match = _BANDWIDTH.match(text)
    if not match or not 0 < float(match[1]) < math.inf:
        raise InputError(f"bandwidth {text!r}: write a positive number with a unit, e.g. 10Gbps or 1.25GB/s")
    value = float(match[1]) * {**_DECIMAL, **_BINARY}[match[2] or ""]
    return value if match[3] in ("B/s", "Bps") else value / 8


def parse_bytes(text: str) -> int:
    """Bytes from `25MiB`, `16GB` or a plain number. Raises InputError on anything else, and above MOST_BYTES."""
    match = _BYTES.match(text)
    if not match or float(match[1]) == math.inf:
        raise InputError(f"size {text!r}: write a number with a unit, e.g. 25MiB or 16GB")
    count = float(match[1]) * {**_DECIMAL, **_BINARY}[match[2] or ""]
    if count > MOST_BYTES:
        raise InputError(f"size {text!r}: it is at most {format_bytes(MOST_BYTES)}")
    return round(count)


def parse_time(text: str) -> float:
    """Seconds from `5us`, `1.5ms` or `2s`; 0 needs no unit. Raises InputError on anything else."""
    match = _TIME.match(text)
    if not match or float(match[1]) == math.inf or (not match[2] and float(match[1])):
        raise InputError(f"time {text!r}: write a number with a unit, e.g. 5us or 1.5ms")
    return float(match[1]) / _PER_SECOND[match[2]]  # a division is exact where 5 * 1e-6 is not


def number_or_text(text: str) -> int | float | str:
    """A plain number where `text` is one."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def parse_duration(text: str) -> float:
    """Seconds from `2h30min`, `1d`, `90s`: days, hours, minutes and seconds in this order. Raises InputError."""
    match = _DURATION.match(text)
    if not match or not text.strip():
        raise InputError(f"duration {text!r}: write days, hours, minutes and seconds, e.g. 2h30min, 1d or 90s")
    return sum(float(part or 0) * seconds for part, seconds in zip(match.groups(), (86400, 3600, 60, 1), strict=True))


def format_duration(seconds: float) -> str:
    """`seconds` for a person, as `parse_duration` reads it; to the second, below one minute to three digits."""
    if seconds < 60:
        return format_time(seconds)
    hours, rest = divmod(round(seconds), 3600)
    parts = ((hours, "h"), (rest // 60, "min"), (rest % 60, "s"))
    return " ".join(f"{count} {unit}" for count, unit in parts if count)


def format_bytes(count: float) -> str:
    """`count` bytes for a person, in binary units with three significant digits."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1023.5:  # what rounds to 1024 is 1.00 of the next unit
            return f"{_three(count)} {unit}"
        count /= 1024
    return f"{_three(count)} TiB"


def format_time(seconds: float) -> str:
    """`seconds` for a person, with three significant digits."""
    rounded = float(f"{seconds:.3g}")
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "us")):
        if abs(rounded) * factor >= 1 or (seconds == 0 and unit == "s"):
            return f"{_three(rounded * factor)} {unit}"
    return f"{_three(rounded * 1e9)} ns"


def format_longer(seconds: float) -> str:
    """How much longer something takes, to the nanosecond, e.g. "+1.5 ms"."""
    seconds = round(seconds, 9)
    return f"{'-' if seconds < 0 else '+'}{format_time(abs(seconds))}"


def counted(number: int, noun: str) -> str:
    """So many of something whose plural ends in s."""
    return f"{number} {noun}{'s' * (number != 1)}"


def format_bandwidth(bytes_per_s: float) -> str:
    """`bytes_per_s` for a person, in bits per second as network engineers write it."""
    bits = float(f"{bytes_per_s * 8:.3g}")
    for unit in ("bit/s", "kbit/s", "Mbit/s", "Gbit/s"):
        if bits < 1000:
            return f"{_three(bits)} {unit}"
        bits /= 1000
    return f"{_three(bits)} Tbit/s"


def _three(value: float) -> str:
    if value == 0 or not math.isfinite(value):
        return f"{value:.0f}"
    digits = 2 - math.floor(math.log10(abs(float(f"{value:.3g}"))))
    return f"{value:.{max(digits, 0)}f}"
