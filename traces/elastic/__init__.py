"""Devices that come and go in a training, for real.

elastic_worker         data-parallel training whose process group can change between two steps, with one flat state
group_rank             the life of one rank of an elastic process group
process_group          processes that train together in a lab, more or fewer from time to time; what a change took
reconfiguration_costs  what changing the devices of a job costs here: `shardscope calibrate --reconfiguration`
"""
