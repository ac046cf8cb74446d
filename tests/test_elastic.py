"""Elastic process groups for real: samples, losses, training states and what the logs say of a pause."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed; make test installs it")

import torch

from benchmarks.studies.rehearsal import Rehearsal, predicted, rehearsal, table
from benchmarks.studies.rehearsed_changes import RehearsedChange, rehearsed_change
from simulator.curve import Curve
from simulator.elastic.reconfiguration import Overheads, Reconfiguration, read_overheads
from simulator.files import read_profile, write_yaml
from simulator.network.topologies import Wire, flat_switch
from traces.elastic.elastic_worker import ElasticWorker, TrainingJob, read_state, samples_of, write_state
from traces.elastic.process_group import ElasticProcessGroup

TRAINING = TrainingJob(model="vgg_small", batch_size=16, samples=80)
CLUSTER = flat_switch(4, Wire(bandwidth_bytes_per_s=125e6))
OVERHEADS = Overheads(
    stop_s=0.1,
    launch_s=0.2,
    framework_s=0.4,
    leave_s={1: 0.05, 2: 0.1},
    group_s={1: 0.0, 4: 0.3},
    checkpoint_write=Curve(points=((1.0, 0.5), (1e9, 0.5))),
    checkpoint_read=Curve(points=((1.0, 0.6), (1e9, 0.6))),
    detect_s=0.7,
    sources=("made up",),
)


def test_every_epoch_has_every_sample_once() -> None:
    for epoch in range(2):
        steps = [samples_of(TRAINING, 5 * epoch + step) for step in range(5)]
        assert sorted(sample for step in steps for sample in step) == list(range(80))
    assert samples_of(TRAINING, 0) != samples_of(TRAINING, 5) and samples_of(TRAINING, 3) == samples_of(TRAINING, 3)


def test_a_state_holds_all_there_is_to_training(tmp_path: Path) -> None:
    """Written after two steps and read elsewhere, the third step is the same."""
    first, second = ElasticWorker(TRAINING), ElasticWorker(TRAINING)
    before = [first.step()[0] for _ in range(2)]
    write_state(tmp_path / "state", first.state)
    read_state(tmp_path / "state", second.state)
    assert second.step_number == 2 and second.own_samples() == samples_of(TRAINING, 2)
    assert second.step()[0] == first.step()[0] != before[0]
    assert torch.equal(second.state, first.state)


@pytest.mark.alone
def test_devices_that_come_and_vanish_leave_no_trace_in_the_losses() -> None:
    """1 -> 2 devices while training, then the second is killed: over loopback, each sample once."""
    with ElasticProcessGroup(TRAINING) as group:
        group.start((0,))
        group.await_steps(3)
        group.change((0, 1), "live", [(0, 1)])
        group.await_steps(3)
        group.kill(1)
        group.await_steps(3)
        group.finish()
        rehearsed = rehearsal(group, TRAINING, ["live", "recover"])
        live = rehearsed_change(group, 1, "live")
    assert rehearsed.samples_once and rehearsed.steps >= 9
    assert rehearsed.loss_difference < 1e-3
    assert (live.before, live.after, list(live.parts_s)) == (1, 2, ["leave groups", "groups", "move"])
    assert 0 < live.pause_s < live.beside_s, "starting a process takes longer than letting it in"


@pytest.mark.skipif(sys.platform != "linux", reason="priorities of Linux")
def test_what_directs_ranks_leaves_its_sessions_other_programs_where_they_are() -> None:
    """A session ahead of all others starves the processes that join, which have sessions of their own."""
    weight, own = Path("/proc/self/autogroup"), (os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0))
    before = weight.read_text() if weight.exists() else ""
    command = "import os; print(os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0))"
    with ElasticProcessGroup(TRAINING):
        assert before == (weight.read_text() if weight.exists() else "")
        child = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True).stdout
    assert (os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0)) == own
    assert tuple(map(int, child.split())) in (own, (0, own[1]))  # a child of a real-time thread loses niceness


def test_a_part_ends_with_the_last_that_does_it(tmp_path: Path) -> None:
    """Two ranks end their last steps at 10 and 11 s, have groups at 12 and 13 s, and the state at 13.5 and 15 s."""

    class Written:
        folder = tmp_path
        marks = (("order", 1, 9.0),)

        def lines(self, device: int) -> list[dict[str, object]]:
            return [json.loads(line) for line in (tmp_path / f"{device}.log").read_text().splitlines()]

    for device, shift in ((0, 0.0), (1, 1.0)):
        lines = [
            {"what": "step", "generation": 0, "at_s": 8 + shift, "began_s": 6 + shift, "step": 0},
            {"what": "step", "generation": 0, "at_s": 10 + shift, "began_s": 8 + shift, "step": 1},
            {"what": "leave groups", "generation": 1, "at_s": 11.5},
            {"what": "groups", "generation": 1, "at_s": 12 + shift},
            {"what": "move", "generation": 1, "at_s": 13.5 + 1.5 * shift},
            {"what": "step", "generation": 1, "at_s": 18.0, "began_s": 15.0, "step": 2},
            {"what": "step", "generation": 1, "at_s": 20.0, "began_s": 18.0, "step": 3},
        ]
        (tmp_path / f"{device}.log").write_text("".join(json.dumps(line) + "\n" for line in lines))
    change = rehearsed_change(Written(), 1, "shrink")  # type: ignore[arg-type]
    assert change.parts_s == {"leave groups": 0.5, "groups": 1.5, "move": 2.0}
    assert change.step_s == 2.0 and change.first_s == 1.0, "from 15 s to 18 s, where later steps take 2 s"
    assert change.lost_s == 5.0


def test_predictions_stand_beside_what_happened() -> None:
    """Parameters and momentum of 2.3 million numbers at 1 Gbit/s, two rounds for 1 -> 4."""
    pricing = Reconfiguration(profile=read_profile("vgg_small"), cluster=CLUSTER, overheads=OVERHEADS)
    measured = RehearsedChange(
        policy="live", before=1, after=4, parts_s={"leave groups": 0.1, "groups": 0.3, "move": 0.2}, ended_s=9.0,
        beside_s=2.0, slowed_s=0.0, first_s=0.0, step_s=0.2,
    )  # fmt: skip
    change = predicted(TRAINING, pricing, measured)
    state = 2 * pricing.profile.parameter_bytes
    assert change.parts_s == pytest.approx({"leave groups": 0.05, "groups": 0.3, "move": 2 * state / 125e6})
    (_, _, row) = table(
        TRAINING, pricing, [Rehearsal(changes=(measured,), steps=1, samples_once=True, loss_difference=0.0)]
    )
    assert (
        row.startswith("| 1 → 4 | live | leave groups 100 ms (50.0 ms), groups 300 ms (300 ms), move 200 ms (")
        and "| 600 ms |" in row
    )


def test_overheads_are_read_as_they_were_written(tmp_path: Path) -> None:
    write_yaml(OVERHEADS, tmp_path / "overheads.yaml")
    assert read_overheads(tmp_path / "overheads.yaml") == OVERHEADS
    assert OVERHEADS.leaving_s(3) == pytest.approx(0.15)
    assert [OVERHEADS.groups_s(n) for n in (1, 2, 4, 7)] == pytest.approx([0.0, 0.1, 0.3, 0.6])
