"""What actual runs left behind, and its comparison with predictions. No torch here.

diagnosis            three short real steps beside their predictions: whether predictions can be trusted, what is off
executions           an execution: a plan that ran for real, from what ranks observed to its file, a numpy archive
run_speed            a prediction with devices as fast as they were in the run: an error without that of layers' times
timeline_comparison  a timeline against another of the same task graph, task by task: where it was wrong, and why
validation_cases     the runs of a validation: which network, on which lab, split how, and run by what
validations          what a validation holds: real runs beside their predictions
"""
