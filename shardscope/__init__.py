"""Shardscope as a library; `python -m shardscope` is the command line.

    import shardscope
    profile, cluster = shardscope.read_profile("vgg16_v100"), shardscope.read_cluster("p3-8xlarge", devices=8)
    plan = shardscope.make_plan("pipeline", profile, cluster, shardscope.StepSettings(batch_size=1024))
    print(shardscope.run(profile, cluster, plan).report.step_s)

The names of HOMES, from where they live; all load on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

HOMES = {
    "partitioners": ("make_plan", "strategies"),
    "simulator.cluster": ("Cluster",),
    "simulator.engine": ("simulate",),
    "simulator.errors": ("ShardscopeError",),
    "simulator.files": ("read_plan", "read_profile", "write_plan", "write_profile"),
    "simulator.language_models.modelled_profile": ("read_profile_or_card",),
    "simulator.language_models.training_stack": ("runtime_of",),
    "simulator.lowering.sharded_model": ("ShardedModel",),
    "simulator.lowering.step": ("lower",),
    "simulator.network.catalogue": ("read_cluster", "write_cluster"),
    "simulator.plan": ("Plan", "Sharding", "StepSettings", "Synchronisation"),
    "simulator.report.interval": ("step_interval",),
    "simulator.report.metrics": ("Report", "measure"),
    "simulator.run": ("Run", "run"),
    "simulator.runtime": ("Runtime",),
    "simulator.taskgraph": ("TaskGraph",),
    "simulator.timeline": ("Timeline",),
    "simulator.workload": ("Layer", "Profile"),
}
__all__ = sorted(name for names in HOMES.values() for name in names)


def __getattr__(name: str) -> Any:
    home = next((module for module, names in HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return __all__
