"""The strategies beside each other: the configuration shown and the same with every other strategy worth a look."""

from __future__ import annotations

from dataclasses import replace

from dashboard.state.configuration import Configuration
from dashboard.state.hardware import sequence_length
from simulator.workload import Profile

STRATEGIES = ("data", "owt", "pipeline", "hypergraph", "layerwise")
LANGUAGE_STRATEGIES = ("data", "fsdp", "megatron", "pipeline")
"""Of networks over sequences, whose grids are known; the menu has the searches too."""
TENSOR_GROUP = 8
"""Devices of a tensor-parallel group where none is set: those of a usual node."""


def alternatives(now: Configuration, profile: Profile) -> tuple[Configuration, ...]:
    """`now` first, then what the menu makes of the other strategies, the quick ones before those that search."""
    others = LANGUAGE_STRATEGIES if sequence_length(profile) else STRATEGIES
    return now, *(_with(now, name) for name in others if now.plan or name != now.strategy)


def _with(now: Configuration, strategy: str) -> Configuration:
    unset = strategy == "megatron" and now.tensor == now.pipeline == 1
    return replace(now, strategy=strategy, plan="", tensor=min(TENSOR_GROUP, now.devices) if unset else now.tensor)
