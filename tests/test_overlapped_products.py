"""Products that exchange their operands in parts: drawn schedules, and what a block then exposes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from test_closed_forms import star
from test_megatron import CARD, PROFILE, STACK, settings

from partitioners import plan_of
from simulator.language_models.accelerators import accelerator
from simulator.language_models.kernels import product_seconds
from simulator.language_models.modelled_profile import modelled_profile
from simulator.plan import Plan, Sharding
from simulator.run import run, step_report
from simulator.runtime import Runtime
from simulator.taskgraph import Kind
from simulator.workload import Geometry, Layer, Profile

MIXING = Geometry(mixes_channels=True)
LAYERS = (("norm", "norm"), ("up", "linear"), ("down", "linear"), ("end", "norm"))


def drawn(up_s: float, down_s: float, devices: int, overlaps: bool) -> list[float]:
    """Ends of the forward pass of norm, up, down and end: a gather of 6 s before up, a scatter of 6 s after down."""
    layers = tuple(
        Layer(
            name=name,
            kind=kind,
            inputs=(LAYERS[i - 1][0],) if i else (),
            output_shape=(devices, devices, 1),
            forward_s={"up": up_s, "down": down_s}.get(name, 1.0),
            backward_s=1.0,
            update_s=0.0,
            parameter_bytes=0,
            output_bytes=4 * devices**2,
            saved_bytes=0,
            geometry=MIXING if kind == "linear" else Geometry(),
        )
        for i, (name, kind) in enumerate(LAYERS)
    )
    profile = Profile(model="two", device="d", batch_size=1, dtype="float32", command="", source="", layers=layers)
    own, rows = tuple(range(devices)), Sharding(degrees=(1, 1, devices, 1), devices=tuple(range(devices)))
    placements = {
        "norm": rows,
        "up": Sharding(degrees=(1, devices, 1, 1), devices=own),
        "down": Sharding(reduce=devices, devices=own),
        "end": rows,
    }
    plan = Plan(model="two", batch_size=1, placements=placements, exchange="collectives")
    cluster = star(devices, bandwidth=4 * devices**2 * (devices - 1) / devices / 6, latency_s=0.0)
    done = run(profile, cluster, plan, runtime=Runtime(overlaps_products=overlaps))
    first = (done.graph.kind == Kind.FORWARD) & (done.graph.device == 0)
    ends_s: list[float] = done.timeline.end_s[first][np.argsort(done.graph.layer[first])].tolist()
    return ends_s


@pytest.mark.parametrize("devices", [2, 4])
def test_all_but_one_part_moves_beside_long_products(devices: int) -> None:
    """A product on n devices takes 1/n of its time, here 10 s each; the norms 1/n s."""
    part, norm = 6 / devices, 1 / devices
    alone = drawn(10 * devices, 10 * devices, devices, overlaps=False)
    assert np.diff(alone) == pytest.approx([6 + 10, 10, 6 + norm])
    beside = drawn(10 * devices, 10 * devices, devices, overlaps=True)
    assert np.diff(beside) == pytest.approx([part + 10, 10, part + norm])


def test_a_slow_network_is_waited_for() -> None:
    """Of 6 s half are exposed; the other 3 last longer than products of 1 s, whose readers wait."""
    beside = drawn(2, 2, 2, overlaps=True)
    assert np.diff(beside) == pytest.approx([3 + 1, 2 + 1, 2 + 3 + 0.5])


@pytest.mark.parametrize("tensor", [2, 4])
def test_a_block_exposes_one_part_of_six_exchanges(tensor: int) -> None:
    """Forward four stand next to products and backward two; the others are beside weight gradients. One more is of the
    head. As many bytes move, and the report is that of ranks that are alike."""
    cluster = star(tensor, bandwidth=1e12, latency_s=0.0)
    plan = plan_of("megatron", PROFILE, cluster, settings(2), tensor=tensor, gather_again=True)
    reports = []
    for overlaps in (False, True):
        runtime = Runtime(overlaps_weight_gradients=True, overlaps_products=overlaps)
        reports.append(run(PROFILE, cluster, plan, runtime=runtime).report)
        assert step_report(PROFILE, cluster, plan, runtime=runtime).to_dict() == reports[-1].to_dict()
    alone, beside = (report.devices[0].exposed_communication_s for report in reports)
    exchange_s = 2 * CARD.sequence * CARD.hidden * 2 * (tensor - 1) / tensor / 1e12
    assert alone - beside == pytest.approx((6 * CARD.layers + 1) * exchange_s * (1 - 1 / tensor), rel=1e-6)
    assert reports[0].communication_bytes.total == reports[1].communication_bytes.total


def test_what_is_exchanged_in_parts_is_multiplied_in_parts() -> None:
    """What a product reads, or the terms that it makes; the gradients of a sum, no others."""
    stack = replace(STACK, runtime=replace(STACK.runtime, overlaps_products=True))
    of = {layer.name[9:]: layer for layer in modelled_profile(CARD, stack, batch_size=2).layers}
    gpu, rate = accelerator(stack.accelerator), stack.device.memory_bytes_per_s(accelerator(stack.accelerator))
    rows, quarter = 2 * CARD.sequence, CARD.ffn // 4
    assert not stack.device.fused_accumulation  # which would add 6 bytes to an element of a weight gradient
    made = {
        (point.channel_fraction, point.input_channel_fraction): (point.forward_s, point.backward_s)
        for point in of["down"].scaling
        if point.batch_size == 2
    }
    orders = (rows, quarter, CARD.hidden), (rows, CARD.hidden, quarter), (quarter, rows, CARD.hidden)
    whole_s = [product_seconds(*order, gpu, rate) for order in orders]
    parts_s = [4 * product_seconds(rows / 4, *order[1:], gpu, rate) for order in orders[:2]]
    share = stack.device.matmul_efficiency
    expected = parts_s[0] / share, (parts_s[1] + whole_s[2]) / share
    assert made[1.0, 0.25] == pytest.approx(expected, rel=1e-5)
    narrow = (rows, CARD.hidden, 2 * quarter), (rows, 2 * quarter, CARD.hidden), (CARD.hidden, rows, 2 * quarter)
    whole_s = [product_seconds(*order, gpu, rate) for order in narrow]
    forward_s = 4 * product_seconds(rows / 4, *narrow[0][1:], gpu, rate)
    gate = next(p for p in of["gate"].scaling if p.batch_size == 2 and p.channel_fraction == 0.25)
    halves = forward_s / share / 2, (whole_s[1] + whole_s[2]) / share / 2
    assert (gate.forward_s, gate.backward_s) == pytest.approx(halves, rel=1e-5)
