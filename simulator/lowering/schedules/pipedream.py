"""PipeDream: 1F1B without a flush, each backward pass followed by an update (Narayanan et al., SOSP 2019, section 3.2).

    stage 0  012  aU3bU cU dU
    stage 1   01 aU2bU3cU dU
    stage 2    0aU1bU2cU3dU

Micro-batches are whole mini-batches: however many follow one another, the pipeline fills and drains once. A device
stashes p - device versions of its weights.
"""

from simulator.lowering.schedules._schedule import Schedule
from simulator.lowering.schedules.one_forward_one_backward import one_forward_one_backward

SCHEDULE = Schedule(name="pipedream", order=one_forward_one_backward, stashes_weights=True)
