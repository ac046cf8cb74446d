"""One weird trick (Krizhevsky, arXiv:1404.5997, 2014): convolutions by sample, fully connected layers by channel.

Convolutions have most of the work and few parameters, fully connected layers most of the parameters and small
activations, so each kind is split where little has to be sent.
"""

from __future__ import annotations

from simulator.cluster import Cluster
from simulator.plan import Partition, Sharding, StepSettings
from simulator.workload import Layer, Profile


def partition(profile: Profile, cluster: Cluster, step: StepSettings, *, seed: int = 0) -> Partition:
    """Fully connected layers, and what follows them channel by channel, by channel; all else by sample.

    A layer with fewer channels (or a micro-batch with fewer samples) than workers leaves the last ones idle.
    """
    by_channel = channel_split_layers(profile)
    placements = {}
    for layer in profile.layers:
        split_channels = layer.name in by_channel
        degree = min(cluster.workers, layer.channels if split_channels else step.microbatch_size)
        degrees = (1, degree, 1, 1) if split_channels else (degree, 1, 1, 1)
        placements[layer.name] = Sharding(degrees=degrees, devices=tuple(range(degree)))
    return Partition(placements=placements)


def channel_split_layers(profile: Profile) -> frozenset[str]:
    """Names of the fully connected layers and of those that only follow them, channel by channel."""
    names: set[str] = set()
    for layer in profile.layers:
        follows = bool(layer.inputs) and not layer.geometry.mixes_channels and names.issuperset(layer.inputs)
        if follows or _is_fully_connected(layer):
            names.add(layer.name)
    return frozenset(names)


def _is_fully_connected(layer: Layer) -> bool:
    """Every output channel reads the whole input, and there is no plane left."""
    mixes, plane = layer.geometry.mixes_channels, layer.output_shape[1:]
    return mixes and layer.geometry.groups == 1 and layer.geometry.kernel in (None, (1, 1)) and plane == (1, 1)
