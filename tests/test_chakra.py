"""Chakra's execution traces of plans, read back by a decoder of their own, which also reads MLCommons' fixture."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from simulator import cli
from simulator.cluster import Cluster
from simulator.errors import InputError
from simulator.exports.chakra import ChakraTraces
from simulator.files import read_profile
from simulator.language_models.modelled_profile import read_profile_or_card
from simulator.network import catalogue
from simulator.network.collective_times import members
from simulator.plan import Plan, StepSettings
from simulator.run import step_report
from simulator.runtime import IDEAL
from simulator.workload import Profile

TYPES = {4: "compute", 5: "send", 6: "receive", 7: "collective"}
"""NodeType of schema/protobuf/et_def.proto."""
SUMS = {0: "all-reduce", 2: "all-gather", 5: "broadcast", 6: "all-to-all", 7: "reduce-scatter"}
"""CollectiveCommType."""


@dataclass
class Decoded:
    """A node, fields by the schema's names."""

    id: int = 0
    name: str = ""
    type: str = ""
    data_deps: list[int] = field(default_factory=list)
    duration_micros: int = 0
    attr: dict[str, int | str] = field(default_factory=dict)


def number_at(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[at]
        value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
        if byte < 128:
            return value, at


def fields(content: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(content):
        key, at = number_at(content, at)
        if key & 7 == 0:
            value, at = number_at(content, at)
            yield key >> 3, value
        else:
            size, at = number_at(content, at) if key & 7 == 2 else ({1: 8, 5: 4}[key & 7], at)
            yield key >> 3, content[at : at + size]
            at += size


def messages(content: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(content):
        size, at = number_at(content, at)
        yield content[at : at + size]
        at += size


def nodes(content: bytes) -> list[Decoded]:
    """All messages but the first, which is about the trace."""
    decoded = []
    for message in list(messages(content))[1:]:
        node = Decoded()
        for number, value in fields(message):
            if isinstance(value, int):
                name = {1: "id", 3: "type", 7: "duration_micros"}.get(number)
                if name:
                    setattr(node, name, TYPES[value] if name == "type" else value)
            elif number == 2:
                node.name = value.decode()
            elif number == 5:
                at = 0
                while at < len(value):
                    before, at = number_at(value, at)
                    node.data_deps.append(before)
            elif number == 10:
                (_, key), (_, content_of) = [*fields(value)][:2]
                assert isinstance(key, bytes)
                node.attr[key.decode()] = content_of.decode() if isinstance(content_of, bytes) else content_of
        decoded.append(node)
    return decoded


def test_the_decoder_reads_the_fixture_of_mlcommons(shared_data: Path) -> None:
    """So it knows the schema: 3,643 nodes of computing and 21 collectives, 7 of them with a type and a size."""
    with tarfile.open(shared_data / "chakra" / "feeder_tests_trace.tar.gz") as packed:
        name = next(name for name in packed.getnames() if name.endswith("chakra.0.et"))
        content = packed.extractfile(name)
        assert content is not None
        fixture = nodes(content.read())
    assert [sum(node.type == kind for node in fixture) for kind in ("compute", "collective")] == [3643, 21]
    sums = [node for node in fixture if "comm_type" in node.attr]
    assert {SUMS[int(node.attr["comm_type"])] for node in sums} == {"all-reduce", "broadcast"} and len(sums) == 7


def plan_of(profile: Profile, cluster: Cluster, strategy: str, **settings: object) -> Plan:
    import partitioners

    step = {name: settings.pop(name) for name in ("batch_size", "microbatches", "schedule") if name in settings}
    step.setdefault("batch_size", 2 * cluster.workers)
    return partitioners.make_plan(strategy, profile, cluster, StepSettings(**step), **settings)  # type: ignore[arg-type]


CASES = {
    "data": ("vgg16", {}),
    "pipeline": ("vgg16", {"microbatches": 4, "schedule": "1f1b"}),
    "fsdp": ("llama3-1b", {}),
    "megatron": ("llama3-1b", {"tensor": 2, "pipeline": 2, "microbatches": 4, "schedule": "1f1b"}),
}


@pytest.fixture(name="case", params=CASES)
def read_back(request: pytest.FixtureRequest) -> tuple[Profile, Cluster, Plan, list[list[Decoded]], ChakraTraces]:
    name, settings = CASES[request.param]
    cluster = catalogue.read_cluster("dgx-h100", devices=8)
    profile = read_profile_or_card(name, cluster) if name.startswith("llama") else read_profile(name)
    plan = plan_of(profile, cluster, request.param, **settings)
    traces = ChakraTraces.of(profile, cluster, plan, IDEAL)
    return profile, cluster, plan, [nodes(traces.rank(rank)) for rank in range(8)], traces


def test_ranks_compute_what_the_step_does(
    case: tuple[Profile, Cluster, Plan, list[list[Decoded]], ChakraTraces],
) -> None:
    """Seconds of computing to a microsecond, and nobody waits for what comes later."""
    profile, cluster, plan, ranks, _ = case
    report = step_report(profile, cluster, plan)
    for rank, of in enumerate(ranks):
        computed_us = sum(node.duration_micros for node in of if node.type == "compute")
        assert computed_us == pytest.approx(1e6 * report.devices[rank].compute_s, abs=1.0)
        assert [node.id for node in of] == list(range(len(of)))
        assert all(before < node.id for node in of for before in node.data_deps)


def test_ranks_meet(case: tuple[Profile, Cluster, Plan, list[list[Decoded]], ChakraTraces]) -> None:
    """Each message has both ends; members of a group run the same collectives of it, in one order."""
    *_, ranks, traces = case
    ends = {
        kind: sorted(
            (node.attr["comm_src"], node.attr["comm_dst"], node.attr["comm_tag"], node.attr["comm_size"])
            for of in ranks
            for node in of
            if node.type == kind
        )
        for kind in ("send", "receive")
    }
    assert ends["send"] == ends["receive"]
    for group, name in traces.groups.items():
        orders = {
            tuple((n.attr["comm_type"], n.attr["comm_size"]) for n in ranks[rank] if n.attr.get("pg_name") == name)
            for rank in group
        }
        assert len(orders) == 1 and orders != {()}
    for route in traces.graph.routes:
        if route.collective:
            sizes = {len(group) for group in traces.groups if {*group} <= {*route.devices}}
            assert len(members(route)) in sizes


def test_bytes_are_those_of_the_report(case: tuple[Profile, Cluster, Plan, list[list[Decoded]], ChakraTraces]) -> None:
    """What ranks receive by each collective's own formula adds up to the communication volume."""
    profile, cluster, plan, ranks, traces = case
    sizes = {name: len(group) for group, name in traces.groups.items()}
    received = 0.0
    for of in ranks:
        for node in of:
            size = float(node.attr.get("comm_size", 0))
            if node.type == "receive":
                received += size
            elif node.type == "collective":
                n = sizes[str(node.attr["pg_name"])]
                shares = {"all-reduce": 2 / n, "all-gather": 1.0, "reduce-scatter": 1 / n, "all-to-all": 1 / n}
                received += size * shares[SUMS[int(node.attr["comm_type"])]] * (n - 1)
    total = step_report(profile, cluster, plan).communication_bytes.total
    assert received == pytest.approx(total, rel=1e-6)


def test_all_reduces_of_data_parallelism_by_hand() -> None:
    """Gradients of each parameter are summed once by all: the sizes add up to the parameters."""
    cluster, profile = catalogue.read_cluster("dgx-h100", devices=8), read_profile("vgg16")
    traces = ChakraTraces.of(profile, cluster, plan_of(profile, cluster, "data"), IDEAL)
    sums = [node for node in nodes(traces.rank(5)) if node.type == "collective"]
    assert {node.attr["comm_type"] for node in sums} == {0} and traces.groups == {tuple(range(8)): "1"}
    size = sum(int(node.attr["comm_size"]) for node in sums)
    assert size == pytest.approx(sum(layer.parameter_bytes for layer in profile.layers), rel=1e-6)


def test_the_command_writes_the_ranks_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = [
        "partition",
        "vgg16",
        "--cluster",
        "dgx-h100",
        "--devices",
        "64",
        "--strategy",
        "data",
        "--output",
        "p.json",
    ]
    assert cli.main(made) == 0
    assert cli.main(["export", "p.json", "--to", "chakra", "--output", "out", "--ranks", "8..9"]) == 0
    assert sorted(path.name for path in Path("out").iterdir()) == ["comm_groups.json", "plan.8.et", "plan.9.et"]
    assert json.loads(Path("out/comm_groups.json").read_text()) == {"1": list(range(64))}
    assert len(nodes(Path("out/plan.8.et").read_bytes())) > 30


def test_what_the_format_lacks_is_refused() -> None:
    cluster, profile = catalogue.read_cluster("dgx-h100", devices=8), read_profile("vgg16")
    plan = plan_of(profile, cluster, "data")
    tree = replace(plan, synchronisation=replace(plan.synchronisation, collective="tree"))
    with pytest.raises(InputError, match="Chakra has nodes for"):
        ChakraTraces.of(profile, cluster, tree, IDEAL)
