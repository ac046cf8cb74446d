"""Devices that come and go in a training, for real.

elastic_worker         data-parallel training whose process group can change between two steps: one flat state to
                       send and to store
group_rank             the life of one rank of an elastic process group
process_group          an elastic process group: processes that train one network together in a lab, more or fewer
                       from time to time; what a membership change took, from their logs
reconfiguration_costs  measure what changing the devices of a job costs on this machine: `shardscope calibrate
                       --reconfiguration`
"""
