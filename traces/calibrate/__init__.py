"""Measuring the links of a cluster and the overheads of a runtime.

    bandwidth_fit      fits what training gets of a link's bandwidth to measured steps
    link_probe         what each rank does to measure the links: messages between pairs, all-reduces among the first N,
                       a stream
    links              measure the links of a cluster with the backend that will use them: curves of bytes -> seconds,
                       CPU per byte
    runtime_overheads  what runtimes add to the layers' own work, each measured on one rank without a network

Import from the files themselves: processes that start with one of them need none of the others.
"""
