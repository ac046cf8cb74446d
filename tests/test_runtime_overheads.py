"""What torch's pipelines add to a pass, measured between two processes."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest
from small_networks import chain

from simulator import files
from simulator.errors import InputError
from traces.calibrate import runtime_overheads
from traces.calibrate.runtime_overheads import pass_overhead_s
from traces.lab.launch import launch


def test_posting_a_message_counts_for_half_of_it_on_both_ranks() -> None:
    """The first rank posts a message after each pass forward, the second after each backward, so that a pass takes
    half of a posting more; 30 ms stand well above what a loaded machine adds to one of them."""
    arguments = {"path": "vgg_small", "posting_s": 60e-3, "repeats": 5}
    for seconds in launch("parallel_programs:pass_overhead", 2, arguments=arguments, timeout_s=100):
        assert seconds == pytest.approx(30e-3, abs=15e-3)


def test_what_is_longer_is_the_median_of_turns() -> None:
    """On a clock that advances by a second at each look, a step that looks twice more takes two seconds longer."""
    clock = count()
    steps = [lambda: None, lambda: (next(clock), next(clock))]
    assert runtime_overheads._longer_s(*steps, 5, 1, lambda: float(next(clock))) == 2.0
    assert runtime_overheads._longer_s(*steps[::-1], 5, 1, lambda: float(next(clock))) == 0.0


def test_halves_take_half_of_a_step_each_and_are_never_empty() -> None:
    assert [len(half) for half in runtime_overheads._halves(chain([1.0] * 6))] == [3, 3]
    assert [len(half) for half in runtime_overheads._halves(chain([1.0, 9.0]))] == [1, 1]


def test_one_layer_is_no_pipeline() -> None:
    whole = files.read_profile("vgg_small")
    with pytest.raises(InputError, match="a pipeline of two stages has at least 2"):
        pass_overhead_s(replace(whole, layers=whole.layers[:1]), 0)
