"""Pipelines whose stages meet for each message, as torch's do: gloo and NCCL move nothing until both ends ask.

torch's GPipe asks for a message just before the pass that needs it. Its 1F1B moreover sends what a pass made and
receives what the next one needs together, and goes on when both are done; over gloo the two, which use one connection
in opposite directions, go one after the other, as the word that a receiver is ready waits behind what its side sends.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simulator.builder import GraphBuilder
from simulator.taskgraph import Ints, Kind


def add_rendezvous(builder: GraphBuilder, orders: Sequence[Sequence[Ints]], waits_for_sends: bool) -> None:
    """Let messages wait for their receivers and, in 1F1B, passes for what the passes before them send.

    orders: of each device, the tasks of each of its passes. Two forward passes in a row overlap with the send between
    them, which the pass after them waits for.
    """
    kind, (later, earlier) = builder.column("kind"), builder.edges()
    for order in orders:
        number = np.full(len(builder), -1)
        for k, tasks in enumerate(order):
            number[tasks] = k
        needed = _by_pass(number[later], np.where(kind[earlier] >= Kind.ACTIVATION, earlier, -1), len(order))
        made = _by_pass(number[earlier], np.where(kind[later] >= Kind.ACTIVATION, later, -1), len(order))
        for k in range(1, len(order)):
            builder.depend(needed[k], order[k - 1][-1])
            if waits_for_sends:
                both = kind[order[k][0]] == kind[order[k - 1][0]] == Kind.FORWARD
                if k + both < len(order):
                    builder.depend(order[k + both][0], made[k - 1])
                for sent in made[k - 1][kind[made[k - 1]] == Kind.ACTIVATION]:
                    builder.depend(needed[k][kind[needed[k]] == Kind.GRADIENT], sent)


def _by_pass(number: Ints, messages: Ints, count: int) -> list[Ints]:
    """The messages of each pass; an entry counts where it has a pass and a message, neither of them -1."""
    mine = (number >= 0) & (messages >= 0)
    pairs = np.unique(np.stack([number[mine], messages[mine]]), axis=1)
    return np.split(pairs[1], np.searchsorted(pairs[0], np.arange(1, count)))
