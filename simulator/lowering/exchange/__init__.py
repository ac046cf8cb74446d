"""What of a tensor moves between the shards that make it and those that read it.

collective_patterns  which collective the moves of a tensor are together
crossings            which shard reads which, and what therefore crosses between devices
exchange_bytes       how much of an edge moves between devices, counted without making a message
exchange_pieces      an edge of the network cut into pieces: elements that the same shards make and the same shards read
exchanges            what of a layer's output, or of its gradient, moves between devices, as messages or as collectives
moves                what of a tensor moves, in columns: the groups of targets of all pieces of an edge
reshard              what moves when a tensor that some devices hold in terms is needed, summed, on others
shard_regions        which part of a layer a shard is, and which part of its input it needs
"""
