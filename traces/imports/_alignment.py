"""The longest common subsequence of two sequences that are nearly alike."""

from __future__ import annotations

from collections.abc import Sequence

MOST_EDITS = 1000
"""More insertions and deletions than this mean that the sequences have nothing to do with each other."""


def align(left: Sequence[str], right: Sequence[str]) -> list[tuple[int, int]] | None:
    """Positions (in `left`, in `right`) of a longest common subsequence; None beyond MOST_EDITS edits.

    The greedy algorithm of Myers, "An O(ND) difference algorithm and its variations" (Algorithmica 1, 1986): on the
    grid of both sequences, furthest[k] is how far the best path of d edits gets along the diagonal k = x - y.
    """
    furthest, history = {1: 0}, []
    for edits in range(min(len(left) + len(right), MOST_EDITS) + 1):
        history.append(dict(furthest))
        for k in range(-edits, edits + 1, 2):
            down = k == -edits or (k != edits and furthest[k - 1] < furthest[k + 1])
            x = furthest[k + 1] if down else furthest[k - 1] + 1
            while x < len(left) and 0 <= x - k < len(right) and left[x] == right[x - k]:
                x += 1
            furthest[k] = x
            if x >= len(left) and x - k >= len(right):
                return _path(history, len(left), len(right))
    return None


def _path(history: Sequence[dict[int, int]], x: int, y: int) -> list[tuple[int, int]]:
    """The matches along the best path, from its end back to its beginning."""
    pairs = []
    for edits in range(len(history) - 1, -1, -1):
        furthest, k = history[edits], x - y
        down = k == -edits or (k != edits and furthest[k - 1] < furthest[k + 1])
        start = furthest[k + 1] if down else furthest[k - 1]
        after_edit = (start if down else start + 1) if edits else 0
        while x > after_edit:
            x, y = x - 1, y - 1
            pairs.append((x, y))
        x, y = start, start - (k + 1 if down else k - 1)
    return pairs[::-1]
