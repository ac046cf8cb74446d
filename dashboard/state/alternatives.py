"""The strategies beside each other: the configuration shown and the same with every other strategy worth a look."""

from __future__ import annotations

from dataclasses import replace

from dashboard.state.configuration import Configuration
from dashboard.state.desk import Desk
from dashboard.state.measures import sequence_length
from dashboard.state.planning import degrees
from dashboard.state.simulating import Glance, Outcome, glance_of
from simulator.workload import Profile

STRATEGIES = ("data", "owt", "pipeline", "hypergraph", "layerwise")
LANGUAGE_STRATEGIES = ("data", "fsdp", "megatron", "pipeline")
"""Of networks over sequences, whose grids are known; the menu has the searches too."""
TENSOR_GROUP = 8
"""Devices of a tensor-parallel group where none is set: those of a usual node."""


def alternatives(now: Configuration, profile: Profile) -> tuple[Configuration, ...]:
    """`now` first, then what the menu makes of the other strategies, the quick ones before those that search."""
    others = LANGUAGE_STRATEGIES if sequence_length(profile) else STRATEGIES
    return now, *(_with(now, name, profile) for name in others if now.plan or name != now.strategy)


def glances_at_hand(desk: Desk, outcome: Outcome) -> dict[Configuration, Glance | None]:
    """The strategies in figures as far as they are known, the shown one first: of a search, its best plan so far."""
    now = outcome.configuration
    glances = {option: desk.glance(option) for option in alternatives(now, outcome.profile)}
    if glances[now] is None and outcome.report is not None:
        glances[now] = glance_of(outcome)
    return glances


def _with(now: Configuration, strategy: str, profile: Profile) -> Configuration:
    """Under another strategy what replicas share out is its own choice again."""
    other = replace(now, strategy=strategy, plan="", zero_stage=0)
    unset = strategy == "megatron" and now.tensor * now.pipeline * now.context == 1
    return in_a_node(other, profile) if unset else other


def in_a_node(other: Configuration, profile: Profile) -> Configuration:
    """A grid with the largest tensor group of a node that divides the heads."""
    tensor = max((degree for degree in degrees(other, profile)["tensor"] if degree <= TENSOR_GROUP), default=1)
    return replace(other, tensor=tensor)
