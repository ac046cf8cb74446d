"""From a profile and a plan to the tasks of one training step.

costs            what a shard of a layer costs, interpolated from the layer's measured points
crossings        which shard reads which, and what therefore crosses between devices
gradients        gradient synchronisation and update: the tasks of a step after and beside the backward pass
graph_builder    making a TaskGraph block by block: tasks are appended as arrays, dependencies as pairs of arrays
passes           the forward and backward passes of a plan's shards: what they take, hold and add up
rendezvous       pipelines whose stages meet for each message, as torch's do: gloo and NCCL move nothing until both
                 ends ask
sample_shares    sharing samples out over devices of unequal speed so that the slowest is done as early as possible
schedules        in which order a device runs the forward and backward passes of its micro-batches
shard_regions    which part of a layer a shard is, and which part of its input it needs
step             profile, Cluster, Plan -> TaskGraph
weight_stashing  PipeDream's pipeline: no flush, so every stage updates its own weights after each backward pass
"""

from simulator.lowering.costs import shard_seconds
from simulator.lowering.crossings import Reads, crossings_of, element_bytes, reads_of, replicas_of
from simulator.lowering.gradients import Bucket, buckets, static_bytes
from simulator.lowering.graph_builder import GraphBuilder
from simulator.lowering.passes import pass_seconds
from simulator.lowering.sample_shares import Seconds, balanced_shares, split_by_time
from simulator.lowering.schedules import CHUNKED, SCHEDULES, STASHING, stages
from simulator.lowering.shard_regions import Interval, channel_bytes, reads, shards, split
from simulator.lowering.step import lower

__all__ = [
    "CHUNKED",
    "SCHEDULES",
    "STASHING",
    "Bucket",
    "GraphBuilder",
    "Interval",
    "Reads",
    "Seconds",
    "balanced_shares",
    "buckets",
    "channel_bytes",
    "crossings_of",
    "element_bytes",
    "lower",
    "pass_seconds",
    "reads",
    "reads_of",
    "replicas_of",
    "shard_seconds",
    "shards",
    "split",
    "split_by_time",
    "stages",
    "static_bytes",
]
