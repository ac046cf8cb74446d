"""What a folder of traces, one per rank, says of a step: who is late, what is waiting, and what would shorten it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from simulator.errors import InputError
from simulator.units import format_time

if TYPE_CHECKING:
    from traces.imports._aligned_ranks import AlignedRanks

LATE = 1.1
"""Times the median of the ranks: a rank that computes longer is slow, not late."""
WAITED = 0.02
"""Of the step: ranks that wait less for each other are together."""
MUCH = 0.2
"""Of what ranks wait for each other: whoever is waited for less is not named."""


def run(args: argparse.Namespace) -> int:
    from simulator.cli import _effects, _printing
    from traces.imports._aligned_ranks import align_ranks
    from traces.imports._ranks import read_ranks

    unused = sorted(_effects.typed(args) - {"json"})
    if unused:
        raise InputError(f"{_effects.spelled(unused)}: has no effect on a folder of traces; leave it out")
    with _printing.progress() as progress:
        aligned = align_ranks(read_ranks(Path(args.recorded), progress))
    if args.json:
        _printing.print_json(_plain(aligned))
    else:
        _print(aligned)
    return 0


def _changes(aligned: AlignedRanks) -> dict[str, float]:
    """The step by what would be otherwise, in words."""
    changes = {
        "without gaps (a host that is never late)": aligned.replayed_s(gaps=0.0),
        "twice the network": aligned.replayed_s(network=0.5),
        "GPUs twice as fast": aligned.replayed_s(compute=0.5),
    }
    if aligned.runs_alike:
        changes = {"without the skew (every rank as the median)": aligned.replayed_s(alike=True), **changes}
    return changes


def _plain(aligned: AlignedRanks) -> dict[str, object]:
    ranks = [
        {
            "rank": rank,
            "compute_s": aligned.of_rank_s(rank, gaps=False),
            "gap_s": aligned.of_rank_s(rank, gaps=True),
            "waited_s": aligned.waited_s[rank],
            "waited_for_s": aligned.waited_for_s[rank],
            "arrives_last": aligned.arrives_last[rank],
        }
        for rank in aligned.ranks
    ]
    return {
        "recorded_s": aligned.timeline.step_s,
        "replayed_s": aligned.replayed_s(),
        "collectives": len(aligned.meetings),
        "collectives_s": sum(each.seconds for each in aligned.meetings),
        "clock_error_s": aligned.clock_error_s,
        "ranks": ranks,
        "changes_s": _changes(aligned),
    }


def _print(aligned: AlignedRanks) -> None:
    from simulator.cli import _tables

    console, recorded_s = _tables.new_console(), aligned.timeline.step_s
    for line in _answer(aligned):
        _tables.say(console, line)
    console.print("")
    table = _tables.new_table("rank", "computes", "gaps", "waits", "arrives last", last="others wait for it")
    for rank in aligned.ranks:
        table.add_row(
            str(rank), *(format_time(aligned.of_rank_s(rank, gaps=gaps)) for gaps in (False, True)),
            format_time(aligned.waited_s[rank]), f"{aligned.arrives_last[rank]}x",
            format_time(aligned.waited_for_s[rank]),
        )  # fmt: skip
    _tables.print_table(console, table)
    _tables.say(console, "gaps: nothing runs on the GPU, which waits for nobody but its host")
    for words, step_s in _changes(aligned).items():
        _tables.say(console, f"{words}: {format_time(step_s)} instead of {format_time(recorded_s)}")
    _tables.say(
        console,
        f"replayed as recorded {format_time(aligned.replayed_s())}; on one clock collectives end within "
        f"{format_time(aligned.clock_error_s)} of each other",
    )


def _answer(aligned: AlignedRanks) -> Iterator[str]:
    recorded_s, lost_s = aligned.timeline.step_s, sum(aligned.waited_for_s.values())
    true_s = sum(each.seconds for each in aligned.meetings)
    yield (
        f"{len(aligned.ranks)} ranks, step {format_time(recorded_s)}; {len(aligned.meetings)} collectives take "
        f"{format_time(true_s)} once all are there, and ranks wait {format_time(lost_s)} for each other"
    )
    if lost_s < WAITED * recorded_s:
        yield "no rank is late"
        return
    for rank, waited_s in sorted(aligned.waited_for_s.items(), key=lambda item: -item[1]):
        if waited_s > MUCH * lost_s:
            times = f"last {aligned.arrives_last[rank]} times"
            yield f"late: rank {rank}, {times}; the others wait {format_time(waited_s)}: {_why(aligned, rank)}"


def _why(aligned: AlignedRanks, rank: int) -> str:
    """What the late rank does longer than others: computing, else what it waits for on its host."""
    from statistics import median

    own_s = aligned.of_rank_s(rank, gaps=False)
    others_s = median(aligned.of_rank_s(other, gaps=False) for other in aligned.ranks)
    if own_s > LATE * others_s:
        return f"its GPU computes {own_s / others_s:.2f} times as long as the median"
    return f"its GPU computes as long as others, and stands still for {format_time(aligned.of_rank_s(rank, gaps=True))}"
