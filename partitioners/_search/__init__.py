"""Search among plans by what they promise and then by simulating them.

annealing      runs of layers are cut another way, and what is worse is taken now and then
judged_plan    plans that were simulated, and changes of them that promise something
layer_groups   groups of layers that a search cuts together, and the ways to cut them on some devices
link_seconds   seconds that messages and collectives keep the links of a cluster busy
loads          what a plan asks of every device and link, from its placements alone, and what step that promises
local_search   layers in a row are placed another way as long as that promises, then simulates, a shorter step
migrate        move border shards to another part while the simulated step gains
promises       what step the loads of a plan promise, without simulating it
refinement     the local search and annealing in turn while that gains
window_bounds  lower bounds of what plans promise that take over, for layers in a row, how another network is placed as
               a whole
"""
