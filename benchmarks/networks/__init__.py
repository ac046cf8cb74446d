"""Links and collectives beside what others measured.

collective_times      collectives by mechanism beside measured ones
measured_collectives  those measurements: logs of nccl-tests, tables, a chart
link_shares           what collectives, messages and training get of the line rate
holdout               data parallelism: one bandwidth from one network, the others predicted
"""
