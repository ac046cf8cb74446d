"""Plans of strategies, for tests that write the step and the strategy's options in one line."""

from __future__ import annotations

from typing import Any

import partitioners
from simulator.cluster import Cluster
from simulator.plan import Plan, split_settings
from simulator.workload import Profile


def planned(strategy: str, profile: Profile, cluster: Cluster, **asked: Any) -> Plan:
    """The strategy's plan; asked: batch_size, other settings of the step, and options of the strategy."""
    step, own = split_settings(asked)
    return partitioners.make_plan(strategy, profile, cluster, step, **own)
