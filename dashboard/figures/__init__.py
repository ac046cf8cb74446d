"""Figures as plain dictionaries that Plotly draws: one file per card, each a pure function.

breakdown     where the step goes: device time by what it was spent on, adding up to 100 %
layers        a profile: time by layer, one layer's measured scaling, and the network's layers with their joins
load_balance  load balance: each device's compute over the mean, and each layer's
memory        peak memory of each device against its capacity
network       the network: its topology with what each link carried, and every busy link's utilisation over the step
scenario      a job over time: throughput under each policy, number of devices, and the membership changes
span_columns  a run's spans as one block of bytes that the canvas reads without parsing, and single tasks in words
standalone    a report as one HTML file that needs neither a server nor a network: figures, timelines and their
              scripts inside
style         what all figures share: the palette, the frame, names and colours of devices
sweep         a sweep: one quantity over one or two parameters, the trade-off of two quantities, and all of it at
              once
traffic       bytes from device to device in one step, of all phases or one of them
validation    predicted against actual runs: a scatter, signed errors in groups, and the error over something else
device_grid     a language model on a grid of devices: who computes what, one block on one device, memory by kind
bar_scale       heights of bars on one scale; the bars of a column far above all others are cut off, and seen to be
candidates      a search's history: the plans it tried, bytes against the step, beside the strategies
plans           the steps of the best ranked plans, with their 90 % ranges
partition       the partition figure as SVG: the folded network over its bars, and the same bytes under other strategies
partition_glyphs its glyphs: a block's tensor in the colours of its devices
partition_graph its graph: glyphs of splits, ribbons as wide as what crosses
partition_rows  its rows of bars and strips
shades          colours of devices: the node is the hue, the device its lightness
svg             marks of SVG as text
"""
