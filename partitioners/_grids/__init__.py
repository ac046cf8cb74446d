"""Every way to train a language model on so many devices: as plans, bounded, simulated and ranked.

grid_plan       a training grid as the plan of the strategy that places it
grid_bounds     what no simulation of a grid is faster, or needs less memory, than
block_passes    what a pass of one micro-batch takes in a block
link_bounds     what links between nodes need at the least for what replicas share
repeated_block  one block of a card so many times, as a network of its own
calibration     the constants of a training stack from measured steps, by simulating them
measured_rows   measured runs from a CSV
ranking         grids in the order of their bounds, simulated until nothing that is left can be among the best
"""
