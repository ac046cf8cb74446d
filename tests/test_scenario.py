"""A job whose devices change: every number of its account worked out by hand, on a network of whole seconds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import laws
import pytest
from conftest import ROOT
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import planned
from small_networks import BATCH, layer, network, switched

from simulator import cli
from simulator.cluster import Cluster
from simulator.curve import Curve
from simulator.elastic.job import simulate_job
from simulator.elastic.job_account import Account
from simulator.elastic.reconfiguration import Overheads
from simulator.elastic.scenario import Event, Scenario, read_scenario
from simulator.errors import InputError, ShardscopeError
from simulator.network.topologies import select
from simulator.plan import Plan, Sharding
from simulator.run import step_report

PROFILE = network(layer("a", seconds=8.0, parameter_bytes=10**6))
"""8 s a step on one device; gradients of 1 MB, at 1 TB/s nothing next to them."""
CLUSTER = switched([1.0] * 8, bandwidth_bytes_per_s=1e12)
OVERHEADS = Overheads(
    stop_s=1.0,
    launch_s=2.0,
    framework_s=3.0,
    leave_s={1: 0.0},
    group_s={1: 0.5, 2: 1.0, 4: 2.0},
    checkpoint_write=Curve(points=((1.0, 4.0), (1e9, 4.0))),
    checkpoint_read=Curve(points=((1.0, 5.0), (1e9, 5.0))),
    detect_s=6.0,
)


def plan_of(cluster: Cluster, old: Plan | None = None) -> Plan:
    return planned("data", PROFILE, cluster, batch_size=BATCH)


def scenario(*events: Event, **fields: Any) -> Scenario:
    written: dict[str, Any] = {"start": ("d0",), "duration": "100s", "events": events, **fields}
    return Scenario(profile="-", cluster="-", overheads="-", **written)


def simulated(*events: Event, policy: str = "", **fields: Any) -> Account:
    return simulate_job(scenario(*events, **fields), PROFILE, CLUSTER, OVERHEADS, plan_of, policy)


JOIN = Event(at="20s", event="join", devices=("d1",))


def test_without_events_it_is_whole_steps() -> None:
    assert simulated().samples == 100 // 8 * BATCH and simulated().lost_s == 0


def test_a_join_under_restart() -> None:
    """Step 3 ends at 24 s; write 4 + stop 1 + launch 2 + framework 3 + groups 1 + read 5 = 16 s; then steps of 4 s."""
    account = simulated(JOIN, policy="restart", duration="101s")
    (incident,) = account.incidents
    assert list(incident.parts_s.values()) == pytest.approx([4, 1, 2, 3, 1, 5]) and incident.lost_s == pytest.approx(16)
    assert account.samples == (3 + (101 - 24 - 16) // 4) * BATCH
    assert account.repeated_samples == account.lost_samples == 0


def test_a_join_under_live_trains_on_while_the_new_device_starts() -> None:
    """It is ready at 25 s, step 4 ends at 32 s; groups take 1 s and 2 MB at 1 TB/s nothing."""
    account = simulated(JOIN)
    (incident,) = account.incidents
    assert incident.beside_s == {"launch": 2, "framework": 3}
    assert incident.lost_s == pytest.approx(1, abs=1e-4) and incident.moved_bytes == 2e6
    assert account.samples == (4 + (100 - 33) // 4) * BATCH


def test_leaving_with_notice_shrinks() -> None:
    """Two devices: step 6 ends at 24 s, groups of one 0.5 s, then steps of 8 s."""
    account = simulated(Event(at="21s", event="leave", devices=("d1",)), start=("d0", "d1"))
    assert account.incidents[0].policy == "shrink" and account.lost_s == pytest.approx(0.5)
    assert account.samples == (6 + int(75.5 // 8)) * BATCH


def test_notice_that_is_too_short_is_a_device_that_vanishes() -> None:
    account = simulated(Event(at="21s", event="leave", devices=("d1",), notice="2s"), start=("d0", "d1"))
    assert account.incidents[0].policy == "recover" and account.incidents[0].lost_step_s == pytest.approx(3, abs=1e-4)


@pytest.mark.parametrize("policy, lost_s, repeated", [("live", 2 + 6 + 0.5, 0), ("restart", 2 + 17.5 + 8 * 2, 2)])
def test_vanishing_costs_the_step_or_goes_back_to_the_checkpoint(policy: str, lost_s: float, repeated: int) -> None:
    """The checkpoint that was due at 10 s is written from 12 s to 16 s; two steps of 4 s follow, then 2 s of a third.

    A restart detects 6 + stops 1 + launches 2 + framework 3 + groups 0.5 + reads 5, and does two steps again at 8 s.
    """
    event = Event(at="26s", event="vanish", devices=("d1",))
    account = simulated(event, policy=policy, start=("d0", "d1"), checkpoint_every="10s", duration="40s")
    (incident,) = account.incidents
    assert incident.lost_s == pytest.approx(lost_s)
    assert account.lost_samples == BATCH and account.repeated_samples == repeated * BATCH


def test_a_piece_that_only_the_vanished_device_held_comes_from_the_checkpoint() -> None:
    profile = network(layer("a", seconds=4.0), layer("b", "a", seconds=4.0, parameter_bytes=10**6))
    whole = Plan(model="small", batch_size=BATCH, placements={n: Sharding(devices=(0,)) for n in "ab"})
    apart = replace(whole, placements={"a": Sharding(devices=(0,)), "b": Sharding(devices=(1,))})
    account = simulate_job(
        scenario(Event(at="30s", event="vanish", devices=("d1",)), start=("d0", "d1")),
        profile, CLUSTER, OVERHEADS, lambda cluster, _: apart if cluster.workers == 2 else whole,
    )  # fmt: skip
    assert account.incidents[0].parts_s == pytest.approx(
        {"detect": 6, "leave groups": 0, "groups": 0.5, "read checkpoint": 5}
    )
    assert account.repeated_samples == 3 * BATCH, "no checkpoint was written: back to the start"


def test_slow_devices_and_narrow_links_change_the_step() -> None:
    events = (
        Event(at="16s", event="slow", devices=("d0",), to=0.5),
        Event(at="48s", event="slow", devices=("d0",), to=1.0),
        Event(at="56s", event="narrow", tier="link", to=1e-6),
    )
    rates = [incident.samples_per_s for incident in simulated(*events).incidents]
    assert rates == pytest.approx([0.5, 1.0, 1.0]), "one device sends nothing"
    both = simulated(events[2], start=("d0", "d1")).incidents[0]
    assert both.samples_per_s == pytest.approx(BATCH / (4 + 1.0), rel=1e-3), "1 MB at 1 MB/s, both ways in half"


def test_nobody_left_waits_for_the_next_to_join() -> None:
    """It leaves at 16 s with a checkpoint (4 s); d1 comes at 50 s: launch 2 + framework 3 + groups 0.5 + read 5."""
    account = simulated(Event(at="16s", event="leave", devices=("d0",)), Event(at="50s", event="join", devices=("d1",)))
    assert account.spent_s("idle") == pytest.approx(30)
    assert [incident.policy for incident in account.incidents] == ["suspend", "resume"]
    assert account.samples == (2 + int((100 - 60.5) // 8)) * BATCH


def test_devices_on_which_the_step_does_not_fit_are_idle() -> None:
    """Two devices hold half the activations each."""
    wide = network(layer("a", seconds=8.0, parameter_bytes=10**6, shape=(8, 400, 400)))
    needed = step_report(wide, select(CLUSTER, (0,)), plan_of(select(CLUSTER, (0,)))).peak_memory_bytes
    small = CLUSTER.with_memory(int(needed) - 1)
    events = (JOIN, Event(at="60s", event="vanish", devices=("d1",)))
    account = simulate_job(scenario(*events), wide, small, OVERHEADS, plan_of)
    whys = [(segment.start_s, segment.what, segment.devices) for segment in account.segments if segment.why]
    assert whys == [(0, "idle", 1), (20, "idle", 1), (pytest.approx(66.5), "idle", 1)], "it joins at 25 s, groups 1 s"
    assert "does not fit: d0 needs" in account.segments[0].why
    assert account.samples == (60 - 26) // 4 * BATCH and account.spent_s("idle") == pytest.approx(25 + 100 - 66.5)
    assert [incident.samples_per_s for incident in account.incidents] == [pytest.approx(BATCH / 4), 0]


def test_dollars_are_paid_from_joining_to_leaving() -> None:
    devices = tuple(replace(device, dollars_per_hour=3600.0) for device in CLUSTER.devices)
    cluster = replace(CLUSTER, devices=devices)
    account = simulate_job(scenario(JOIN), PROFILE, cluster, OVERHEADS, plan_of)
    assert account.dollars == pytest.approx(100 + 80)


def test_throughput_adds_up_to_the_work() -> None:
    account = simulated(JOIN, policy="restart")
    edges_s, rates = account.throughput(17)
    assert float((rates * (edges_s[1:] - edges_s[:-1])).sum()) == pytest.approx(account.samples)


DEVICES = [f"d{i}" for i in range(4)]


@settings(max_examples=laws.examples(20, 60))
@given(st.lists(st.tuples(st.integers(0, 400), st.sampled_from(["join", "leave", "vanish", "slow"])), max_size=8))
def test_every_second_is_accounted_for(drawn: list[tuple[int, str]]) -> None:
    """Useful steps + checkpoints + idle + lost = the whole time but for the step in flight at the end."""
    here, events = {"d0", "d1"}, []
    for at, kind in sorted(drawn):
        pool = sorted(set(DEVICES) - here if kind == "join" else here)
        if pool:
            to = 0.5 if kind == "slow" else 1.0
            events.append(Event(at=f"{at}s", event=kind, devices=(pool[0],), to=to))  # type: ignore[arg-type]
            here = here | {pool[0]} if kind == "join" else here - {pool[0]} if kind != "slow" else here
    for policy in ("live", "restart"):
        account = simulated(*events, start=("d0", "d1"), duration="600s", checkpoint_every="50s", policy=policy)
        ends = [segment.end_s for segment in account.segments]
        assert [segment.start_s for segment in account.segments[1:]] == ends[:-1] and ends[-1] == account.duration_s
        trained_s = account.spent_s("train") - sum(incident.again_s for incident in account.incidents)
        parts_s = account.lost_s + account.spent_s("checkpoint") + account.spent_s("idle") + trained_s
        assert parts_s == pytest.approx(account.duration_s)
        work = sum(s.samples_per_s * (s.end_s - s.start_s) for s in account.segments)
        assert work == pytest.approx(account.samples + account.repeated_samples)


# Files and the command.


@pytest.mark.parametrize(
    "event, complaint",
    [
        (Event(at="1s", event="join", devices=("d0",)), "event at 1s: join names device 'd0', which is there already"),
        (Event(at="1s", event="leave", devices=("d1",)), "event at 1s: leave names device 'd1', which is not there"),
        (Event(at="1s", event="leave", devices=("d9",)), "unknown device of cluster switched 'd9'"),
        (Event(at="1s", event="narrow", tier="lin", to=0.5), "unknown tier of the event at 1s 'lin'"),
    ],
)
def test_events_that_do_not_fit_are_refused(event: Event, complaint: str) -> None:
    with pytest.raises(ShardscopeError, match=complaint):
        simulated(event)


@pytest.mark.parametrize(
    "line, complaint",
    [
        ("{at: 1h, event: jion, devices: [a]}", "event"),
        ("{at: 1 hour, event: join, devices: [a]}", "duration '1 hour': write days, hours"),
        ("{at: 1h, event: join}", "devices is missing: event 'join' at 1h names devices"),
        ("{at: 1h, event: narrow, devices: [a], to: 0.5}", "tier is missing: event 'narrow' at 1h names a tier"),
        ("{at: 1h, event: slow, devices: [a], to: 0.0}", "to is 0.0: it is a positive share"),
        ("{at: 1h, event: slow, devices: [a], too: 0.5}", "did you mean 'to'?"),
        (
            "{at: 1h, event: leave, devices: [a], to: 0.5}",
            "to is 0.5: event 'leave' at 1h has none; only slow and narrow",
        ),
        ("{at: 24h, event: leave, devices: [a]}", "at is 24h: the job ends at 1d, before this event"),
    ],
)
def test_files_that_break_a_rule_are_told_in_one_line(line: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text(f"schema: 1\nprofile: vgg16\ncluster: cpu-1g\noverheads: o.yaml\nduration: 1d\nevents:\n- {line}\n")
    with pytest.raises(InputError) as caught:
        read_scenario(path)
    assert complaint in str(caught.value) and str(path) in str(caught.value)


def test_an_event_is_told_in_words() -> None:
    assert str(Event(at="1h", event="vanish", devices=("d0",))) == "d0 vanishes"
    assert str(Event(at="1h", event="leave", devices=("d0",))) == "d0 leaves"


@pytest.mark.parametrize("batch_size", [128, None])
def test_the_command_has_the_step_of_simulate(
    batch_size: int | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the same runtime; where nobody says another, the profile's batch for each device at the start."""
    path = tmp_path / "scenario.yaml"
    path.write_text(
        f"schema: 1\nprofile: vgg16_v100\ncluster: gcp-v100\ndevices: 8\nduration: 1h\n"
        f"start: [node0/gpu0, node0/gpu1, node0/gpu2, node0/gpu3]\nbatch_size: {batch_size or 'null'}\n"
        f"overheads: {ROOT}/examples/overheads-spot.yaml\n"
    )
    machine = ["--cluster", "gcp-v100", "--devices", "4", *(["--batch-size", "128"] if batch_size else [])]
    assert cli.main(["scenario", str(path), "--json"]) == 0
    account = json.loads(capsys.readouterr().out)
    assert cli.main(["simulate", "vgg16_v100", *machine, "--strategy", "data", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert account["segments"][0]["samples_per_s"] == pytest.approx(report["samples_per_s"])


def test_the_command_says_what_does_not_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text(
        f"schema: 1\nprofile: vgg16_v100\ncluster: gcp-v100\nduration: 1h\nstart: [node0/gpu0]\nbatch_size: 2048\n"
        f"overheads: {ROOT}/examples/overheads-spot.yaml\n"
    )
    assert cli.main(["scenario", str(path)]) == 0
    assert "idle on 1 device: does not fit: node0/gpu0 needs 117 GiB of 16.0 GiB" in capsys.readouterr().out


def test_the_example_runs_and_live_loses_less(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(ROOT / "examples" / "spot-cluster.yaml")
    assert cli.main(["scenario", path]) == 0
    text = capsys.readouterr().out
    assert "samples/s over hours" in text and "12 h 20 min 4 from node2/gpu0 vanish" in text
    assert cli.main(["scenario", path, "--json"]) == 0
    live = json.loads(capsys.readouterr().out)
    restart = live["other_policies"]["restart"]
    assert live["lost_s"] < restart["lost_s"] / 6 and live["samples"] > restart["samples"]


def test_wrong_input_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert cli.main(["scenario", str(tmp_path / "none.yaml")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
