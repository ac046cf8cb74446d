"""PipeDream-2BW: 1F1B without a flush, with two versions of the weights (Narayanan et al., ICML 2021, section 3.1).

    stage 0  01 a2bU3c dU
    stage 1   0a1bU2c3dU

p micro-batches are a mini-batch, whose gradients are added up for one update; however many mini-batches follow one
another, the pipeline fills and drains once. Of its weights a device keeps the version that it updates and the one that
micro-batches in flight began with: mini-batch t runs with those of t - 2, where PipeDream has p - device versions.
"""

from simulator.lowering.schedules._schedule import Schedule
from simulator.lowering.schedules.one_forward_one_backward import one_forward_one_backward

SCHEDULE = Schedule(name="pipedream-2bw", order=one_forward_one_backward, stashes_weights=True, double_buffered=True)
