"""Our own executor: every rank runs its tasks of the graph that the simulator simulates.

execute           run a plan for real, with every rank's tasks those that are simulated; back comes the same Timeline
worker            one rank runs its tasks of a graph: computes in the simulator's order, and communicates beside it
run_setup         what all ranks of a run agree on beforehand: the plan's tasks, the network, what reads what
transport         messages and collectives between ranks: processes joined by torch.distributed (gloo)

rank_shards       the shards of one rank: their parameters, their forward and backward passes, recomputation
shard_operators   what a shard computes and reads: its boxes, the sums that they are made of, and its operator
sliced_layers     layers of which a shard makes some channels, rows, columns or terms: weight slices, padded windows

edge_moves        what of a layer's output each transfer carries, behind the byte counts; which task is which of them
tensor_flow       a tensor as a device holds it: own terms, what others sent, their sums

gradient_updates  from gradients to new parameters on one rank: all-reduce, servers, ZeRO; SGD with momentum
bucket_transfers  what each task of the synchronisation does with which bucket
parameter_pieces  parameter pieces as rows of numbers: values here, gradients of the shards here
parameter_boxes   boxes of a layer's output and of its parameters, and which of them a shard holds
weight_versions   versions of a device's weights, where a schedule stashes them
"""
