"""What traces of all ranks of a step say of it in words: who is late, why, and what would shorten the step."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from simulator.units import format_time
from traces.imports._aligned_ranks import AlignedRanks

LATE = 1.1
"""Times the median of the ranks: a rank that computes longer is slow, not late."""
WAITED = 0.02
"""Of the step: ranks that wait less for each other are together."""
MUCH = 0.2
"""Of what ranks wait for each other: whoever is waited for less is not named."""


def answer(aligned: AlignedRanks) -> Iterator[str]:
    """What is to be read first: the step, and who is late."""
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
    own_s = aligned.of_rank_s(rank, gaps=False)
    others_s = median(aligned.of_rank_s(other, gaps=False) for other in aligned.ranks)
    if own_s > LATE * others_s:
        return f"its GPU computes {own_s / others_s:.2f} times as long as the median"
    return f"its GPU computes as long as others, and stands still for {format_time(aligned.of_rank_s(rank, gaps=True))}"


def changes(aligned: AlignedRanks) -> dict[str, float]:
    """The step by what would be otherwise, in words."""
    changes = {
        "without gaps (a host that is never late)": aligned.replayed_s(gaps=0.0),
        "twice the network": aligned.replayed_s(network=0.5),
        "GPUs twice as fast": aligned.replayed_s(compute=0.5),
    }
    if aligned.runs_alike:
        changes = {"without the skew (every rank as the median)": aligned.replayed_s(alike=True), **changes}
    return changes


def changed(aligned: AlignedRanks) -> Iterator[str]:
    """`changes` beside the recorded step."""
    for words, step_s in changes(aligned).items():
        yield f"{words}: {format_time(step_s)} instead of {format_time(aligned.timeline.step_s)}"
