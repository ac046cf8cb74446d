"""What tests/test_golden.py reads of results: every column and field by name, so that a new one leaves the digests as
they are; words that explain a number are left out, so that they can be written better.
"""

from __future__ import annotations

from typing import Any

from counted_volume import communication_volume
from golden_cases import Options, Simulated

from simulator.lowering.sharded_model import ShardedModel
from simulator.plan import Plan
from simulator.report import chrome_trace
from simulator.report.critical_path import binding_chain
from simulator.report.metrics import Report
from simulator.report.usage import usage_of
from simulator.taskgraph import TaskGraph
from simulator.timeline import Timeline

COLUMNS = (
    "kind",
    "device",
    "route",
    "seconds",
    "bytes",
    "layer",
    "microbatch",
    "shard",
    "priority",
    "allocated_bytes",
    "freed_bytes",
    "dependency_start",
    "dependencies",
    "static_bytes",
)
_NUMBERS = (
    "batch_size",
    "microbatches",
    "step_s",
    "samples_per_s",
    "speedup",
    "efficiency",
    "load_balance_ratio",
    "bubble_ratio",
    "peak_memory_bytes",
    "fits",
    "critical_path_s",
    "path_s",
    "dollars_per_step",
    "tasks",
)
_DEVICE = (
    "name",
    "compute_s",
    "exposed_communication_s",
    "bubble_s",
    "idle_s",
    "utilisation",
    "peak_memory_bytes",
    "static_bytes",
    "memory_bytes",
    "sent_bytes",
    "received_bytes",
)
_LAYER = ("name", "compute_s", "forward_bytes", "backward_bytes", "synchronisation_bytes")
_VOLUME = ("total", "forward", "backward", "synchronisation", "matrix")


def plan_values(plan: Plan) -> Any:
    """Who computes what."""
    placed = {name: [p.degrees, p.devices, p.samples] for name, p in plan.placements.items()}
    return {"batch_size": plan.batch_size, "microbatches": plan.microbatches, "placements": placed}


def graph_values(graph: TaskGraph) -> Any:
    """Columns by name, with the routes and the names of layers."""
    routes = [[route.pairs, route.rounds] for route in graph.routes]
    return {**{name: getattr(graph, name) for name in COLUMNS}, "routes": routes, "layer_names": graph.layer_names}


def timeline_values(timeline: Timeline) -> Any:
    return {"start_s": timeline.start_s, "end_s": timeline.end_s}


def report_values(report: Report) -> Any:
    """The numbers of a report, and the names of what they belong to."""
    content = report.to_dict()
    return {
        **_picked(content, _NUMBERS),
        "communication": _picked(content["communication_bytes"], _VOLUME),
        "devices": [_picked(device, _DEVICE) for device in content["devices"]],
        "links": [_picked(link, ("name", "tier", "bytes", "utilisation")) for link in content["links"]],
        "layers": [_picked(layer, _LAYER) for layer in content["layers"]],
        "bottleneck": _picked(content["bottleneck"], ("resource", "worst", "share")),
    }


def volume_values(done: Simulated) -> Any:
    """The communication volume, counted without simulating."""
    volume = communication_volume(ShardedModel(done.profile, done.plan), done.cluster)
    return {name: getattr(volume, name) for name in _VOLUME}


def usage_values(done: Simulated) -> Any:
    """Compute, memory and link rates in intervals of the step."""
    usage = usage_of(done.graph, done.cluster, done.timeline, 50)
    return {name: getattr(usage, name) for name in ("edges_s", "compute", "memory_bytes", "link_bytes_per_s")}


def chain_values(done: Simulated) -> Any:
    """The tasks of the critical path as it came to pass."""
    return binding_chain(done.graph, done.timeline)


def trace_values(done: Simulated) -> Any:
    """Who is in which row of the Chrome trace, from when for how long."""
    events = chrome_trace.trace(done.graph, done.cluster, done.timeline)["traceEvents"]
    return [
        [e["ph"], e["pid"], e["tid"], e.get("ts"), e.get("dur"), e["args"].get("task"), e["args"].get("bytes")]
        for e in events
    ]


def _picked(fields: Options, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: fields[name] for name in names}
