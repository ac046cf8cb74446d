"""Devices that come and go in a training, for real.

    balanced_shares        even and balanced shares of a batch on devices of unequal speed, for real
    elastic_worker         data-parallel training whose group can change between two steps: one flat state that moves,
                           saves and goes on
    group_rank             the life of one rank of an elastic process group
    membership_changes     what a change of a crew's members took: the parts of the pause, from the members' logs
    process_group          a crew: processes that train one network together in a lab and whose number changes while
                           they do
    reconfiguration_costs  measure what changing the devices of a job costs on this machine: `shardscope calibrate
                           --reconfiguration`
    rehearsal              devices that come and go in a training for real, beside what the simulator says

Import from the files themselves: processes that start with one of them need none of the others.
"""
