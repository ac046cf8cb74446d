"""Damaged trace files of every format are refused in one line or become profiles, and the program judges rightly."""

from __future__ import annotations

import mmap
import shutil
import time
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from benchmarks.robustness import mutated_traces
from benchmarks.robustness.mutated_traces import SoundFiles, attempt, judged, sound_files
from traces.imports._registry import formats

SOUND = {f"{sound.format} {sound.read[0]}": sound for sound in sound_files() if sound.weight >= 1}


@pytest.mark.parametrize("name", SOUND)
def test_damaged_files_are_refused_in_one_line_or_become_profiles(name: str, tmp_path: Path) -> None:
    sound, outcomes = SOUND[name], Counter[str]()
    assert attempt(sound, sound.files, sound.read, tmp_path / "sound") == "imported"
    for number in range(15 if sound.format == "kineto" else 8):
        outcomes[attempt(sound, *sound.damaged(Random(number)), tmp_path / "damaged")] += 1
        shutil.rmtree(tmp_path / "damaged")
    assert outcomes["refused"] > 1


def test_every_format_is_damaged(shared_data: Path) -> None:
    assert {sound.format for sound in sound_files()} == set(formats())


def test_a_hang_a_traceback_and_a_flood_are_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = next(iter(SOUND.values()))

    def spin(*_: object) -> str:
        while True:
            time.process_time()

    def flood(*_: object) -> str:  # pages of its own: malloc may give what this process has freed
        with mmap.mmap(-1, 200_000_000, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
            for at in range(0, len(memory), mmap.PAGESIZE):
                memory[at] = 1
            return str(len(memory))

    assert judged(sound, 0).outcome in ("imported", "refused")
    monkeypatch.setattr(mutated_traces, "attempt", spin)
    assert judged(sound, 0, longest_s=0.2).outcome.startswith("no answer after")
    monkeypatch.setattr(mutated_traces, "attempt", lambda *_: 1 / 0)
    assert "ZeroDivisionError" in judged(sound, 0).outcome
    monkeypatch.setattr(mutated_traces, "attempt", flood)
    monkeypatch.setattr(mutated_traces, "MOST_BYTES", 50_000_000)
    assert judged(sound, 0).outcome.endswith("GB of memory")


def test_the_same_number_damages_alike() -> None:
    sound: SoundFiles = next(iter(SOUND.values()))
    for number in range(20):
        first, second = (sound.damaged(Random(number)) for _ in range(2))
        assert first == second
