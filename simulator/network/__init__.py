"""Links and what flows over them: topologies, named machines, max-min fair sharing.

catalogue      clusters by name or from a file. Presets are one YAML file each in `presets/`, with a source of every
               number
collective_times   what a collective takes by where its devices are, as the library that runs it would choose
max_min        max-min fair sharing of capacities among activities: transfers on links, compute tasks on a host's cores
token_buckets  links that let some bytes pass at full speed after a rest, as their measured curves show
topologies     ways to join devices: each builder returns a Cluster
transfers      what each transfer of a graph asks of the links: a delay, then work shared max-min fairly
"""
