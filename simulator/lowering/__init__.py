"""From a profile and a plan to the tasks of one training step.

step           ShardedModel, Cluster, Runtime -> TaskGraph
sharded_model  ShardedModel: everything that follows from a profile and a plan, derived once and read by all who need it

tasks/         the tasks of a step: passes, what moves between them, and what synchronises gradients and weights
symmetry/      which devices do the same at the same times, so that they are lowered and simulated once
parameters/    who holds which part of a parameter, and which gradients travel together
costs/         what shards, and the passes over them, take and hold
exchange/      what of a tensor moves between the shards that make it and those that read it
schedules/     in which order a device runs the passes of its micro-batches, one file per schedule
"""

from simulator.lowering.costs.sample_shares import Seconds, balanced_shares, split_by_time
from simulator.lowering.costs.shard_costs import shard_seconds
from simulator.lowering.exchange.crossings import Reads, crossings_of
from simulator.lowering.exchange.shard_regions import Interval, channel_bytes, reads, shards, split
from simulator.lowering.parameters.buckets import Bucket
from simulator.lowering.parameters.replicas import replicas_of
from simulator.lowering.sharded_model import ShardedModel
from simulator.lowering.step import lower
from simulator.lowering.tasks.gradients import static_bytes
from simulator.lowering.tasks.graph_builder import GraphBuilder

__all__ = [
    "Bucket",
    "GraphBuilder",
    "Interval",
    "Reads",
    "Seconds",
    "ShardedModel",
    "balanced_shares",
    "channel_bytes",
    "crossings_of",
    "lower",
    "reads",
    "replicas_of",
    "shard_seconds",
    "shards",
    "split",
    "split_by_time",
    "static_bytes",
]
