"""What torch's pipelines add to a pass, measured between two processes."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest
from small_networks import chain

from simulator import files
from simulator.errors import InputError
from simulator.network.topologies import Wire, flat_switch
from simulator.plan import Synchronisation
from simulator.run import lowered
from simulator.studies.scaling import replicated
from traces.calibrate import runtime_overheads
from traces.calibrate.runtime_overheads import pass_cost, pass_overhead_s, task_overhead_s
from traces.lab.launch import launch


@pytest.mark.usefixtures("forked_python")
def test_posting_a_message_counts_for_half_of_it_on_both_ranks() -> None:
    """The first rank posts a message after each pass forward, the second after each backward, so that a pass takes
    half of a posting more; 30 ms stand well above what a loaded machine adds to one of them. What the first
    part gives is 16,384 bytes a sample, of which there are 8 in a micro-batch."""
    arguments = {"path": "vgg_small", "posting_s": 60e-3, "repeats": 3}
    for seconds, size in launch("parallel_programs:pass_cost", 2, arguments=arguments, timeout_s=100):
        assert seconds == pytest.approx(30e-3, abs=15e-3)
        assert size == 8 * 16384 / 2


def test_what_the_simulator_charges_to_send_is_taken_off() -> None:
    assert pass_overhead_s([(3e-3, 1e6), (2e-3, 0.0)], 1e-9) == pytest.approx(2e-3)
    assert pass_overhead_s([(3e-3, 4e6), (2e-3, 0.0)], 1e-9) == pytest.approx(1e-3)


def test_what_is_longer_is_the_median_of_turns() -> None:
    """On a clock that advances by a second at each look, a step that looks twice more takes two seconds longer."""
    clock = count()
    steps = [lambda: None, lambda: (next(clock), next(clock))]
    assert runtime_overheads._longer_s(*steps, 5, lambda: float(next(clock))) == 2.0
    assert runtime_overheads._longer_s(*steps[::-1], 5, lambda: float(next(clock))) == 0.0


def test_a_task_costs_its_share_of_what_the_executor_takes_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """An ordinary step takes a second, a tick of the clock; the executor's, whose last task ends after 8, 7 more."""
    clock, profile = count(), files.read_profile("vgg_small")
    begun: list[int] = []

    def stepped(*batch: object) -> SimpleNamespace:
        begun.append(1)
        warm = len(begun) <= runtime_overheads.WARMUP
        return SimpleNamespace(end_s=np.array([3.0, np.nan, 100.0 if warm else 8.0, 5.0]))

    ordinary = SimpleNamespace(train=lambda: None)
    executor = SimpleNamespace(step=stepped, close=lambda: None)
    monkeypatch.setattr(runtime_overheads, "time", SimpleNamespace(perf_counter=lambda: float(next(clock))))
    monkeypatch.setattr(runtime_overheads, "MeasurementRounds", lambda *_: ordinary)
    monkeypatch.setattr(runtime_overheads, "Worker", lambda *_: executor)
    cluster = flat_switch(1, Wire(bandwidth_bytes_per_s=1.0))
    plan = replicated(profile, 1, profile.batch_size, Synchronisation())
    assert task_overhead_s(profile, repeats=2) == pytest.approx(7 / len(lowered(profile, cluster, plan).graph))
    assert len(begun) == runtime_overheads.WARMUP + 2


def test_a_network_is_cut_near_the_middle_after_a_small_output() -> None:
    assert [len(part) for part in runtime_overheads._parts(chain([1.0] * 6))] == [3, 3]
    assert [len(part) for part in runtime_overheads._parts(chain([1.0, 9.0]))] == [1, 1]
    assert [len(part) for part in runtime_overheads._parts(chain([1.0] * 8, [9, 9, 8, 7, 6, 4, 2, 1]))] == [6, 2]


def test_a_network_is_cut_by_forward_and_backward_seconds() -> None:
    """A first layer of 10 of 14 s, most of them backward, stays alone however large its output is."""
    layers = chain([3.0] * 3, [9, 1, 1]).layers
    slow = tuple(replace(each, backward_s=9.0 if each.name == "a" else 1.0) for each in layers)
    profile = replace(chain([3.0] * 3), layers=slow)
    assert runtime_overheads._parts(profile) == [["a"], ["b", "c"]]


def test_one_layer_is_no_pipeline() -> None:
    whole = files.read_profile("vgg_small")
    with pytest.raises(InputError, match="a pipeline of two stages has at least 2"):
        pass_cost(replace(whole, layers=whole.layers[:1]), 0)
