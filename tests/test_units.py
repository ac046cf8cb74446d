"""Units: what people write becomes bytes, seconds and bytes per second, and comes back readable."""

from __future__ import annotations

import doctest
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator import units
from simulator.errors import InputError


def test_the_examples_in_the_docstring_hold() -> None:
    examples = doctest.testmod(units)
    assert examples.attempted > 0
    assert examples.failed == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10Gbps", 1.25e9),
        ("10 Gbit/s", 1.25e9),
        ("10Gb/s", 1.25e9),
        ("10GB/s", 10e9),
        ("1.5e3MB/s", 1.5e9),
        ("800kbps", 1e5),
        ("1GiB/s", 2.0**30),
        ("8bps", 1.0),
        ("1000000B/s", 1e6),
    ],
)
def test_bandwidth_tells_bits_from_bytes_and_thousands_from_1024(text: str, expected: float) -> None:
    assert units.parse_bandwidth(text) == expected


@pytest.mark.parametrize("text", ["10G", "10", "fast", "-1Gbps", "0Gbps", "Gbps", "1e400Gbps", "nanGbps", "10Gbps!"])
def test_bandwidth_without_unit_or_sense_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"10Gbps or 1\.25GB/s"):
        units.parse_bandwidth(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("25MiB", 25 * 2**20), ("25MB", 25_000_000), ("7", 7), ("1.5KiB", 1536), ("0", 0), ("2e3B", 2000)],
)
def test_sizes_are_read_with_their_units(text: str, expected: int) -> None:
    assert units.parse_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "MiB", "-3MB", "25Mb", "1e999", "ten"])
def test_sizes_without_sense_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="25MiB or 16GB"):
        units.parse_bytes(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("5us", 5e-6), ("5µs", 5e-6), ("5μs", 5e-6), ("250ns", 2.5e-7), ("1.5ms", 1.5e-3), ("2s", 2.0), ("0", 0.0)],
)
def test_times_are_read_with_their_units(text: str, expected: float) -> None:
    assert units.parse_time(text) == expected


@pytest.mark.parametrize("text", ["", "5 minutes", "-1s", "1e999s"])
def test_times_without_sense_are_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"5us or 1\.5ms"):
        units.parse_time(text)


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, "0 B"),
        (5, "5.00 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (1024**2 - 1, "1.00 MiB"),
        (16 * 2**30, "16.0 GiB"),
        (3000 * 2**40, "3000 TiB"),
    ],
)
def test_bytes_are_printed_with_three_digits(count: int, expected: str) -> None:
    assert units.format_bytes(count) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, "0 s"),
        (1, "1.00 s"),
        (0.9999, "1.00 s"),
        (0.00999999, "10.0 ms"),
        (123.4, "123 s"),
        (4.5e-5, "45.0 us"),
        (2e-9, "2.00 ns"),
    ],
)
def test_times_are_printed_with_three_digits(seconds: float, expected: str) -> None:
    assert units.format_time(seconds) == expected


@pytest.mark.parametrize(
    ("bytes_per_s", "expected"),
    [(1.25e9, "10.0 Gbit/s"), (125, "1.00 kbit/s"), (450e9, "3.60 Tbit/s"), (0.1, "0.800 bit/s")],
)
def test_bandwidth_for_people(bytes_per_s: float, expected: str) -> None:
    assert units.format_bandwidth(bytes_per_s) == expected


@given(st.floats(1e-9, 1e6))
def test_a_printed_time_reads_back_to_three_digits(seconds: float) -> None:
    assert math.isclose(units.parse_time(units.format_time(seconds)), seconds, rel_tol=0.0051)


@given(st.floats(1, 1e15))
def test_a_printed_size_reads_back_to_three_digits(count: float) -> None:
    assert math.isclose(
        units.parse_bytes(units.format_bytes(count).replace(" ", "")), count, rel_tol=0.0051, abs_tol=0.51
    )


@given(st.integers(60, 10**7))
def test_a_duration_is_read_as_it_is_written(seconds: int) -> None:
    assert units.parse_duration(units.format_duration(seconds)) == seconds


def test_durations_and_times_are_written_alike() -> None:
    assert [units.format_duration(s) for s in (2.49, 27.3, 75, 9000)] == [
        "2.49 s",
        "27.3 s",
        "1 min 15 s",
        "2 h 30 min",
    ]
    assert units.parse_duration(" 27.3 s ") == units.parse_duration("27.3s") == 27.3
