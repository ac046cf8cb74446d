"""What `profiles` and `clusters` list: the library, the presets, one cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from simulator.cli._tables import new_table, print_table
from simulator.terminal import say
from simulator.units import format_bandwidth, format_bytes, format_time

if TYPE_CHECKING:
    from simulator.cluster import Cluster, Link
    from simulator.network.catalogue import Join, Preset
    from simulator.workload import Profile


def print_profiles(profiles: Mapping[str, Profile]) -> None:
    """The library, one row per profile."""
    columns = ("batch", "layers", "parameters", "step", "layers / step", "date")
    table = new_table("profile", *columns, last="device")
    for name, profile in profiles.items():
        table.add_row(
            name,
            str(profile.batch_size),
            str(len(profile.layers)),
            format_bytes(profile.parameter_bytes),
            format_time(profile.step_s) if profile.step_s is not None else "-",
            f"{profile.layers_to_step:.3f}" if profile.layers_to_step is not None else "-",
            profile.date,
            profile.device,
        )
    print_table(table, ("date", "layers / step", "layers", "batch"))


def print_presets(presets: Iterable[Preset]) -> None:
    """The presets, one row each."""
    table = new_table("cluster", "default", "memory", "intra", "inter", "$/h", last="what")
    for preset in presets:
        node = preset.node
        table.add_row(
            preset.name,
            str(preset.default_devices),
            format_bytes(node.memory_bytes) if node.memory_bytes else "-",
            _speed(preset.intra) if preset.intra else "-",
            _speed(preset.inter),
            f"{node.dollars_per_hour:.2f}" if node.dollars_per_hour else "-",
            preset.title,
        )
    print_table(table, ("$/h", "default", "memory"))
    say(
        "default: devices without --devices; intra: per device, each way; inter: per node, each way: line rate and the "
        "share of it that was measured, which links give; $/h: per node",
    )


def print_cluster(cluster: Cluster) -> None:
    """One cluster: its devices, its links by tier, its sources."""
    kinds: dict[tuple[str, str], int] = {}
    for device in cluster.devices:
        key = device.kind or device.role, format_bytes(device.memory_bytes) if device.memory_bytes else "-"
        kinds[key] = kinds.get(key, 0) + 1
    say(f"{cluster.name}: {cluster.workers} workers, {len(cluster.servers)} servers")
    devices = new_table("devices", "number", "memory")
    for (kind, memory), number in kinds.items():
        devices.add_row(kind, str(number), memory)
    tiers = new_table("tier", "links", "line rate", "measured (5-95 %)", "bandwidth", "latency")
    tally = Counter(_link_row(link) for link in cluster.links)
    for (tier, *cells), number in tally.items():
        tiers.add_row(tier, str(number), *cells)
    print_table(devices)
    print_table(tiers)
    for name, curves in cluster.collectives.items():
        say(f"{name.replace('_', '-')} as measured on {', '.join(map(str, curves))} devices")
    say(*cluster.sources)


def _link_row(link: Link) -> tuple[str, ...]:
    share = link.achieved
    return (
        link.tier,
        format_bandwidth(link.line_rate_bytes_per_s or link.bandwidth_bytes_per_s),
        f"{share.median:.0%} ({share.low:.0%}-{share.high:.0%})" if share else "-",
        format_bandwidth(link.bandwidth_bytes_per_s),
        format_time(link.latency_s),
    )


def _speed(join: Join) -> str:
    share = f" {join.achieved.median:.0%}" if join.achieved else ""
    return f"{format_bandwidth(join.wire('').bandwidth_bytes_per_s)}{share}"
