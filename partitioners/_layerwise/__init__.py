"""What the strategy `layerwise` weighs, and how it finds the least sum.

contenders      the choices that a least sum may have, as a bound rules out all others
elimination     the least sum of costs over choices that depend on each other along the edges of a graph, exactly
messages        a bound below that sum, by messages along the edges
memory          bytes that choices hold over intervals of time
limited         the least sum where what is held at any time has to fit into memory
optcnn          what OptCNN's search weighs: the configurations of every layer and what each of them costs
region_traffic  what an edge sends between all pairs of devices, for every configuration of both of its ends
"""
