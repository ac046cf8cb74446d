"""The field suite: what its seed draws, labs as users shape them, DistributedDataParallel as users set it up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed; make test installs it")

from plans import planned
from torch import nn

from benchmarks.machines.field_cases import SEED, field
from benchmarks.machines.random_networks import drawn, network_name
from simulator import files
from simulator.cli.validate import make_plan
from simulator.errors import InputError
from simulator.lowering.sharded_model import ShardedModel
from simulator.lowering.step import lower
from simulator.network.catalogue import write_cluster
from simulator.plan import Synchronisation
from traces.capture.fx_steps import trace
from traces.lab import namespaces
from traces.lab.launch import launch
from traces.lab.link_shaping import Shaping
from traces.lab.shaped_network import Lab
from traces.results.validation_cases import Case, LabNetwork
from traces.results.validations import Overhead, Round, ValidatedRun, prediction_inputs, summarised
from traces.runs.torch_runtimes.ddp import run_ddp, shares_of
from traces.runs.torch_runtimes.measured_steps import build, samples
from traces.runs.torch_runtimes.stage_modules import cut
from traces.runs.torch_runtimes.task_observer import TaskObserver
from traces.validation.measured_inputs import shaping_of
from traces.zoo.networks import load

pytestmark = pytest.mark.usefixtures("forked_python")
REASON = namespaces.available()
PROFILE = files.read_profile("vgg_small")
CLUSTER = LabNetwork(ranks=2, mbit=1000).cluster([0, 1])


def test_a_seed_draws_the_same_runs_every_time_and_another_seed_others() -> None:
    assert field() == field(SEED) != field(SEED + 1)
    assert [case.name for case in field(7, 20)] == [case.name for case in field(7, 20)]


def test_sixty_runs_have_what_the_suite_promises() -> None:
    cases = field()
    assert len({case.name for case in cases}) == len(cases) == 60
    assert {str(case.network.shaping).partition("-")[2] for case in cases} == {"250", "1000", "5000"}
    assert {str(case.network.shaping)[:3] for case in cases} == {"tbf", "htb"}
    assert any(case.network.slow_mbit for case in cases) and any(case.straggler for case in cases)
    assert any(case.static_graph for case in cases) and any("share" in case.options for case in cases)
    assert {case.via for case in cases} == {"ddp", "pipelining"}
    assert {2, 4} <= {case.options.get("microbatches") for case in cases if case.via == "ddp"}
    assert any(case.first_bucket_bytes for case in cases) and len({case.model for case in cases}) >= 8
    assert all(case.pinning([0, 1]) == ([[0], [1]] if case.straggler else []) for case in cases)


@pytest.mark.parametrize("seed", [1, 2])
def test_four_networks_in_a_row_are_of_four_kinds_and_can_be_traced(seed: int) -> None:
    kinds = (nn.BatchNorm2d, nn.LayerNorm, nn.Embedding, nn.Linear)
    for number, kind in enumerate(kinds):
        network = load(network_name(seed, number))
        trained = build(network)
        assert any(isinstance(module, kind) for module in trained.modules())
        assert len(trace(trained)) > 4 and float(trained(samples(network, 2)).detach()) > 0
        assert sum(parameter.numel() for parameter in trained.parameters()) < 25e6
    assert drawn(seed, 0).input_shape == load(network_name(seed, 0)).input_shape
    perceptron = [parameter.numel() for parameter in drawn(seed, 3).build().parameters()]
    assert max(perceptron) >= 250_000


def test_a_network_that_is_none_is_refused() -> None:
    with pytest.raises(InputError, match="has no attribute 'NETWORK_X'"):
        load("benchmarks.machines.random_networks:NETWORK_X")


@pytest.mark.parametrize("share", [0.3, 0.65])
def test_uneven_stages_have_their_share_of_the_work(share: float) -> None:
    options = {"schedule": "gpipe", "microbatches": 4, "share": share}
    case = Case(model="vgg_small", network=LabNetwork(ranks=2, mbit=1000), strategy="pipeline", via="pipelining",
                options=options)  # fmt: skip
    stages = ShardedModel(PROFILE, make_plan(case, PROFILE, CLUSTER)).stages
    seconds = [sum(PROFILE.layers[i].forward_s + PROFILE.layers[i].backward_s for i in layers) for layers in stages]
    assert seconds[0] / sum(seconds) == pytest.approx(share, abs=0.15)


def test_torchs_default_buckets_begin_with_a_small_one() -> None:
    case = next(case for case in field() if case.first_bucket_bytes and case.via == "ddp")
    plan = make_plan(replace(case, model="vgg_small", options={}), PROFILE, CLUSTER)
    assert plan.synchronisation == Synchronisation(first_bucket_bytes=1 << 20)
    assert "-1-25MiB" in case.name


def test_a_lab_knows_how_it_is_shaped() -> None:
    network = LabNetwork(ranks=2, mbit=800, slow_mbit=400, shaping="tbf-250")
    assert network.name == "2x800-slow400-tbf-250" and network.pinning([0, 1]) == []
    assert shaping_of(network) == Shaping(discipline="tbf", burst_s=250e-6)
    cluster = network.cluster([0, 1])
    assert cluster.host_cores == {} and cluster.bandwidth_bytes_per_s(0, 1) == 50e6
    assert {link.tier for link in cluster.links} == {"link", "slow"}
    with pytest.raises(InputError, match="burst_s is 2"):
        Shaping(discipline="htb", burst_s=2)


def outcome(predicted_s: float, interval_s: tuple[float, float] | None) -> ValidatedRun:
    made = Round(step_s=0.1, spread_s=0.001, steps=16, sent_bytes=10.0, peak_bytes=None, load=0.5, date="2026-11-21")
    case = Case(model="vgg_small", network=LabNetwork(ranks=2, mbit=200), strategy="data", via="ddp")
    return ValidatedRun(case=case, predicted_s=predicted_s, predicted_bytes=10.0, predicted_memory_bytes=1.0,
                        interval_s=interval_s, rounds=(made,))  # fmt: skip


def test_coverage_counts_the_runs_that_have_an_interval() -> None:
    outcomes = [outcome(0.09, (0.08, 0.11)), outcome(0.09, (0.08, 0.095)), outcome(0.09, None)]
    assert [each.covered for each in outcomes] == [True, False, None]
    assert summarised(outcomes).covered == 0.5 and summarised(outcomes[2:]).covered is None


def test_what_ddp_adds_to_a_step_is_shared_out_among_its_tasks(tmp_path: Path) -> None:
    case = next(case for case in field() if case.via == "ddp" and case.options.get("microbatches") == 2)
    case = replace(case, model="vgg_small", straggler=None)
    for part in ("profiles", "clusters", "overheads"):
        (tmp_path / part).mkdir()
    files.write_profile(PROFILE, tmp_path / "profiles" / "vgg_small.json")
    write_cluster(CLUSTER, tmp_path / "clusters" / f"{case.network.name}.yaml")
    overhead = Overhead(task_overhead_s=1.0, pass_overhead_s=1.0, ddp_step_s=0.02)
    files.write_json(overhead, tmp_path / "overheads" / "vgg_small.json")
    profile, cluster, runtime = prediction_inputs(tmp_path, case)
    plan = make_plan(case, profile, cluster)
    added_s = [
        lower(ShardedModel(profile, plan), cluster, each).seconds[:].sum()
        for each in (runtime, replace(runtime, task_overhead_s=0.0))
    ]
    assert added_s[0] - added_s[1] == pytest.approx(2 * 0.02)  # on each of two devices
    assert not Case(model="x", network=case.network, strategy="data", via="ddp").needs_overhead


@pytest.mark.alone
@pytest.mark.skipif(REASON is not None, reason=f"no network lab: {REASON}")
@pytest.mark.parametrize("discipline", ["tbf", "htb"])
def test_a_lab_of_a_users_shaping_has_its_rate(discipline: str) -> None:
    size, rate = 4 << 20, 25e6
    cluster = LabNetwork(ranks=2, mbit=200).cluster([0, 1])
    with Lab(cluster, Shaping(discipline=discipline, burst_s=1e-3)) as lab:  # type: ignore[arg-type]
        arguments = {"source": 0, "target": 1, "size": size, "messages": 5}
        seconds = launch("rank_programs:one_way", 2, lab=lab, arguments=arguments)[1]
    assert seconds == pytest.approx(size / rate, rel=0.2)


def test_uneven_shares_are_those_of_all_micro_batches() -> None:
    slow = replace(CLUSTER, devices=(CLUSTER.devices[0], replace(CLUSTER.devices[1], speed=0.5)))
    plan = planned("data", PROFILE, slow, batch_size=24, microbatches=2)
    first, second = next(iter(plan.placements.values())).samples
    assert shares_of(plan) == [2 * first, 2 * second] and first > second and 2 * (first + second) == 24


def test_stages_give_and_send_back_contiguous_values() -> None:
    """Positions in a row are a transposed view, and so is its gradient; gloo sends neither."""
    trained = build(load(network_name(2, 1)))
    steps = trace(trained)
    names = [step.name for step in steps]
    for at in (names.index("sequence"), names.index("positions")):
        first, second = cut(trace(trained), [names[:at], names[at:]], TaskObserver(0, []))
        sent = first(samples(load(network_name(2, 1)), 2))
        received = sent.detach().requires_grad_()
        second(received).sum().backward()
        assert sent.is_contiguous() and received.grad is not None and received.grad.is_contiguous()


@pytest.mark.alone
def test_gradients_accumulate_under_no_sync_and_leave_with_the_last_micro_batch() -> None:
    plan = planned("data", PROFILE, CLUSTER, batch_size=8, microbatches=2,
                   synchronisation=Synchronisation(first_bucket_bytes=1 << 20))  # fmt: skip
    run = run_ddp(PROFILE, CLUSTER, plan, steps=2, options={})  # torch fails where the graph is static besides
    assert len(run.steps_s) == 2 and run.execution.timeline.step_s > 0
