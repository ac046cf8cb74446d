"""What training costs under a plan: the nouns, and the verbs that lead from one to the next.

    errors      every error that Shardscope raises on purpose
    units       reading and printing quantities; inside there are only seconds, bytes, FLOP and ratios
    workload    Profile: a network measured layer by layer on one device
    expert_routing    Routing: which tokens travel to which experts
    curve       Curve: measured times of messages by their size
    cluster     Cluster: devices and the links that join them
    routes      the shortest way between two nodes
    plan        Plan: who computes which shard
    plan_rules  what every plan keeps to; profile_rules: what every profile does
    parameter_states  ParameterStates: which states of a parameter its users share out
    recompute_segments  which layers are recomputed together
    sample_work what takes longer of one sample than of another
    runtime     Runtime: what the software that runs a plan adds
    taskgraph   TaskGraph: what has to be done in one step
    timeline    Timeline: when every task ran
    files       every file format; file_gate: bounded plain data out of any text; file_content: data as a dataclass
    owned_files temporary files and folders that carry their owner's name, for what killed processes left
    one_line_parser  arguments of programs, complaints in one line, types of options
    terminal         lines of text, folded where a terminal shows them; version: that of Shardscope
    device_names     which devices' names are of one model
    kept        Kept: what has been worked out, by value within a budget
    distinct    the different ones among whole numbers
    ordered_sum one order of addition, for equal reports on every Python
    registry    folders whose files are entries
    run         from a plan to its report in one call

    network/      links and what flows over them       report/       what a step cost
    collectives/  how a group sums a gradient          studies/      questions that take several simulations
    lowering/     from a plan to tasks                 elastic/      devices that come and go
    engine/       when every task runs                 convergence/  samples to an accuracy
    sweep/        many points, one table               exports/      a plan for runtimes of others
    language_models/  profiles out of model cards      cli/          the command line

Rooms import only those that stand above them in `tests/test_architecture.py`. Names below load on first use, so that
a command's help, and a capture on a machine with torch alone, load nothing else.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simulator.cluster import Cluster as Cluster
    from simulator.engine import simulate as simulate
    from simulator.errors import ShardscopeError as ShardscopeError
    from simulator.files import read_plan as read_plan
    from simulator.files import read_profile as read_profile
    from simulator.files import write_plan as write_plan
    from simulator.files import write_profile as write_profile
    from simulator.lowering.sharded_model import ShardedModel as ShardedModel
    from simulator.lowering.step import lower as lower
    from simulator.network.catalogue import read_cluster as read_cluster
    from simulator.network.catalogue import write_cluster as write_cluster
    from simulator.plan import Plan as Plan
    from simulator.plan import Sharding as Sharding
    from simulator.plan import Synchronisation as Synchronisation
    from simulator.report.metrics import Report as Report
    from simulator.report.metrics import measure as measure
    from simulator.run import Run as Run
    from simulator.runtime import Runtime as Runtime
    from simulator.taskgraph import TaskGraph as TaskGraph
    from simulator.timeline import Timeline as Timeline
    from simulator.workload import Layer as Layer
    from simulator.workload import Profile as Profile

_HOMES = {
    "cluster": ("Cluster",),
    "engine": ("simulate",),
    "errors": ("ShardscopeError",),
    "files": ("read_plan", "read_profile", "write_plan", "write_profile"),
    "lowering.sharded_model": ("ShardedModel",),
    "lowering.step": ("lower",),
    "network.catalogue": ("read_cluster", "write_cluster"),
    "plan": ("Plan", "Sharding", "Synchronisation"),
    "report.metrics": ("Report", "measure"),
    "run": ("Run",),
    "runtime": ("Runtime",),
    "taskgraph": ("TaskGraph",),
    "timeline": ("Timeline",),
    "workload": ("Layer", "Profile"),
}
__all__ = sorted(name for names in _HOMES.values() for name in names)


def __getattr__(name: str) -> object:
    home = next((module for module, names in _HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
