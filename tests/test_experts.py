"""Mixtures of experts: tokens travel to their experts and back, as sharding_cases.json expects."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from statistics import fmean
from typing import Any

import pytest
from counted_volume import communication_volume
from test_closed_forms import star
from test_sharding_cases import Case, of_group

from simulator.collectives import exchange
from simulator.errors import InputError
from simulator.expert_routing import Routing
from simulator.lowering.sharded_model import ShardedModel
from simulator.network.catalogue import read_preset
from simulator.network.collective_times import time_of
from simulator.plan import EXCHANGES, Plan, Sharding, Synchronisation
from simulator.run import run
from simulator.workload import Layer, Profile


def mixture(tokens: int, hidden: int, routing: Routing, element_bytes: int = 2, **fields: Any) -> Profile:
    """A norm, the experts and the residual sum; a token is a sample."""

    def layer(name: str, kind: str, *inputs: str, width: int = 1, times: int = 1, **own: Any) -> Layer:
        return Layer(
            name=name, kind=kind, inputs=inputs, output_shape=(hidden, 1, width), forward_s=1e-3, backward_s=2e-3,
            output_bytes=tokens * hidden * element_bytes * times, **own,
        )  # fmt: skip

    experts = layer("experts", "experts", "norm", width=routing.experts, times=routing.top_k, routing=routing, **fields)
    layers = (layer("norm", "layernorm"), experts, layer("add", "add", "experts"))
    return Profile(model="mixture", device="none", batch_size=tokens, dtype="bfloat16", layers=layers)


def expert_parallel(profile: Profile, n: int, exchange: str = "collectives", replicas: int = 1) -> Plan:
    """Norm and sum by sample over all devices; experts over n, `replicas` times."""
    devices = tuple(range(n * replicas))
    tokens = Sharding(degrees=(n * replicas, 1, 1, 1), devices=devices)
    experts = Sharding(degrees=(replicas, 1, 1, n), devices=devices)
    return Plan(
        model="mixture",
        batch_size=profile.batch_size,
        placements={"norm": tokens, "experts": experts, "add": tokens},
        exchange=exchange,
        synchronisation=Synchronisation(bucket_bytes=0),
    )


@pytest.mark.parametrize("exchange", EXCHANGES)
@pytest.mark.parametrize("case", of_group("experts"))
def test_dispatch_and_combine(case: Case, exchange: str) -> None:
    p, expected = case["parameters"], case["expected"]
    if p["n"] > 8 and exchange == "messages":
        pytest.skip("4,096 messages say no more than 64")
    profile = mixture(p["tokens_over_all_ranks"], p["h"], Routing(experts=p["e"], top_k=p["k"]), p["element_bytes"])
    plan = expert_parallel(profile, p["n"], exchange)
    forward = expected["dispatch_bytes"] + expected["combine_bytes"]
    for volume in (
        communication_volume(ShardedModel(profile, plan), star(p["n"])),
        run(profile, star(p["n"]), plan).report.communication_bytes,
    ):
        assert (volume.forward, volume.backward) == pytest.approx((forward, expected["backward_bytes"]), rel=1e-9)


@pytest.mark.parametrize("case", of_group("experts"))
def test_a_token_is_sent_once_to_a_device(case: Case) -> None:
    p = case["parameters"]
    routing = Routing(experts=p["e"], top_k=p["k"], once_per_device=True)
    profile = mixture(p["tokens_over_all_ranks"], p["h"], routing, p["element_bytes"])
    volume = communication_volume(ShardedModel(profile, expert_parallel(profile, p["n"])), star(p["n"]))
    assert volume.forward == pytest.approx(2 * case["expected"]["dispatch_bytes_once_per_device"], rel=1e-9)


def test_dispatch_is_one_all_to_all_in_each_expert_group() -> None:
    """Four devices in two groups of two, with experts of their own: a group's tokens stay in it."""
    profile = mixture(16, 8, Routing(experts=4, top_k=2), parameter_bytes=4000)
    plan = expert_parallel(profile, 2, replicas=2)
    model = ShardedModel(profile, plan)
    exchanges = model.exchanges(0)
    transfers = [(t.pattern, tuple(exchanges.devices[list(t.devices)])) for t in exchanges.forward.transfers]
    assert transfers == [("all-to-all", (0, 1)), ("all-to-all", (2, 3))]
    assert [(piece.devices, piece.parameter_bytes) for piece in model.replicas] == [((0, 2), 2000), ((1, 3), 2000)]


def test_uneven_loads_take_longer_and_capacity_cuts_them() -> None:
    """Of four experts the first gets 70 % of the pairs; with capacity 1.5 it computes 3/8 of them."""
    uneven = Routing(experts=4, loads=(0.7, 0.1, 0.1, 0.1))
    seconds = {}
    saved = {}
    for name, routing in (
        ("even", Routing(experts=4)),
        ("uneven", uneven),
        ("cut", replace(uneven, capacity=1.5)),
    ):
        profile = mixture(16, 8, routing, saved_bytes=4096)
        model = ShardedModel(profile, expert_parallel(profile, 4))
        seconds[name], saved[name] = model.pass_seconds(1)[0], model.pass_bytes(1)[0]
    whole = 4 * seconds["even"][0]
    assert seconds["uneven"] == pytest.approx([0.7 * whole, *[0.1 * whole] * 3])
    assert seconds["cut"] == pytest.approx([1.5 / 4 * whole, *[0.1 * whole] * 3])
    assert saved["even"] == pytest.approx([1024] * 4)
    assert saved["uneven"] == pytest.approx([0.7 * 4096, *[0.1 * 4096] * 3])


def test_wrong_routings_are_refused() -> None:
    with pytest.raises(InputError, match="top_k is 5: it is 1 to 4, the number of experts"):
        Routing(experts=4, top_k=5)
    with pytest.raises(InputError, match="loads"):
        Routing(experts=2, loads=(0.5, 0.6))
    with pytest.raises(InputError, match="width is 3: it is 2, the number of experts"):
        replace(mixture(16, 8, Routing(experts=2)).layers[1], output_shape=(8, 1, 3))
    profile = mixture(16, 8, Routing(experts=2))
    with pytest.raises(InputError, match="layer 'experts' is split 4 ways by width, but a micro-batch has only 2"):
        run(profile, star(4), expert_parallel(profile, 4))


@pytest.mark.parametrize(("groups", "top_groups"), [(1, 1), (2, 1), (4, 2), (4, 3), (8, 4)])
@pytest.mark.parametrize("hosts", [2, 4, 8])
def test_a_token_crosses_once_to_a_host(groups: int, top_groups: int, hosts: int) -> None:
    """Every choice of groups and of experts among theirs, counted; of pairs, or of visits to devices with one expert
    each, or two."""
    experts, top_k = 16, 2
    routing = Routing(experts=experts, top_k=top_k, groups=groups, top_groups=top_groups, once_per_host=True)
    pairs = [
        pair
        for taken in combinations(range(groups), top_groups)
        for pair in combinations([e for e in range(experts) if e * groups // experts in taken], top_k)
    ]

    def visited(parts: int) -> float:
        return fmean(len({expert * parts // experts for expert in pair}) for pair in pairs)

    assert routing.host_share(hosts, experts) == pytest.approx(visited(hosts) / top_k)
    for devices in (experts, experts // 2):
        once = replace(routing, once_per_device=True)
        assert sum(once.visits(devices)) == pytest.approx(visited(devices))
        assert once.host_share(hosts, devices) == pytest.approx(visited(hosts) / visited(devices))
    assert replace(routing, once_per_host=False).host_share(hosts, experts) == 1


def test_a_dispatch_once_per_host_takes_less_of_the_network() -> None:
    """DeepSeek-V3 on eight nodes: 3.6 of them for eight experts of a token; what moves inside stays."""
    cluster, routing = read_preset("dgx-h100").build(64), Routing(experts=256, top_k=8, groups=8, top_groups=4)
    route, sent_bytes = exchange("all-to-all", range(64), 64e9)
    pairs, once = (
        time_of(cluster, replace(route, routing=each), sent_bytes)
        for each in (routing, replace(routing, once_per_host=True))
    )
    assert pairs and once and pairs == time_of(cluster, route, sent_bytes)
    assert once.work / pairs.work == pytest.approx(replace(routing, once_per_host=True).host_share(8, 64), rel=1e-3)
    within = replace(route, pairs=exchange("all-to-all", range(8), 1e9)[0].pairs)
    assert time_of(cluster, replace(within, routing=replace(routing, once_per_host=True)), 1e6) == time_of(
        cluster, within, 1e6
    )


def test_groups_of_experts_hold_what_a_token_takes() -> None:
    with pytest.raises(InputError, match="groups is 3: it divides the 16 experts"):
        Routing(experts=16, groups=3)
    with pytest.raises(InputError, match="top_groups is 1: it is 1 to 8, the number of groups, and they have 4"):
        Routing(experts=16, top_k=4, groups=8, top_groups=1)
