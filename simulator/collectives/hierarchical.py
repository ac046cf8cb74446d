"""Two-level all-reduce with rings inside each host and between hosts, as Horovod's hierarchical all-reduce with NCCL.

With n hosts of g devices: a ring reduce-scatter inside, which leaves each device S/g; g rings at once between
the hosts, which share their wires; a ring all-gather inside:

    2(g-1)/g x S/B_inside + 2(g-1) x latency_inside + 2(n-1)/n x S/B_between + 2(n-1) x latency_between

where B_between is what a host has for all its devices. When hosts have different numbers of devices, the first
of each stands for it: gradients are summed along a chain towards it and the result comes back the same way,
in S/B_inside + (g-1) x latency_inside each, and one ring joins the hosts.
"""

from __future__ import annotations

from functools import partial

from simulator.collectives._collective import Collective
from simulator.collectives._two_levels import two_levels
from simulator.collectives.ring import ring

COLLECTIVE = Collective(all_reduce=partial(two_levels, between=ring))
