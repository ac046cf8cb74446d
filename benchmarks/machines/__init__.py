"""One's own machines: captured, calibrated, predicted and run.

validation             the tables of docs/validation.md, and the runs that ship
field_suite            drawn networks in shaped networks, predicted and then run
field_cases            the cases of that suite, from a seed
random_networks        networks drawn from a grammar
rival_formulas         the plainest formulas of a step
repeated_calibrations  the same calibration several times, pair by pair
captured_networks      networks as users bring them, captured
layer_sums             layers over the measured step of captured profiles
kineto_capture         layers out of torch.profiler's traces beside those of `capture`
"""
