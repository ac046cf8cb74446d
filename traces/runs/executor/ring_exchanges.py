"""Collectives of messages, as each member runs them: rings, and the direct exchange of an all-to-all.

    reduce-scatter    n - 1 rounds: a block goes once around the ring and gathers a term at every member
    all-gather        n - 1 rounds: every block goes once around the ring
    all-reduce        both, of n equal blocks: 2(n - 1)/n of the row leave every member
    all-to-all        n - 1 rounds: in round s member i sends to i + s and hears from i - s

Members are named by their index. Tensors are rows (elements,); blocks may differ in size.
(Patarasuk and Yuan, J. Parallel Distrib. Comput. 69(2), 2009.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Swap = Callable[[int, Tensor, int, Tensor], None]
"""(target, row to send, source, room for what comes): one message out while one comes in."""


def all_reduce(row: Tensor, index: int, members: int, swap: Swap) -> Tensor:
    """The sum of all members' rows, (elements,)."""
    blocks = list(row.tensor_split([row.numel() * i // members for i in range(1, members)]))
    own = reduce_scatter(blocks, index, swap)
    return torch.cat(all_gather(own, [block.numel() for block in blocks], index, swap))  # (elements,)


def reduce_scatter(blocks: Sequence[Tensor], index: int, swap: Swap) -> Tensor:
    """The sum of block `index` over all members; blocks: this member's terms of each."""
    count, last = len(blocks), blocks[index - 1]
    for step in range(count - 1):
        number = (index - step - 2) % count
        room = torch.empty_like(blocks[number])
        swap((index + 1) % count, last, (index - 1) % count, room)
        last = room + blocks[number]
    return last


def all_gather(row: Tensor, sizes: Sequence[int], index: int, swap: Swap) -> list[Tensor]:
    """Every member's row; sizes: elements of each."""
    count = len(sizes)
    blocks = [row.new_empty(size) for size in sizes]
    blocks[index] = row
    for step in range(count - 1):
        sent, came = (index - step) % count, (index - step - 1) % count
        swap((index + 1) % count, blocks[sent], (index - 1) % count, blocks[came])
    return blocks


def all_to_all(rows: Sequence[Tensor], sizes: Sequence[int], index: int, swap: Swap) -> list[Tensor]:
    """What every member sends here, by member; rows: what goes to each. sizes: elements of what comes from each."""
    count = len(rows)
    blocks = [rows[index].new_empty(size) for size in sizes]
    for step in range(1, count):
        target, source = (index + step) % count, (index - step) % count
        swap(target, rows[target], source, blocks[source])
    return blocks
