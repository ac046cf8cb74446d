"""What every collective is, and what it turns into."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from simulator.cluster import Cluster
from simulator.errors import require
from simulator.taskgraph import Floats, Route


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveTask:
    """One transfer (with a route) or one computation on a server (with a device) of a collective.

    bytes cross each pair of the route; a computation takes `seconds`. `after`: earlier tasks of this collective that
    must have ended; `needs`: devices whose gradient must be ready; `delivers`: devices that hold the result when it
    ends.
    """

    route: Route | None = None
    bytes: float = 0.0
    seconds: float = 0.0
    device: int = -1
    after: tuple[int, ...] = ()
    needs: tuple[int, ...] = ()
    delivers: tuple[int, ...] = ()


AllReduce = Callable[[Cluster, Sequence[int], float], list[CollectiveTask]]
"""(cluster, group of at least 2 devices, bytes) -> tasks that leave the sum on every member."""
Ends = Callable[[Cluster, Sequence[int], float, Floats, float], Floats]
"""(cluster, group, bytes, when each member begins, seconds that an end takes for each message it begins or gets) ->
when each member has the sum, shape (members,), message by message with nothing else on the links."""
Serving = Callable[[Cluster, Sequence[int], int | None], tuple[int, ...]]
"""(cluster, group of at least 2 devices, how many workers are asked to serve, if they do) -> the devices that serve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """How a group of devices sums a gradient bucket, and where the optimizer runs; one of the first two is set.

    all_reduce: sums among the members, each of which then updates its own copy of the parameters. serving: which
    devices are parameter servers, to whom members push gradients and from whom they pull updated parameters.
    needs_server: the servers are devices of the cluster with that role, so it needs one. ends: where messages can be
    counted.
    """

    all_reduce: AllReduce | None = None
    ends: Ends | None = None
    serving: Serving | None = None
    needs_server: bool = False

    def __post_init__(self) -> None:
        rule = "a collective sums by all_reduce or has devices serving, one of the two"
        require((self.all_reduce is None) != (self.serving is None), "collective", self, rule)

    @property
    def updates_on_server(self) -> bool:
        """Whether servers run the optimizer and hold its state, instead of every member."""
        return self.serving is not None

    def servers(self, cluster: Cluster, group: Sequence[int], serving_workers: int | None = None) -> tuple[int, ...]:
        """The devices that update the parameters of `group`, none where each member does.

        serving_workers: how many members serve, in a collective where they do (None: one per host). Raises InputError
        where there are none to serve.
        """
        return self.serving(cluster, group, serving_workers) if self.serving else ()

    def tasks(
        self,
        cluster: Cluster,
        group: Sequence[int],
        size_bytes: float,
        update_s: float = 0.0,
        serving_workers: int | None = None,
    ) -> list[CollectiveTask]:
        """The tasks of summing `size_bytes` over `group`, of at least 2 devices; see `servers`.

        update_s: seconds of the optimizer at speed 1, part of the tasks only where servers run it.
        """
        if self.all_reduce:
            return self.all_reduce(cluster, group, size_bytes)
        return push_and_pull(cluster, group, self.servers(cluster, group, serving_workers), size_bytes, update_s)


def push_and_pull(
    cluster: Cluster, group: Sequence[int], servers: Sequence[int], size_bytes: float, update_s: float
) -> list[CollectiveTask]:
    """Push gradients to K servers, 1/K of the bytes to each, update there, in update_s / K at speed 1, pull back.

    A server begins when every push has come. What a member that serves has computed itself does not travel.
    """
    part = size_bytes / len(servers)
    tasks: list[CollectiveTask] = []
    for server in servers:
        others = [device for device in group if device != server]
        own = (server,) if server in group else ()
        first = len(tasks)
        tasks += [CollectiveTask(route=Route(((device, server),)), bytes=part, needs=(device,)) for device in others]
        pushes = tuple(range(first, len(tasks)))
        seconds = update_s / len(servers) / cluster.devices[server].speed
        tasks.append(CollectiveTask(device=server, seconds=seconds, after=pushes, needs=own, delivers=own))
        update = (len(tasks) - 1,)
        tasks += [
            CollectiveTask(route=Route(((server, device),)), bytes=part, after=update, delivers=(device,))
            for device in others
        ]
    return tasks


def both_ways(pairs: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """`pairs`, each followed by itself turned round."""
    return tuple(pair for a, b in pairs for pair in ((a, b), (b, a)))
