"""What a step cost: times, bytes, memory, the critical path, and its trace.

chrome_trace      a timeline as Chrome trace-event JSON, which Perfetto (ui.perfetto.dev) and chrome://tracing open
critical_path     what a step waits for: its longest chain, by dependencies alone and as it really came to pass
deferred_rows     rows of a report that are made when somebody reads them
evidence          what a prediction stands on, and how far others of its kind were off
extrapolation     what a step of more equal rounds adds up to, by a rule for each figure
interval          how far a predicted step may be off, from the spreads of what it was predicted from
layer_use         what each layer computes and sends in a step
memory            how much memory each device needs during a step
metrics           what a step cost: Timeline, TaskGraph -> Report
resource_use      where the step of each device went, and what each link carried: rows of a report
steady_state      rounds: micro-batches after which the state of a step repeats, simulated once and counted
step_causes       where the step of one device goes, by cause
step_totals       what the tasks of a step add up to, before any ratio is taken
time_spans        arithmetic on sets of time spans, each an array of shape (n, 2) with columns start and end, in seconds
unmeasured_sizes  which compute times were not measured at their size, and the band that they give the step
traffic           who sends how much to whom, kept for the pairs of devices that do
usage             resource usage over a step, as a monitoring page shows it: how busy every device and link is, moment
                  by moment
volume            how much a plan communicates, counted from its placements alone, without lowering or simulating it
"""

from simulator.report.critical_path import binding_chain, critical_path_s, path_shares
from simulator.report.interval import StepInterval, step_interval
from simulator.report.layer_use import LayerUse
from simulator.report.memory import most_bytes, peak_bytes
from simulator.report.metrics import Report, measure, one_device_s
from simulator.report.resource_use import DeviceUse
from simulator.report.step_causes import CAUSES, step_causes
from simulator.report.step_totals import PHASES
from simulator.report.time_spans import length, spread, union
from simulator.report.traffic import traffic_matrix
from simulator.report.unmeasured_sizes import UnmeasuredSizes, unmeasured_sizes
from simulator.report.usage import Usage, carried_bytes, figure, usage_of, write_html
from simulator.report.volume import communication_volume

__all__ = [
    "CAUSES",
    "PHASES",
    "DeviceUse",
    "LayerUse",
    "Report",
    "StepInterval",
    "UnmeasuredSizes",
    "Usage",
    "binding_chain",
    "carried_bytes",
    "communication_volume",
    "critical_path_s",
    "figure",
    "length",
    "measure",
    "most_bytes",
    "one_device_s",
    "path_shares",
    "peak_bytes",
    "spread",
    "step_causes",
    "step_interval",
    "traffic_matrix",
    "union",
    "unmeasured_sizes",
    "usage_of",
    "write_html",
]
