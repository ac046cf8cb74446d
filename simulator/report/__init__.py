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
slow_links        how long a step takes at least where links give the low end of their band
steady_state      rounds: micro-batches after which the state of a step repeats, simulated once and counted
step_causes       where the step of one device goes, by cause
step_totals       what the tasks of a step add up to, before any ratio is taken
time_spans        arithmetic on sets of time spans, each an array of shape (n, 2) with columns start and end, in seconds
unmeasured_sizes  which compute times were not measured at their size, and the band that they give the step
traffic           who sends how much to whom, kept for the pairs of devices that do
usage             resource usage over a step, as a monitoring page shows it: how busy every device and link is, moment
                  by moment
"""
