"""Which strategy reaches an accuracy first on which interconnect, simulated: every strategy at its own best batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf

import partitioners
from simulator.cluster import Cluster
from simulator.convergence.curves import Curves, Regime
from simulator.convergence.time_to_accuracy import cost_to_accuracy, regime_of
from simulator.errors import InputError
from simulator.lowering.sharded_model import ShardedModel
from simulator.network.topologies import Wire, flat_switch
from simulator.plan import Plan, Synchronisation, split_settings
from simulator.run import run
from simulator.studies.asynchronous import run_asynchronously
from simulator.studies.scaling import replicated
from simulator.workload import Profile

DEVICES = 4
LATENCY_S = 25e-6
BATCHES = (16, 32, 64, 128, 256)
RATES_BIT = {"10 Mbit/s": 1e7, "100 Mbit/s": 1e8, "1 Gbit/s": 1e9, "10 Gbit/s": 1e10, "100 Gbit/s": 1e11}


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """A strategy at the batch with which it reaches the target soonest: median, low and high seconds."""

    strategy: str
    rate: str
    batch_size: int
    median_s: float
    low_s: float
    high_s: float


Trained = tuple[Regime, float]
"""The regime of a plan, and its samples per second."""


def one_device(profile: Profile, cluster: Cluster, batch_size: int) -> Trained:
    return _run(profile, cluster, replicated(profile, 1, batch_size, Synchronisation()))


def data(profile: Profile, cluster: Cluster, batch_size: int, collective: str = "ring") -> Trained:
    buckets = Synchronisation(collective=collective, bucket_bytes=1 << 18)
    return _run(profile, cluster, _plan("data", profile, cluster, batch_size, synchronisation=buckets))


def server(profile: Profile, cluster: Cluster, batch_size: int) -> Trained:
    return data(profile, cluster, batch_size, "ps")


def asynchronous(profile: Profile, cluster: Cluster, batch_size: int) -> Trained:
    """Every worker has a batch of its own, and its gradients are as many updates old as there are other workers."""
    buckets = Synchronisation(collective="ps", bucket_bytes=1 << 18)
    plan = _plan("data", profile, cluster, batch_size * cluster.workers, synchronisation=buckets)
    regime = Regime(batch_size=batch_size, method="asynchronous", staleness=cluster.workers - 1)
    return regime, run_asynchronously(profile, cluster, plan, staleness=None).samples_per_s


def pipeline(profile: Profile, cluster: Cluster, batch_size: int) -> Trained:
    return _run(
        profile, cluster, _plan("pipeline", profile, cluster, batch_size, schedule="1f1b", microbatches=4, judged=False)
    )


def pipedream(profile: Profile, cluster: Cluster, batch_size: int) -> Trained:
    """Without a flush: 16 mini-batches of `batch_size` in a row, each an update."""
    plan = _plan("pipeline", profile, cluster, 16 * batch_size, schedule="pipedream", microbatches=16, judged=False)
    return _run(profile, cluster, plan)


def layerwise(profile: Profile, cluster: Cluster, batch_size: int) -> Trained:
    return _run(profile, cluster, _plan("layerwise", profile, cluster, batch_size))


def hypergraph(profile: Profile, cluster: Cluster, batch_size: int) -> Trained:
    """As users get it: the best of KaHyPar's cuts and of the other strategies."""
    return _run(profile, cluster, _plan("hypergraph", profile, cluster, batch_size, effort=0.3))


def cut(profile: Profile, cluster: Cluster, batch_size: int) -> Trained:
    """The best of KaHyPar's cuts alone."""
    return _run(profile, cluster, _plan("hypergraph", profile, cluster, batch_size, others=False, effort=0.3))


STRATEGIES: dict[str, Callable[[Profile, Cluster, int], Trained]] = {
    "one device": one_device,
    "data, ring": data,
    "data, server": server,
    "asynchronous": asynchronous,
    "pipeline": pipeline,
    "PipeDream": pipedream,
    "layerwise": layerwise,
    "hypergraph's cut": cut,
    "hypergraph": hypergraph,
}


def compared(profile: Profile, curves: Curves, target: float, batches: Sequence[int] = BATCHES) -> Iterator[Best]:
    """Every strategy on every interconnect, at the best of `batches`; one that never arrives is left out."""
    for rate, bits in RATES_BIT.items():
        wire = Wire(bandwidth_bytes_per_s=bits / 8, latency_s=LATENCY_S)
        cluster = flat_switch(DEVICES, wire, servers=1, name=rate)
        for name, strategy in STRATEGIES.items():
            reached = [_reached(strategy, profile, cluster, curves, target, batch) for batch in batches]
            best = min(reached, key=lambda entry: entry[1][0])
            if best[1][0] < inf:
                median, low, high = best[1]
                yield Best(strategy=name, rate=rate, batch_size=best[0], median_s=median, low_s=low, high_s=high)


def _reached(
    strategy: Callable[[Profile, Cluster, int], Trained],
    profile: Profile,
    cluster: Cluster,
    curves: Curves,
    target: float,
    batch_size: int,
) -> tuple[int, tuple[float, float, float]]:
    """The batch and seconds to the target; infinite where no such plan exists, as a split finer than the batch."""
    try:
        regime, speed = strategy(profile, cluster, batch_size)
    except InputError:
        return batch_size, (inf, inf, inf)
    seconds = cost_to_accuracy(curves, target, regime, cluster, speed).seconds
    return batch_size, (seconds.median, seconds.low, seconds.high)


def _plan(name: str, profile: Profile, cluster: Cluster, batch_size: int, **options: object) -> Plan:
    step, own = split_settings({"batch_size": batch_size, **options})
    return partitioners.make_plan(name, profile, cluster, step, **own)


def _run(profile: Profile, cluster: Cluster, plan: Plan) -> Trained:
    return regime_of(ShardedModel(profile, plan)), run(profile, cluster, plan).report.samples_per_s
