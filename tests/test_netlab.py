"""The shaped network of namespaces, and ranks launched in it: rates, counters, teardown, bounded failure."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tori import ring

pytest.importorskip("torch", reason="torch is not installed; make test installs it")

from benchmarks.studies import cpu_throttle
from simulator import owned_files
from simulator.cluster import Cluster, Device
from simulator.errors import InputError, RunError
from simulator.network.topologies import Wire, flat_switch, two_tier
from traces.calibrate.link_probe import own_cores
from traces.lab import namespaces
from traces.lab.child_processes import dies_with, usable_cores
from traces.lab.launch import launch
from traces.lab.shaped_network import Lab

ROOT = Path(__file__).resolve().parent.parent
REASON = namespaces.available()
needs_lab = pytest.mark.skipif(REASON is not None, reason=f"no network lab: {REASON}")

RATE = 25e6  # 200 Mbit/s
GOODPUT = 1448 / 1514  # of Ethernet frames of 1500 bytes with TCP timestamps
MESSAGES = 5  # the quickest counts: a shared machine delays some of them
PAIR = flat_switch(2, Wire(bandwidth_bytes_per_s=RATE))
OWNER = f"""
import subprocess, sys, time
sys.path.insert(0, {str(ROOT)!r})
from simulator.network.topologies import Wire, flat_switch
from traces.lab.shaped_network import Lab
with Lab(flat_switch(2, Wire(bandwidth_bytes_per_s=1e6))) as lab:
    inside = subprocess.Popen(lab.command(1, ["sleep", "600"]))
    print(lab.namespace(0), inside.pid, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Lab(PAIR) as made:
        yield made
    assert not namespaces.listed(namespaces.owned_prefix())


@pytest.fixture
def owner() -> Iterator[subprocess.Popen[str]]:
    """Another process that holds a lab with a process in it."""
    with subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


@pytest.mark.alone
@needs_lab
def test_a_message_takes_its_bytes_over_the_rate_and_is_counted(lab: Lab) -> None:
    size = 5_000_000
    before = lab.carried_bytes()
    arguments = {"source": 0, "target": 1, "size": size, "messages": MESSAGES}
    seconds = launch("rank_programs:one_way", 2, lab=lab, arguments=arguments)[1]
    carried = {name: (count - before[name]) / MESSAGES for name, count in lab.carried_bytes().items()}
    assert seconds == pytest.approx(size / (RATE * GOODPUT), rel=0.25)
    assert carried["host0->switch"] == pytest.approx(size, rel=0.05)
    assert carried["switch->host1"] == pytest.approx(size, rel=0.05)
    assert carried["host1->switch"] < 0.05 * size


@pytest.mark.alone
@needs_lab
def test_the_trunk_of_two_tiers_is_shaped_and_counted() -> None:
    intra, inter = Wire(bandwidth_bytes_per_s=125e6, tier="intra"), Wire(bandwidth_bytes_per_s=RATE, tier="inter")
    size = 2_000_000
    with Lab(two_tier(4, 2, intra, inter)) as lab:
        arguments = {"source": 0, "target": 2, "size": size, "messages": MESSAGES}
        seconds = launch("rank_programs:one_way", 4, lab=lab, arguments=arguments)[2]
        carried = {name: count / MESSAGES for name, count in lab.carried_bytes().items()}
    assert seconds == pytest.approx(size / (RATE * GOODPUT), rel=0.25)
    assert carried["node0/switch->core"] == pytest.approx(size, rel=0.05)
    assert carried["core->node1/switch"] == pytest.approx(size, rel=0.05)


@needs_lab
def test_traffic_cannot_leave(lab: Lab) -> None:
    routes = subprocess.run(lab.command(0, ["ip", "route"]), capture_output=True, text=True, check=True).stdout
    assert routes.split() == ["10.77.0.0/24", "dev", "eth0", "proto", "kernel", "scope", "link", "src", "10.77.0.1"]


@needs_lab
def test_an_exception_leaves_nothing_behind() -> None:
    with pytest.raises(ZeroDivisionError), Lab(PAIR) as lab:
        assert len(namespaces.listed(namespaces.owned_prefix())) == 3
        sleeper = subprocess.Popen(lab.command(0, ["sleep", "600"]))
        raise ZeroDivisionError
    assert sleeper.wait(600) != 0
    assert not namespaces.listed(namespaces.owned_prefix())


@needs_lab
def test_a_terminated_owner_tears_its_lab_down(owner: subprocess.Popen[str]) -> None:
    assert owner.stdout is not None
    name = owner.stdout.readline().split()[0]
    assert name in namespaces.listed()
    owner.terminate()
    assert owner.wait(600) == 128 + signal.SIGTERM
    assert name not in namespaces.listed()


@needs_lab
def test_a_killed_owners_lab_is_removed_by_the_next(owner: subprocess.Popen[str]) -> None:
    assert owner.stdout is not None
    name, inside = owner.stdout.readline().split()
    with Lab(PAIR):
        assert name in namespaces.listed(), "a living owner's lab stays"
    owner.kill()
    owner.wait()
    assert name in namespaces.listed()
    with Lab(PAIR):
        assert name not in namespaces.listed()
    assert not Path(f"/proc/{inside}/ns/net").exists()


def test_only_labs_of_ended_processes_of_this_machine_are_ownerless() -> None:
    machine, process, start = owned_files.owner().split("-")
    assert namespaces.owner_lives(f"shardscope-{machine}-{process}-{start}-0-1")
    assert not namespaces.owner_lives(f"shardscope-{machine}-{process}-{int(start) - 1}-0-1")
    assert namespaces.owner_lives(f"shardscope-00000000-{process}-{int(start) - 1}-0-1")
    assert namespaces.owner_lives("shardscope-notes")


def test_ranks_over_loopback() -> None:
    assert launch("rank_programs:total", 2, arguments={"factor": 2.0}) == [[6.0, 1], [6.0, 1]]


def test_ranks_keep_to_their_cores() -> None:
    first = min(os.sched_getaffinity(0))
    assert launch("rank_programs:cores", 2, cores=[[first], [first]], backend="") == [[first], [first]]


@pytest.mark.parametrize(
    "trouble, complaint",
    [
        ("raises", "rank 1 failed with exit code 1 (last task: forward of conv1)"),
        ("refuses", "rank 1 failed with exit code 1 (last task: forward of conv1)\n    the shard is empty"),
        ("killed", "rank 1 was killed by SIGKILL (last task: forward of conv1)"),
    ],
)
def test_a_dying_rank_ends_the_run(trouble: str, complaint: str) -> None:
    with pytest.raises(RunError) as caught:  # without it the others would be said not to end within 600 s
        launch("rank_programs:troubled", 3, arguments={"trouble": trouble}, backend="", timeout_s=600)
    assert str(caught.value).startswith(complaint)
    assert ("ValueError: the shard is empty" in str(caught.value)) == (trouble == "raises")
    assert ("File " in str(caught.value)) == (trouble == "raises")
    assert not _ranks()


@pytest.mark.alone
def test_a_hanging_rank_ends_the_run_in_time() -> None:
    start = time.monotonic()
    with pytest.raises(RunError, match="2 of 2 ranks did not end within 5 s") as caught:
        launch("rank_programs:troubled", 2, arguments={"trouble": "hangs"}, backend="", timeout_s=5)
    assert time.monotonic() - start < 60
    assert "rank 1 (last task: forward of conv1)" in str(caught.value)
    assert "in troubled" in str(caught.value), "the stack says where"
    assert not _ranks()


def test_a_rank_whose_peer_has_left_says_what_it_waited_for() -> None:
    with pytest.raises(RunError, match=r"rank 0 failed with exit code 1 \(last task: message to 0\)"):
        launch("rank_programs:unequal", 2, timeout_s=20)


def _ranks() -> list[str]:
    """Command lines of ranks that this process started and that still run."""
    commands = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"traces.lab.rank" in words and str(os.getpid()).encode() in words:
            commands.append(str(words))
    return commands


@pytest.mark.parametrize(
    "cluster, complaint",
    [
        (ring(3, Wire(bandwidth_bytes_per_s=1e6)), "no tree"),
        (ring(2, Wire(bandwidth_bytes_per_s=1e6)), "joined to one switch"),
        (Cluster(name="one", devices=PAIR.devices, links=PAIR.links[:-1]), "no way back"),
        (Cluster(name="apart", devices=(Device(name="a", host="a"),)), "no tree"),
        (Cluster(name="s", devices=(*PAIR.devices, Device(name="c", host="c")), links=PAIR.links), "no tree"),
    ],
)
def test_what_is_no_tree_of_switches_is_refused(cluster: Cluster, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        Lab(cluster)


def test_more_ranks_than_devices_are_refused() -> None:
    with pytest.raises(InputError, match="the lab has 2 devices, one rank each"):
        launch("rank_programs:cores", 3, lab=Lab(PAIR))


def test_without_root_the_reason_is_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    tools: dict[str, Any] = {"ip": "/sbin/ip", "tc": "/sbin/tc"}
    monkeypatch.setattr(shutil, "which", tools.get)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert namespaces.available() == "making network namespaces needs root: run with sudo"
    tools.pop("tc")
    assert namespaces.available() == "no tc command: install iproute2"
    with pytest.raises(RunError, match="no network lab: no tc command"), Lab(PAIR):
        pass


def test_links_whose_windows_are_beyond_the_kernels_numbers_are_refused() -> None:
    Lab(flat_switch(2, Wire(bandwidth_bytes_per_s=50e9)))
    with pytest.raises(InputError, match=r"^links: bandwidth_bytes_per_s is 5.5e\+10: it is at most 5.369e\+10, whose"):
        Lab(flat_switch(2, Wire(bandwidth_bytes_per_s=55e9)))


def test_what_is_linuxs_alone_says_so_on_other_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    assert namespaces.available() == "network namespaces are Linux's alone, and this is darwin"
    assert cpu_throttle.available() == "control groups are Linux's alone, and this is darwin"
    with pytest.raises(RunError, match="no network lab: network namespaces are Linux's alone"), Lab(PAIR):
        pass
    assert dies_with(os.getppid())
    monkeypatch.delattr(os, "sched_getaffinity")
    assert usable_cores() == list(range(os.cpu_count() or 1))
    assert own_cores()[1] == usable_cores()
