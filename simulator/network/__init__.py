"""Links and what flows over them: topologies, named machines, max-min fair sharing.

catalogue      clusters by name or from a file. Presets are one YAML file each in `presets/`, with a source of every
               number
collective_times   what a collective takes by where its devices are, as the library that runs it would choose
max_min        max-min fair sharing of capacities among activities: transfers on links, compute tasks on a host's cores
token_buckets  links that let some bytes pass at full speed after a rest, as their measured curves show
topologies     ways to join devices: each builder returns a Cluster
transfers      what each transfer of a graph asks of the links: a delay, then work shared max-min fairly
"""

from simulator.network.catalogue import Join, Preset, presets, read_cluster, read_preset, read_runtime, write_cluster
from simulator.network.max_min import ActivityClass, Sharing
from simulator.network.topologies import Wire, flat_switch, select, take, two_tier
from simulator.network.transfers import Demand, Paths, alone_s, demand, link_bytes, link_weights, paths, uncontended_s

__all__ = [
    "ActivityClass",
    "Demand",
    "Join",
    "Paths",
    "Preset",
    "Sharing",
    "Wire",
    "alone_s",
    "demand",
    "flat_switch",
    "link_bytes",
    "link_weights",
    "paths",
    "presets",
    "read_cluster",
    "read_preset",
    "read_runtime",
    "select",
    "take",
    "two_tier",
    "uncontended_s",
    "write_cluster",
]
