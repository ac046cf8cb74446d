"""From a profile and a plan to the tasks of one training step.

backward_tasks     the tasks that end backward passes, by device and by parameter: what the synchronisation of
                   gradients waits for
buffer_broadcast   buffers that all replicas shall have alike: the first device sends them as a step begins
buckets            buckets: which parameter gradients travel together in one collective
costs              what a shard of a layer costs, interpolated from the layer's measured points
crossings          which shard reads which, and what therefore crosses between devices
equal_links        whether links are shared equally by what simulated devices send and by what those like them do
equal_ranks        ranks of tensor parallelism that do the same at the same times: the tasks of the first are kept
exchange_bytes     how much of an edge moves between devices, counted without making a message
exchange_pieces    an edge of the network cut into pieces: elements that the same shards make and the same shards read
exchange_tasks     what moves between the passes of a micro-batch, as tasks: activations forward, their gradients
                   backward
exchanges          what of a layer's output, or of its gradient, moves between devices, as messages or as collectives
gradients          gradient synchronisation and update: the tasks of a step after and beside the backward pass
graph_builder      making a TaskGraph block by block: tasks are appended as arrays, dependencies as pairs of arrays
kept_answers       answers about the layers of a profile that are kept with it for its other plans
launches           the host's launch queue beside each device: how long each task takes to launch, and where the host
                   waits
parameter_gathers  ZeRO's third stage (FSDP): parameters that devices share out are gathered before the passes that use
                   them
pass_costs         what the forward and backward passes of a layer's shards take and hold in one micro-batch
passes             the forward and backward passes of a plan's shards: what they take, hold and add up
plain_edges        edges of the network without sums, copies or collectives: a shard's output just goes to the
                   shards that read it
recomputation      recomputation (activation checkpointing): segments of layers are computed, or outputs received, again
                   before their backward passes
rendezvous         rendezvous: a message of a pipeline moves only after its receive was posted, as gloo and NCCL do
                   under torch
replicas           who uses which part of a parameter: every piece with the devices that hold it and sum its gradient
reshard            reshard: what moves when a tensor that some devices hold in terms is needed, summed, on others
sample_shares      sharing samples out over devices of unequal speed so that the slowest is done as early as possible
schedules/         in which order a device runs the passes of its micro-batches, one file per schedule
shard_regions      which part of a layer a shard is, and which part of its input it needs
sharded_model      ShardedModel: everything that follows from a profile and a plan, derived once and read by all who
                   need it
stages             the stages of a plan: which layers a device, or a set of replicas, runs between two messages
step               ShardedModel, Cluster, Runtime -> TaskGraph
symmetry           devices that do the same at the same times are lowered and simulated once, and counted
typical_scaling    what a part of a layer takes on a usual device, for profiles that measured only the whole
weight_stashing    PipeDream's pipeline: no flush, so every stage updates its own weights after each backward pass
"""

from simulator.lowering.buckets import Bucket
from simulator.lowering.costs import shard_seconds
from simulator.lowering.crossings import Reads, crossings_of
from simulator.lowering.gradients import static_bytes
from simulator.lowering.graph_builder import GraphBuilder
from simulator.lowering.replicas import replicas_of
from simulator.lowering.sample_shares import Seconds, balanced_shares, split_by_time
from simulator.lowering.shard_regions import Interval, channel_bytes, reads, shards, split
from simulator.lowering.sharded_model import ShardedModel
from simulator.lowering.step import lower

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
