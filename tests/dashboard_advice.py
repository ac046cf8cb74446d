"""Advice once every change is simulated: pages show it of those that are simulated by then."""

from __future__ import annotations

from dashboard.state.advice import Advice, advise, moves
from dashboard.state.simulating import Outcome
from dashboard.state.store import Store


def advised(store: Store, outcome: Outcome) -> Advice:
    """What there is to try of an outcome, all of it simulated."""
    store.desk.want([move.configuration for move in moves(outcome)], tab="advice")
    return advise(store, outcome)
