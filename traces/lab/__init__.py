"""Processes on a shaped network of this machine.

child_processes  processes that this one starts for ranks, and what those do about their place on the machine
launch           run one process per rank, in the network lab or over loopback, and bring back what each returned
link_shaping     how the links of a lab are shaped: by `tc`, and by TCP's settings in each namespace
namespaces       Linux network namespaces that a process owns: made, listed, and removed with the processes in them
rank             the life of one rank that `traces.lab.launch` started
shaped_network   a small shaped network on one Linux machine: a network namespace for every device of a Cluster
"""
