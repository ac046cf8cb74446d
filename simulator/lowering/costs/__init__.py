"""What shards, and the passes over them, take and hold.

pass_costs       what the forward and backward passes of a layer's shards take and hold in one micro-batch
sample_shares    sharing samples out over devices of unequal speed so that the slowest is done as early as possible
shard_costs      what a shard of a layer costs, interpolated from the layer's measured points
typical_scaling  what a part of a layer takes on a usual device, for profiles that measured only the whole
"""
