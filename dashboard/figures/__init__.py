"""Figures as plain dictionaries that Plotly draws, each a pure function.

candidates       a search's history: the plans it tried, bytes against the step, beside the strategies
device_grid      a language model on a grid of devices: who computes what, one block on one device, memory by kind
devices          load balance, peak memory by kind against the capacity, and where the time of devices goes
layers           a profile: time by layer, one layer's measured scaling, and the network's layers with their joins
network          the network: its topology with what each link carried, every busy link's utilisation over the step, and
                 bytes from device to device, of all phases or one of them
partition        the partition figure as SVG: the folded network over its bars, and other strategies' bytes
partition_glyphs its glyphs: a block's tensor in the colours of its devices
partition_graph  its graph: glyphs of splits, ribbons as wide as what crosses
partition_rows   its rows of bars and strips; bars far above all others are cut off, and seen to be
scenario         a job over time: throughput under each policy, number of devices, and the membership changes
shades           colours of devices: the node is the hue, the device its lightness
span_columns     a run's spans as one block of bytes that the canvas reads without parsing, and single tasks in words
standalone       a report as one HTML file that needs neither a server nor a network
style            what all figures share: the palette, the frame, names and colours of devices
svg              marks of SVG as text
sweep            a sweep: one quantity over one or two parameters, two quantities, and all of it at once; ranked plans'
                 steps with their 90 % ranges
validation       predicted against actual runs: a scatter, signed errors in groups, and the error over something else
"""
