"""What a folder of traces, one per rank, says of a step: who is late, what is waiting, and what would shorten it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from simulator.terminal import say
from simulator.units import format_time

if TYPE_CHECKING:
    from traces.imports._aligned_ranks import AlignedRanks


def run(args: argparse.Namespace) -> None:
    from simulator.cli import _effects, _printing
    from traces.imports._aligned_ranks import align_ranks
    from traces.imports._ranks import read_ranks

    _effects.refuse(_effects.typed(args) - {"json"}, "has no effect on a folder of traces; leave it out")
    with _printing.progress() as progress:
        aligned = align_ranks(read_ranks(Path(args.recorded), progress))
    if args.json:
        _printing.print_json(_plain(aligned))
    else:
        _print(aligned)


def _plain(aligned: AlignedRanks) -> dict[str, object]:
    from traces.imports._rank_verdict import changes

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
        "changes_s": changes(aligned),
    }


def _print(aligned: AlignedRanks) -> None:
    from simulator.cli import _tables
    from traces.imports._rank_verdict import answer, changed

    say(*answer(aligned))
    print()
    table = _tables.new_table("rank", "computes", "gaps", "waits", "arrives last", last="others wait for it")
    for rank in aligned.ranks:
        table.add_row(
            str(rank), *(format_time(aligned.of_rank_s(rank, gaps=gaps)) for gaps in (False, True)),
            format_time(aligned.waited_s[rank]), f"{aligned.arrives_last[rank]}x",
            format_time(aligned.waited_for_s[rank]),
        )  # fmt: skip
    _tables.print_table(table)
    say("gaps: nothing runs on the GPU, which waits for nobody but its host")
    say(*changed(aligned))
    say(
        f"replayed as recorded {format_time(aligned.replayed_s())}; on one clock collectives end within "
        f"{format_time(aligned.clock_error_s)} of each other",
    )
