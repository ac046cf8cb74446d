"""Measuring the links of a cluster and the overheads of a runtime.

    bandwidth_fit       fits what training gets of a link's bandwidth to measured steps
    command             the command `shardscope calibrate`: a Cluster and a Runtime measured, in a lab or under torchrun
    contention          what communication and compute take from each other on a rank
    link_probe          what each rank does to measure the links: messages between pairs, collectives among the first N
    links               from what ranks measured to a Cluster and a Runtime
    measured_points     from repeated measurements of sizes to curves and rates, whatever was measured
    median_calibration  several calibrations of one cluster as one
    runtime_overheads   what runtimes add to the layers' own work, each measured on one rank without a network
    shared_cores        which devices compute on the same cores of the same machine

Import from the files themselves: processes that start with one of them need none of the others.
"""
