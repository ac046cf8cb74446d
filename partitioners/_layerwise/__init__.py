"""What the strategy `layerwise` weighs, and how it finds the least sum.

elimination  the least sum of costs over choices that depend on each other along the edges of a graph, exactly
optcnn       what OptCNN's search weighs: the configurations of every layer and what each of them costs
"""
