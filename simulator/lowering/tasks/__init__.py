"""The tasks of a step: passes, what moves between them, and what synchronises gradients and weights.

backward_tasks     the tasks that end backward passes, by device and by parameter: what the synchronisation of
                   gradients waits for
buffer_broadcast   buffers that all replicas shall have alike: the first device sends them as a step begins
equal_ranks        ranks of tensor parallelism that do the same at the same times: the tasks of the first are kept
exchange_tasks     what moves between the passes of a micro-batch, as tasks: activations forward, their gradients
                   backward
gradients          synchronisation of gradients and update: the tasks of a step after and beside the backward pass
graph_builder      making a TaskGraph block by block: tasks are appended as arrays, dependencies as pairs of arrays
launches           the host's launch queue beside each device: how long each task takes to launch, and where the host
                   waits
overlapped_products  products that exchange their operands in parts while they are computed, as Transformer Engine's
                   user buffers do
parameter_gathers  ZeRO's third stage (FSDP): parameters that devices share out are gathered before the passes that use
                   them
passes             the forward and backward passes of a plan's shards: what they take, hold and add up
plain_edges        edges of the network without sums, copies or collectives: a shard's output just goes to the shards
                   that read it
recomputation      activation checkpointing: segments of layers are computed, or outputs received,
                   again before their backward passes
rendezvous         a message of a pipeline moves only after its receive was posted, as gloo and NCCL do under torch
weight_stashing    PipeDream's pipeline: no flush, so every stage updates its own weights after each backward pass
"""
