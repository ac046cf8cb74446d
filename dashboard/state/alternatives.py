"""The strategies beside each other: the configuration shown and the same with every other strategy worth a look."""

from __future__ import annotations

from dataclasses import replace

from dashboard.state.configuration import Configuration

STRATEGIES = ("hypergraph", "layerwise", "owt", "data", "pipeline")


def alternatives(now: Configuration) -> tuple[Configuration, ...]:
    """`now` first, then what the menu makes of the other strategies, the quick ones before those that search."""
    others = sorted(STRATEGIES, key=lambda name: name in ("hypergraph", "layerwise"))
    return now, *(replace(now, strategy=name, plan="") for name in others if now.plan or name != now.strategy)
