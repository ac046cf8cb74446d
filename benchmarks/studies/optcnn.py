"""Layer-wise parallelism (OptCNN, Jia et al., ICML 2018): search time, VGG-16's degrees, bytes, speed-ups."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby

import numpy as np

from benchmarks.pages.published import GIB, TITLES, profile, table
from partitioners import make_plan
from partitioners._layerwise.elimination import least_sum
from partitioners._layerwise.optcnn import CostTables, cost_tables
from simulator.cluster import Cluster
from simulator.network.catalogue import read_preset
from simulator.plan import Degrees, StepSettings, Synchronisation
from simulator.report.metrics import one_device_s
from simulator.run import step_report, step_seconds
from simulator.taskgraph import Floats

PER_DEVICE = 32
"""The paper's samples per GPU."""
STRATEGIES = {"data": "data", "one weird trick": "owt", "layer-wise": "layerwise"}
SEARCH_S = {"alexnet": 0.02, "vgg16": 0.1, "inception_v3": 0.4}
SENT_GIB = {"vgg16": (4.113, 0.540, 0.334), "inception_v3": (0.709, 0.656, 0.562)}
SPEEDUPS = {"alexnet": (6.1, 12.2), "vgg16": (10.2, 14.8), "inception_v3": (11.2, 15.5)}
"""From 1 to 16 GPUs: the best other strategy, layer-wise."""


def section() -> str:
    return "\n\n".join(
        [
            "## Layer-wise parallelism (OptCNN, ICML 2018)",
            "PipeDream's V100 profiles stand in for the paper's P100, whose per-layer times are not published, and "
            "time is taken as proportional to samples, channels and area. The cluster is the preset `p100-4x4` at its "
            "line rate, 32 samples per device.",
            "Search on 4 devices (its table 3); making the tables of costs is shown apart:",
            _search(),
            _degrees(),
            "GiB per step on 4 devices (its figure 8). The paper's data parallelism is 2 m |w| for m devices and |w| "
            "bytes of parameters, as a parameter server moves them; a ring moves 2 (m - 1) |w|. Its VGG-16 figure for "
            "layer-wise is below 2 m times the convolutions' parameters alone (0.438 GiB), so it must be counted "
            "otherwise. The Inception-v3 profile includes the auxiliary head, 0.012 GiB of parameters more.",
            _sent(),
            "Speed-up from 1 to 16 devices (its section 6). The paper's costs let nothing overlap, and gradients that "
            "are only synchronised after the backward pass come closest to its data parallelism:",
            _speedups(overlap=False),
            "With synchronisation beside the backward pass, the default here, data parallelism has little to lose on "
            "these links unless the fully connected layers outweigh the rest, as in AlexNet:",
            _speedups(overlap=True),
        ]
    )


def _cluster(devices: int, servers: int = 0) -> Cluster:
    """The preset at its line rate, which the paper's costs assume."""
    cluster = read_preset("p100-4x4").build(devices, servers=servers)
    for tier in cluster.tiers:
        cluster = cluster.with_efficiency(tier, 1.0, "as the paper assumes")
    return cluster


def _step(devices: int) -> StepSettings:
    return StepSettings(batch_size=PER_DEVICE * devices)


def _search() -> str:
    rows = []
    for name, published in SEARCH_S.items():
        began = time.perf_counter()
        tables = cost_tables(profile(name), _cluster(4), _step(4))
        tables_end = time.perf_counter()
        least_sum(_nodes(tables), tables.transfer_s)
        ended = time.perf_counter()
        rows.append([TITLES[name], f"{published} s", f"{ended - tables_end:.3f} s", f"{tables_end - began:.2f} s"])
    return table(["network", "published", "ours", "our tables"], rows)


def _nodes(tables: CostTables) -> list[Floats]:
    return [a + b for a, b in zip(tables.compute_s, tables.synchronise_s, strict=True)]


def _degrees() -> str:
    """VGG-16's degrees, ours and the published ones, and what both cost under our tables."""
    tables = cost_tables(profile("vgg16"), _cluster(4), _step(4))
    costs = zip(_nodes(tables), tables.configurations, _published_degrees(), strict=True)
    nodes = [np.where([wanted in (None, d) for d in options], cost, np.inf) for cost, options, wanted in costs]
    published_s, ours = least_sum(nodes, tables.transfer_s)[0], least_sum(_nodes(tables), tables.transfer_s)
    degrees_of_layers = [options[i] for options, i in zip(tables.configurations, ours[1], strict=True)]
    runs = []
    for degrees, positions in groupby(range(len(degrees_of_layers)), key=lambda i: degrees_of_layers[i]):
        members = [profile("vgg16").layers[i] for i in positions]
        runs.append(f"`{members[0].name}` ({members[0].kind}) to `{members[-1].name}` {_letters(degrees)}")
    return (
        "VGG-16 on 4 devices (its table 5). Published: convolution blocks 1 to 4 {n=4}, block 5 {h=2, w=2}, fully "
        f"connected 1 and 2 {{c=4}}, 3 {{c=2}}; under our tables that costs {published_s * 1e3:.2f} ms. Ours costs "
        f"{ours[0] * 1e3:.2f} ms: {'; '.join(runs)}. A split by height and width gains only where a kernel runs better "
        "on larger batches of smaller images, which proportional times cannot show."
    )


def _published_degrees() -> Iterator[Degrees | None]:
    """Table 5 laid over the profile's layers; None for the flattening, which the paper does not list."""
    pools = dense = 0
    for layer in profile("vgg16").layers:
        dense += layer.geometry.mixes_channels and layer.output_shape[1:] == (1, 1)
        if layer.kind == "flatten":
            yield None
        elif dense:
            yield (1, 4 if dense < 3 else 2, 1, 1)
        else:
            yield (4, 1, 1, 1) if pools < 4 else (1, 1, 2, 2)
        pools += layer.geometry.stride != (1, 1)


def _letters(degrees: Degrees) -> str:
    split = [f"{letter}={d}" for letter, d in zip("nchw", degrees, strict=True) if d > 1]
    return "{" + ", ".join(split) + "}"


def _sent() -> str:
    rows = []
    for name, published in SENT_GIB.items():
        for (strategy, registered), theirs in zip(STRATEGIES.items(), published, strict=True):
            plan = make_plan(registered, profile(name), _cluster(4), _step(4))
            served = replace(plan, synchronisation=Synchronisation(collective="ps"))
            ring, ps = (
                step_report(profile(name), cluster, each).communication_bytes.total / GIB
                for cluster, each in ((_cluster(4), plan), (_cluster(4, servers=1), served))
            )
            rows.append([TITLES[name], strategy, f"{theirs:.3f}", f"{ps:.3f}", f"{ring:.3f}"])
    return table(["network", "strategy", "published", "ours, parameter server", "ours, ring"], rows)


def _speedups(*, overlap: bool) -> str:
    rows = []
    for name, (other, published) in SPEEDUPS.items():
        alone_s, cells = one_device_s(profile(name), _cluster(1), PER_DEVICE), []
        for strategy in STRATEGIES.values():
            plan = make_plan(strategy, profile(name), _cluster(16), _step(16))
            plan = replace(plan, synchronisation=Synchronisation(overlap=overlap))
            cells.append(f"{16 * alone_s / step_seconds(profile(name), _cluster(16), plan):.1f}")
        rows.append([TITLES[name], other, published, *cells])
    return table(["network", "published: best other", "published: layer-wise", *STRATEGIES], rows)
