"""Combined 1F1B: what experts exchange moves beside another micro-batch, drawn by hand and by law."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from command_line import options_in, shardscope
from test_closed_forms import star
from test_experts import expert_parallel, mixture
from test_megatron import CARD, STACK, settings
from test_mixtures import PROFILE

from partitioners import plan_of
from simulator.errors import InputError
from simulator.expert_routing import Routing
from simulator.exports.launch import launch_command, pinned
from simulator.language_models.card_files import read_card
from simulator.language_models.modelled_profile import modelled_profile
from simulator.language_models.training_grid import TrainingGrid
from simulator.plan import Plan
from simulator.readers import read_configuration
from simulator.run import run, step_report
from simulator.taskgraph import Kind
from simulator.workload import Profile

PASSES = {Kind.FORWARD: "0", Kind.BACKWARD: "a"}
MIXED = {"norm": "y", "experts": "x", "add": "y"}
TOKENS, HIDDEN = 8, 4


def drawn(microbatches: int, exchange_s: float, schedule: str = "combined-1f1b") -> tuple[float, list[str]]:
    """Seconds of a step and what the first of two devices computes in turn, each task a second; an exchange of the
    experts takes `exchange_s`."""
    whole = mixture(TOKENS * microbatches, HIDDEN, Routing(experts=2))
    seconds = {"forward_s": 2.0 * microbatches, "backward_s": 2.0 * microbatches}
    profile = replace(whole, layers=tuple(replace(layer, **seconds) for layer in whole.layers))
    plan = replace(expert_parallel(profile, 2), microbatches=microbatches, schedule=schedule)
    sent_bytes = TOKENS / 2 * HIDDEN * 2 / 2  # half of what a device has goes to the other
    done = run(profile, star(2, bandwidth=sent_bytes / exchange_s, latency_s=0.0), plan)
    graph, own = done.graph, np.flatnonzero((done.graph.device == 0) & np.isin(done.graph.kind, list(PASSES)))
    order = own[np.argsort(done.timeline.start_s[own], kind="stable")]
    names = [profile.layers[layer].name for layer in graph.layer[order]]
    passes = [chr(ord(PASSES[Kind(graph.kind[t])]) + graph.microbatch[t]) for t in order]
    return done.timeline.step_s, [a + MIXED[b] for a, b in zip(passes, names, strict=True)]


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("microbatches", [1, 2, 5])
@pytest.mark.parametrize("exchange_s", [0.25, 1.0, 1.5])
def test_exchanges_hide_behind_a_piece_of_another_micro_batch(microbatches: int, exchange_s: float) -> None:
    """The first forward and the last backward pass show their two exchanges; between them each of four pieces hides
    behind one of the other pass, which takes a second."""
    step_s, order = drawn(microbatches, exchange_s)
    alone_s, joined_s = 3 + 2 * exchange_s, 6 + 4 * max(0.0, exchange_s - 1)
    assert step_s == pytest.approx(2 * alone_s + (microbatches - 1) * joined_s)
    assert drawn(microbatches, exchange_s, "sequential")[0] == pytest.approx(2 * alone_s * microbatches)
    joined = [f"{chr(ord(mark) + m)}{piece}" for m in range(microbatches - 1)
              for mark, piece in (("a", "y"), ("1", "y"), ("a", "x"), ("1", "x"), ("a", "y"), ("1", "y"))]  # fmt: skip
    last = chr(ord("a") + microbatches - 1)
    assert order == ["0y", "0x", "0y", *joined, f"{last}y", f"{last}x", f"{last}y"]


PLAIN = pytest.mark.parametrize(
    ("pipeline", "chunks", "plain"), [(1, 1, "sequential"), (2, 1, "1f1b"), (2, 2, "interleaved")]
)


def placed(profile: Profile, schedule: str, **options: int) -> Plan:
    step = replace(settings(16, microbatches=4), schedule=schedule)
    return plan_of("megatron", profile, star(4), step, **options)


@PLAIN
def test_without_experts_it_is_what_it_joins(pipeline: int, chunks: int, plain: str) -> None:
    dense = modelled_profile(replace(CARD, layers=4), STACK)
    joined, alone = (
        step_report(dense, star(4), placed(dense, name, pipeline=pipeline, chunks=chunks))
        for name in ("combined-1f1b", plain)
    )
    assert (joined.step_s, joined.tasks) == (alone.step_s, alone.tasks)


@PLAIN
def test_it_computes_as_much_and_shows_less(pipeline: int, chunks: int, plain: str) -> None:
    """But in a pipeline without virtual stages, whose next stage waits for the pass beside; exchanges that take no time
    are as good as hidden."""
    slow, free = (star(4, bandwidth=each, latency_s=0.0) for each in (2e9, 1e30))
    plans = [placed(PROFILE, each, pipeline=pipeline, chunks=chunks, expert=2) for each in ("combined-1f1b", plain)]
    joined, alone = (step_report(PROFILE, slow, plan) for plan in plans)
    assert (joined.step_s < alone.step_s) == (pipeline == 1 or chunks > 1)
    assert [each.compute_s for each in joined.devices] == pytest.approx([each.compute_s for each in alone.devices])
    assert joined.communication_bytes == alone.communication_bytes
    if pipeline == 1:
        steps_s = [step_report(PROFILE, free, plan).step_s for plan in plans]
        assert steps_s[0] == pytest.approx(steps_s[1], rel=1e-9)


def test_megatrons_line_has_its_option_and_reads_back() -> None:
    card = read_card("qwen3-30b-a3b")
    grid = TrainingGrid(data=4, pipeline=2, chunks=4, expert=4, zero_stage=1, accumulation=8, schedule="combined-1f1b")
    text = launch_command("megatron", card, grid)
    assert set(options_in(text)) <= {*pinned("megatron").arguments, *options_in("--nnodes 1 --nproc-per-node 8")}
    line = text.partition("\n")[2].replace("\\\n", " ")
    assert "--overlap-moe-expert-parallel-comm" in line
    assert read_configuration(line, None).grid.schedule == "combined-1f1b"
    assert read_configuration(line.replace("--overlap-moe-expert-parallel-comm", ""), None).grid.schedule == ""


@pytest.mark.parametrize("lacks", [{"chunks": 1}, {"expert": 1}, {"recomputation": "full"}])
def test_megatron_refuses_what_it_asserts(lacks: dict[str, Any]) -> None:
    options: dict[str, Any] = {"data": 4, "pipeline": 2, "chunks": 4, "expert": 4, "accumulation": 8, **lacks}
    with pytest.raises(InputError, match="schedule is combined-1f1b: Megatron-LM needs experts on several devices"):
        launch_command("megatron", read_card("qwen3-30b-a3b"), TrainingGrid(**options, schedule="combined-1f1b"))


def test_a_plan_without_experts_on_several_devices_has_nothing_to_hide(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--cluster", "dgx-h100", "--devices", "8", "--schedule", "combined-1f1b", "--strategy")
    for model, *strategy in (
        ("llama3-8b", "megatron", "--set", "tensor=2"), ("qwen3-30b-a3b", "megatron", "--set", "expert=1"),
        ("vgg16_v100", "pipeline"),
    ):  # fmt: skip
        assert shardscope("simulate", model, *options, *strategy) == 2
        assert "it hides what experts on several devices exchange, and the plan has none" in capsys.readouterr().err
