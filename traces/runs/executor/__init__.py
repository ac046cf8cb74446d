"""Our own executor: every rank runs its tasks of the graph that the simulator simulates.

    execute           run a plan for real, with every rank's tasks those that the simulator simulates; back comes the
                      same Timeline
    gradient_updates  from gradients to new parameters on one rank: all-reduce, or push to servers and pull back; SGD
                      with momentum
    rank_shards       the shards of one rank: their parameters, their forward and backward passes, what they send and
                      receive
    run_setup         everything about a run that all ranks agree on beforehand: the plan's tasks, the network, what
                      reads what
    shard_inputs      what a shard's inputs are made of, and what of its output crosses to another device
    shard_operators   what a layer does on one shard: its operator with a slice of its parameters, on a slice of its
                      inputs
    sliced_layers     layers of which a shard makes some output channels, rows or columns: weight slices and padded
                      windows
    transport         messages and all-reduces between ranks: processes by torch.distributed (gloo), or threads of one
                      process
    worker            one rank runs its tasks of a graph: computes in the simulator's order, and communicates beside it

Import from the files themselves: processes that start with one of them need none of the others.
"""
