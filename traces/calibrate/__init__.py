"""Measuring the links of a cluster and the overheads of a runtime.

bandwidth_fit       fits what training gets of a link's bandwidth to measured steps
command             the command `shardscope calibrate`: a Cluster and a Runtime measured, in a lab or under torchrun
link_probe          what each rank does to measure messages, collectives, and what they and compute take from each other
links               from what ranks measured to a Cluster and a Runtime, and which devices share cores
median_calibration  from repeated measurements to curves and rates, and from several calibrations to one
runtime_overheads   what runtimes add to the layers' own work, each measured on one rank without a network
"""
