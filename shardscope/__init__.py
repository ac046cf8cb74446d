"""Shardscope as a library; `python -m shardscope` is the command line.

    import shardscope
    profile, cluster = shardscope.read_profile("vgg16_v100"), shardscope.read_cluster("p3-8xlarge", devices=8)
    plan = shardscope.make_plan("pipeline", profile, cluster, shardscope.StepSettings(batch_size=1024))
    print(shardscope.run(profile, cluster, plan).report.step_s)

The public names of `simulator`, and those of MORE from where they live; all load on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import simulator

MORE = {
    "StepSettings": "simulator.plan",
    "make_plan": "partitioners",
    "read_profile_or_card": "simulator.language_models.modelled_profile",
    "run": "simulator.run",
    "runtime_of": "simulator.language_models.training_stack",
    "step_interval": "simulator.report.interval",
    "strategies": "partitioners",
}
__all__ = sorted([*simulator.__all__, *MORE])


def __getattr__(name: str) -> Any:
    if name in MORE:
        return getattr(import_module(MORE[name]), name)
    if name in simulator.__all__:
        return getattr(simulator, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
