"""Contiguous stages: what they cost, and which cut is the shortest.

block_layout   which units of a network stand on which stage, counted in blocks
contiguous     the best contiguous stages, by exact dynamic programming over measured times and transfer costs
judged_stages  the stages of the shortest simulated step, over at most all workers
recomputed_layers  which layers are computed again, by the names of runtimes
stage_bounds   lower bounds on the steps of many cuts into stages at once, without lowering them
stage_costs    what contiguous stages and the cuts between them take, by measured times and transfer costs
stage_memory   what a cut's fullest stage needs at least, and the cuts of the best pace that need so much or less
stage_layout   what many cuts into stages ask of a cluster, however fast its links are: kept with the profile, as a
               sweep of bandwidths asks for the same at every point
"""
