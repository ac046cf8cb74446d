"""The runs of a validation: which network, on which lab, split how, and run by what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from simulator.cluster import Cluster
from simulator.network.topologies import Wire, flat_switch, two_tier
from simulator.runtime import TORCH_PIPELINING, Runtime

Runner = Literal["ddp", "pipelining", "execute"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LabNetwork:
    """The lab of a run: `ranks` hosts on one switch at `mbit` Mbit/s each way.

    With `trunk_mbit` they are in nodes of two, whose trunks have that rate; with `slow_mbit` the last host's link has
    that one. `servers` are further hosts, for parameter servers. shaping: as a user shapes it, "tbf" or "htb" and
    the burst in microseconds of the rate, such as "tbf-1000"; None is the lab's own way. Hosts are a core each, to
    which the rank is pinned, but where a user shapes them: ranks then run where they like.
    """

    ranks: int
    mbit: int
    trunk_mbit: int | None = None
    servers: int = 0
    slow_mbit: int | None = None
    shaping: str | None = None

    @property
    def name(self) -> str:
        """Ranks x Mbit/s, of trunks too where there are some, and the servers: "4x1000-200", "2x200-1ps"."""
        tiers = f"{self.mbit}" if self.trunk_mbit is None else f"{self.mbit}-{self.trunk_mbit}"
        slow = "" if self.slow_mbit is None else f"-slow{self.slow_mbit}"
        shaping = "" if self.shaping is None else f"-{self.shaping}"
        return f"{self.ranks}x{tiers}{slow}{shaping}" + (f"-{self.servers}ps" if self.servers else "")

    def cluster(self, cores: Sequence[int]) -> Cluster:
        """The nominal cluster; rank r is pinned to core r modulo their number, so ranks on one core share it."""
        wire = Wire(bandwidth_bytes_per_s=self.mbit * 1e6 / 8)
        if self.trunk_mbit is None:
            made = flat_switch(self.ranks, wire, servers=self.servers, name=f"lab-{self.name}")
        else:
            trunk = Wire(bandwidth_bytes_per_s=self.trunk_mbit * 1e6 / 8, tier="trunk")
            made = two_tier(self.ranks, 2, wire, trunk, servers=self.servers, name=f"lab-{self.name}")
        if self.slow_mbit is not None:
            last, slow_bytes_per_s = made.devices[-1].name, self.slow_mbit * 1e6 / 8
            slowed = (
                replace(link, tier="slow", bandwidth_bytes_per_s=slow_bytes_per_s)
                if last in (link.source, link.target)
                else link
                for link in made.links
            )
            made = replace(made, links=tuple(slowed))
        if self.shaping is not None:
            return made
        hosts = [f"core{core[0]}" for core in pinning(len(made.devices), cores)]
        devices = tuple(replace(device, host=host) for device, host in zip(made.devices, hosts, strict=True))
        return replace(made, devices=devices, host_cores=dict.fromkeys(sorted(set(hosts)), 1.0))

    def pinning(self, cores: Sequence[int]) -> list[list[int]]:
        """The cores of each rank and server, as for `launch`; empty where they run where they like."""
        return pinning(self.ranks + self.servers, cores) if self.shaping is None else []


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One run to predict and to make: `strategy` with its `options` for one network, batch and lab.

    via: what runs it. straggler: a rank that shares its core with a process that never rests. first_bucket_bytes: as
    in Synchronisation. defaults: DistributedDataParallel is told nothing about copies and buffers, as by most users.
    static_graph: it is told that every step is alike.
    """

    model: str
    network: LabNetwork
    strategy: str
    via: Runner
    batch_size: int = 32
    options: Mapping[str, str | int | float] = field(default_factory=dict)
    collective: str = "ring"
    bucket_bytes: int = 1 << 20
    first_bucket_bytes: int | None = None
    straggler: int | None = None
    defaults: bool = False
    static_graph: bool = False

    @property
    def name(self) -> str:
        """Unique among the runs of a suite."""
        model = self.model.rpartition(":")[2]
        parts = [model, self.via, self.strategy, *(str(value) for value in self.options.values())]
        parts += [self.collective] if self.collective != "ring" else []
        first = "" if self.first_bucket_bytes is None else f"{self.first_bucket_bytes >> 20}-"
        parts += [f"{first}{self.bucket_bytes >> 20}MiB"] if self.via == "ddp" else []
        parts += ["static"] if self.static_graph else []
        parts += [f"straggler{self.straggler}"] if self.straggler is not None else []
        return "-".join([*parts, self.network.name])

    @property
    def needs_overhead(self) -> bool:
        """Whether what runs it adds more to the layers' own work than can be left out."""
        return self.via != "ddp" or self.defaults

    def pinning(self, cores: Sequence[int]) -> list[list[int]]:
        """The cores of each rank as for `launch`: a straggler's are always its own."""
        if self.straggler is None:
            return self.network.pinning(cores)
        return pinning(self.network.ranks + self.network.servers, cores)

    def with_straggler(self, cluster: Cluster) -> Cluster:
        """`cluster` in which a straggler has half its speed, as two processes share a core evenly."""
        return with_speeds(cluster, [0.5 if i == self.straggler else 1.0 for i in range(len(cluster.devices))])


def with_habits_of(via: Runner, runtime: Runtime) -> Runtime:
    """A measured runtime with the habits of what makes a run; our executor has none of torch's pipelines."""
    if via == "execute":
        return replace(runtime, rendezvous=False, gradient_scaling=0.0, pass_overhead_s=0.0, full_schedules=())
    known = TORCH_PIPELINING
    return replace(runtime, rendezvous=known.rendezvous, gradient_scaling=known.gradient_scaling)


def with_speeds(cluster: Cluster, speeds: Sequence[float]) -> Cluster:
    """The cluster with the speed of each device times that of `speeds`."""
    pairs = zip(cluster.devices, speeds, strict=True)
    return replace(cluster, devices=tuple(replace(device, speed=device.speed * speed) for device, speed in pairs))


def pinning(ranks: int, cores: Sequence[int]) -> list[list[int]]:
    """The one core of each rank."""
    return [[cores[rank % len(cores)]] for rank in range(ranks)]


def local() -> tuple[Case, ...]:
    """The runs of `shardscope validate`: small networks on one machine with two or more cores."""
    return (*_ddp(), *_pipelines(), *_executed())


def _ddp() -> Iterator[Case]:
    for mbit in (100, 200, 500, 1000, 2000):
        yield Case(model="vgg_small", network=LabNetwork(ranks=2, mbit=mbit), strategy="data", via="ddp")
    for model, mbit in (("resnet_small", 100), ("resnet_small", 1000), ("alexnet_small", 200), ("alexnet_small", 1000)):
        yield Case(model=model, network=LabNetwork(ranks=2, mbit=mbit), strategy="data", via="ddp")
    whole = 25 << 20
    for ranks, mbit in ((2, 200), (4, 200), (4, 1000)):
        network = LabNetwork(ranks=ranks, mbit=mbit)
        yield Case(model="vgg_small", network=network, strategy="data", via="ddp", bucket_bytes=whole)
    for model, ranks, mbit in (("vgg_small", 4, 1000), ("resnet_small", 4, 200), ("vgg_small", 8, 1000)):
        yield Case(model=model, network=LabNetwork(ranks=ranks, mbit=mbit), strategy="data", via="ddp")
    tiers = LabNetwork(ranks=4, mbit=1000, trunk_mbit=200)
    yield Case(model="vgg_small", network=tiers, strategy="data", via="ddp")
    for mbit in (200, 1000):
        network = LabNetwork(ranks=2, mbit=mbit)
        yield Case(model="vgg_small", network=network, strategy="data", via="ddp", straggler=1)


def _pipelines() -> Iterator[Case]:
    for schedule in ("gpipe", "1f1b", "interleaved", "zero-bubble"):
        for model, ranks, mbit in (
            ("vgg_small", 2, 200),
            ("vgg_small", 2, 1000),
            ("resnet_small", 2, 1000),
            ("alexnet_small", 2, 200),
            ("vgg_small", 4, 1000),
        ):
            options: dict[str, str | int | float] = {"schedule": schedule, "microbatches": 4}
            network = LabNetwork(ranks=ranks, mbit=mbit)
            yield Case(model=model, network=network, strategy="pipeline", via="pipelining", options=options)


def _executed() -> Iterator[Case]:
    for strategy, slowest in (("owt", 200), ("layerwise", 1000), ("hypergraph", 1000)):  # below, one device is best
        for model, mbit in (("vgg_small", slowest), ("vgg_small", 2000), ("alexnet_small", slowest)):
            yield Case(model=model, network=LabNetwork(ranks=2, mbit=mbit), strategy=strategy, via="execute")
    for mbit in (200, 1000):
        served = LabNetwork(ranks=2, mbit=mbit, servers=1)
        yield Case(model="vgg_small", network=served, strategy="data", via="execute", collective="ps")
    two = LabNetwork(ranks=2, mbit=200)
    yield Case(model="vgg_small", network=two, strategy="data", via="execute", collective="ps-workers")
    yield Case(model="vgg_small", network=two, strategy="data", via="execute")
