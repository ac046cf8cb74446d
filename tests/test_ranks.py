"""Traces of several ranks on one clock: a planted late rank is found with its seconds, and replays add up."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from simulator import cli
from traces.imports._aligned_ranks import AlignedRanks, align_ranks
from traces.imports._ranks import read_ranks

LAYERS, COMPUTE_US, MOVES_US, LATE_US = 10, 400.0, 100.0, 250.0
RANKS, LATE = 4, 2
CLOCKS_US = (0.0, 5_000.0, -777.0, 123_456.0)
"""What each rank's clock shows at one instant."""


def event(name: str, kind: str, start_us: float, took_us: float, number: int, **arguments: Any) -> list[dict[str, Any]]:
    """A call of the host, and with a kind the kernel that it launched."""
    call = {
        "ph": "X",
        "cat": "cuda_runtime",
        "name": "cudaLaunchKernel",
        "pid": 1,
        "tid": 1,
        "ts": start_us - 5,
        "dur": 1,
    }
    kernel = {"ph": "X", "cat": kind, "name": name, "pid": 0, "tid": 7, "ts": start_us, "dur": took_us}
    return [{**call, "args": {"correlation": number}}, {**kernel, "args": {"correlation": number, **arguments}}]


def trace(rank: int, late_us: float, slower: float, groups: bool, overlap: bool) -> dict[str, Any]:
    """Layers of computing, each followed by an all-reduce of all ranks that the next one waits for.

    The late rank computes `slower` times as long, or its host launches `late_us` later, before each all-reduce; with
    `overlap` the next layer computes while the all-reduce runs, and the one behind it waits.
    """
    events: list[dict[str, Any]] = []
    now_us, moved_us = 1_000.0, 0.0
    longest_us = COMPUTE_US * slower + late_us
    for layer in range(LAYERS):
        late = rank == LATE
        begins_us = now_us + (late_us if late else 0.0)
        compute_us = COMPUTE_US * (slower if late else 1.0)
        events += event("gemm", "kernel", begins_us, compute_us, 2 * layer)
        arrives_us, all_us = max(begins_us + compute_us, moved_us), max(now_us + longest_us, moved_us)
        group = {"Process Group Ranks": str([*range(RANKS)])} if groups else {}
        moves = {
            "Collective name": "allreduce",
            "In msg nelems": 1 << 20,
            "dtype": "Half",
            "Group size": RANKS,
            **group,
        }
        name = "ncclDevKernel_AllReduce_Sum_f16_RING_LL(args)"
        events += event(name, "kernel", arrives_us, all_us + MOVES_US - arrives_us, 2 * layer + 1, **moves)
        moved_us = all_us + MOVES_US
        now_us = begins_us + compute_us if overlap else moved_us
    shown = [{**each, "ts": each["ts"] + CLOCKS_US[rank]} for each in events]
    host = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": shown[0]["ts"] - 5, "dur": 9e4}
    return {"traceEvents": [{**host, "args": {"External id": 1}}, *shown], "distributedInfo": {"rank": rank}}


def aligned(
    folder: Path, late_us: float = 0.0, slower: float = 1.0, *, groups: bool = True, overlap: bool = False
) -> AlignedRanks:
    for rank in range(RANKS):
        content = json.dumps(trace(rank, late_us, slower, groups, overlap)).encode()
        (folder / f"rank{rank}.json.gz").write_bytes(gzip.compress(content))
    return align_ranks(read_ranks(folder))


@pytest.mark.parametrize("groups", [True, False])
def test_a_late_host_is_found_with_its_seconds(tmp_path: Path, groups: bool) -> None:
    ranks = aligned(tmp_path, LATE_US, groups=groups)
    assert ranks.clock_error_s < 1e-6 and ranks.arrives_last == {LATE: LAYERS}
    assert ranks.waited_for_s[LATE] == pytest.approx(LAYERS * LATE_US / 1e6, rel=1e-3)
    assert ranks.waited_s[LATE] == pytest.approx(0.0, abs=1e-6)
    assert ranks.of_rank_s(LATE, gaps=True) == pytest.approx(LAYERS * LATE_US / 1e6, rel=1e-3)
    assert [each.seconds for each in ranks.meetings] == pytest.approx([MOVES_US / 1e6] * LAYERS)


def test_replays_are_those_worked_out_by_hand(tmp_path: Path) -> None:
    ranks, layer_us = aligned(tmp_path, LATE_US), COMPUTE_US + MOVES_US
    recorded_s = LAYERS * (LATE_US + layer_us) / 1e6
    assert ranks.timeline.step_s == pytest.approx(recorded_s, rel=1e-3)
    assert ranks.replayed_s() == pytest.approx(recorded_s, rel=1e-3)
    assert ranks.replayed_s(gaps=0) == pytest.approx(LAYERS * layer_us / 1e6, rel=1e-3)
    assert ranks.replayed_s(alike=True) == pytest.approx(LAYERS * layer_us / 1e6, rel=1e-3)
    assert ranks.replayed_s(network=0.5) == pytest.approx(recorded_s - LAYERS * MOVES_US / 2e6, rel=1e-3)
    assert ranks.replayed_s(compute=0.5) == pytest.approx(recorded_s - LAYERS * COMPUTE_US / 2e6, rel=1e-3)


def test_a_slow_gpu_is_told_from_a_late_host(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ranks = aligned(tmp_path, slower=1.5)
    assert ranks.of_rank_s(LATE, gaps=False) == pytest.approx(1.5 * LAYERS * COMPUTE_US / 1e6, rel=1e-3)
    assert cli.main(["check", str(tmp_path)]) == 0
    line = capsys.readouterr().out.splitlines()[1]
    assert line.startswith(f"late: rank {LATE}, last {LAYERS} times") and "1.50 times as long as the median" in line


def test_what_overlaps_is_not_made_to_wait(tmp_path: Path) -> None:
    """All-reduces beside the next layer's computing: the step is the computing, and one all-reduce behind it."""
    ranks = aligned(tmp_path, overlap=True)
    expected_s = (LAYERS * COMPUTE_US + MOVES_US) / 1e6
    assert [ranks.timeline.step_s, ranks.replayed_s()] == pytest.approx([expected_s] * 2, rel=1e-3)
    assert ranks.replayed_s(compute=0.5) == pytest.approx((LAYERS * COMPUTE_US / 2 + MOVES_US) / 1e6, rel=1e-3)


def test_ranks_together_are_not_called_late(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    aligned(tmp_path)
    assert cli.main(["check", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "no rank is late"


def test_traces_of_other_steps_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    aligned(tmp_path)
    other = json.dumps(trace(0, 0.0, 1.0, True, False)).replace("allreduce", "allgather")
    (tmp_path / "rank0.json.gz").write_bytes(gzip.compress(other.encode()))
    assert cli.main(["check", str(tmp_path)]) == 2
    assert "not of the same step" in capsys.readouterr().err


def test_a_folder_without_traces_is_refused_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.json").write_text("{}")
    assert cli.main(["check", str(tmp_path)]) == 2
    assert "ranks are compared from two on" in capsys.readouterr().err


def test_eight_ranks_of_megatron(shared_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As SOURCE.txt says: ranks 0 and 6 arrive last, their all-reduces are the true ones (84 of some 0.65 ms), and
    computing is 131 to 134 ms of each."""
    assert cli.main(["check", str(shared_data / "megatron-tp8"), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    late = sorted(answer["ranks"], key=lambda row: -row["waited_for_s"])
    assert {row["rank"] for row in late[:2]} == {0, 6} and late[1]["waited_for_s"] > 5 * late[2]["waited_for_s"]
    assert all(0.130 < row["compute_s"] < 0.135 for row in answer["ranks"])
    assert answer["replayed_s"] == pytest.approx(answer["recorded_s"], rel=1e-3)
    without = [step_s for words, step_s in answer["changes_s"].items() if words.startswith("without")]
    assert all(0.18 < step_s < 0.20 for step_s in without) and len(without) == 2
