"""Seconds of products and attentions by size: closed forms of tiles and rounds, laws, tables of measured kernels."""

from __future__ import annotations

from dataclasses import replace
from math import log2
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.library.operators import operator_tables
from partitioners import make_plan
from simulator.cluster import Device
from simulator.errors import InputError, UnknownNameError
from simulator.language_models.accelerators import ACCELERATORS, accelerator
from simulator.language_models.block import AttentionShape, BlockOperator, ProductShape
from simulator.language_models.card_files import read_card
from simulator.language_models.device_model import DeviceModel, accumulation_seconds, operator_seconds
from simulator.language_models.kernels import (
    ATTENTION_BACKWARD,
    ATTENTION_SHARES,
    DEPTH,
    FILL_CLOCKS,
    LAST_BLOCK,
    QUERY_BLOCK,
    TILE_SHARE,
    TILES,
    attention_seconds,
    product_seconds,
    scored_attention_seconds,
    tile_share,
)
from simulator.language_models.modelled_profile import modelled_profile
from simulator.language_models.training_stack import accelerator_of, read_stack, stacks
from simulator.network.topologies import Wire, flat_switch
from simulator.plan import StepSettings
from simulator.report.interval import step_interval
from simulator.run import step_report

A100 = accelerator("a100")
FAST = 1e18  # bytes per second: memory never decides
SUSTAINED = A100.flops_per_s * A100.sustained_share


def test_a_round_of_tiles_takes_as_long_as_one_tile() -> None:
    """108 tiles of 256 x 128 occupy an A100 once; one row more begins a second round, unless a tile fits it better."""
    depth, fill_s = 64 * 512, FILL_CLOCKS / A100.clock_hz
    tile_s = 2 * 256 * 128 * depth * 108 / SUSTAINED + fill_s
    full_s = product_seconds(256 * 12, depth, 128 * 9, A100, FAST)
    assert full_s == pytest.approx(tile_s)
    more = product_seconds(256 * 12 + 1, depth, 128 * 9, A100, FAST)
    assert full_s < more <= 2 * tile_s
    assert product_seconds(256 * 12 - 100, depth, 128 * 9, A100, FAST) <= full_s  # the same tiles, not all full


def test_a_long_sum_is_split_where_tiles_are_few() -> None:
    """One tile of 128 x 256 by one multiprocessor, or parts of its sum, in smaller tiles, by many."""
    depth = 64 * 8 * 100
    alone_s = 2 * 256 * 128 * depth * 108 / SUSTAINED + FILL_CLOCKS / A100.clock_hz
    split_s = product_seconds(128, depth, 256, A100, FAST)
    assert alone_s / 108 < split_s < alone_s / 4


def test_power_limits_long_products_and_tiles_short_ones() -> None:
    """A B200 sustains half of its peak; 148 tiles of 256 x 128, a round too short to be limited, are computed at the
    rate that an A100's have."""
    b200 = accelerator("b200")
    long_s = product_seconds(16384, 16384, 16384, b200, FAST)
    assert long_s == pytest.approx(2 * 16384**3 / b200.flops_per_s / b200.sustained_share)
    fill_s = FILL_CLOCKS / b200.clock_hz
    round_s = 2 * 256 * 128 * 64 * 148 / (b200.flops_per_s * TILE_SHARE) + fill_s
    assert product_seconds(256 * 37, 64, 128 * 4, b200, FAST) <= round_s


def test_a_host_calls_for_one_expert_after_another() -> None:
    small = (16, 64, 64, A100, FAST)
    assert product_seconds(*small, 100, call_s=1e-3) == pytest.approx(0.1)
    assert product_seconds(*small, 100) < 1e-3


def test_memory_bounds_a_thin_product() -> None:
    rate = A100.memory_bytes_per_s
    seconds = product_seconds(65536, 64, 8192, A100, rate, element_bytes=8)
    assert seconds >= (65536 * 8192 * 8 + 64 * (65536 + 8192) * 2) / rate


@pytest.mark.parametrize(("element_bytes", "rounds"), [(2, 1), (8, 1), (4, 3)])
def test_a_tile_that_is_added_to_a_sum_waits_for_part_of_its_memory(element_bytes: int, rounds: int) -> None:
    """A round of 108 tiles of 256 x 128 and its part of the bandwidth: 0.4 of what is read and written more."""
    depth, rate = 64 * 512, 1e13
    tile_s = 2 * 256 * 128 * depth * 108 / SUSTAINED + FILL_CLOCKS / A100.clock_hz
    added_s = 0.4 * (element_bytes - 2) * 256 * 128 * 108 / rate
    seconds = product_seconds(256 * 12 * rounds, depth, 128 * 9, A100, rate, element_bytes=element_bytes)
    assert seconds == pytest.approx(rounds * (tile_s + added_s))


SIZES = st.integers(1, 9000)


@given(rows=SIZES, inputs=SIZES, outputs=SIZES, more=st.integers(0, 500), gpu=st.sampled_from(list(ACCELERATORS)))
def test_a_larger_product_takes_no_less(rows: int, inputs: int, outputs: int, more: int, gpu: str) -> None:
    sheet = accelerator(gpu)
    seconds = product_seconds(rows, inputs, outputs, sheet, sheet.memory_bytes_per_s)
    larger = ((rows + more, inputs, outputs), (rows, inputs + more, outputs), (rows, inputs, outputs + more))
    for sizes in larger:
        assert product_seconds(*sizes, sheet, sheet.memory_bytes_per_s) >= seconds * (1 - 1e-12)
    assert seconds >= 2 * rows * inputs * outputs / sheet.flops_per_s / sheet.sustained_share
    assert product_seconds(rows, inputs, outputs, sheet, sheet.memory_bytes_per_s, 2) >= seconds * (1 - 1e-12)


@given(factor=st.floats(0.25, 4), rows=SIZES, outputs=SIZES)
def test_a_gpu_that_is_slower_in_all_takes_as_many_times_as_long(factor: float, rows: int, outputs: int) -> None:
    slow = replace(
        A100, flops_per_s=A100.flops_per_s / factor, clock_hz=A100.clock_hz / factor,
        memory_bytes_per_s=A100.memory_bytes_per_s / factor,
    )  # fmt: skip
    for seconds in (
        lambda gpu: product_seconds(rows, 512, outputs, gpu, gpu.memory_bytes_per_s),
        lambda gpu: attention_seconds(2, rows, 8, 128, gpu, "flash-2")[1],
        lambda gpu: scored_attention_seconds(2, 256, 8, 64, gpu, gpu.memory_bytes_per_s)[0],
    ):
        assert seconds(slow) == pytest.approx(factor * seconds(A100))


def test_the_largest_tile_is_the_fastest() -> None:
    shares = [tile_share(*tile) for tile in TILES]
    assert shares[0] == 1 and shares == sorted(shares, reverse=True) and min(map(min, TILES)) >= DEPTH


def test_an_attention_is_its_blocks_and_the_wait_for_the_last() -> None:
    """Of 8 heads over 4,096 queries 32 blocks each meet 1 to 32 of keys; the stated share holds without a wait."""
    blocks, share = 32, ATTENTION_SHARES["fused"]["ampere"][1]
    block_s = 4 * QUERY_BLOCK**2 * 128 * 108 / (A100.flops_per_s * share)
    forward_s, backward_s = attention_seconds(1, 4096, 8, 128, A100, "fused")
    assert forward_s == pytest.approx(block_s * (8 * blocks * (blocks + 1) / 2 / 108 + LAST_BLOCK * blocks))
    many, long_s = 512, attention_seconds(512, 65536, 8, 128, A100, "fused")
    assert long_s[0] == pytest.approx(2 * many * 65536**2 * 8 * 128 / (A100.flops_per_s * share), rel=0.01)
    assert long_s[1] == pytest.approx(2.5 * ATTENTION_BACKWARD * long_s[0], rel=0.01)
    assert backward_s < 2.5 * ATTENTION_BACKWARD * forward_s  # its blocks are smaller


@given(
    length=st.integers(1, 9000),
    heads=st.integers(1, 64),
    width=st.integers(8, 256),
    gpu=st.sampled_from(list(ACCELERATORS)),
)
def test_a_larger_attention_takes_longer(length: int, heads: int, width: int, gpu: str) -> None:
    sheet = accelerator(gpu)
    for kernel in ATTENTION_SHARES:
        plain = attention_seconds(1, length, heads, width, sheet, kernel)
        assert min(plain) > 0
        for sizes in ((2, length, heads, width), (1, length + 128, heads, width), (1, length, heads, width + 8)):
            assert all(a > b for a, b in zip(attention_seconds(*sizes, sheet, kernel), plain, strict=True))


def test_narrow_heads_are_slower_per_flop_where_the_papers_say_so() -> None:
    """The same channels in twice as many heads: the ratio of the stated shares."""
    narrow, wide = ATTENTION_SHARES["flash-2"]["ampere"]
    halves = [attention_seconds(64, 8192, heads, width, A100, "flash-2")[0] for heads, width in ((64, 64), (32, 128))]
    assert halves[0] / halves[1] == pytest.approx(wide / narrow, rel=0.01)


def test_scores_that_are_written_cost_by_the_head() -> None:
    """As many channels in twice as many heads write twice as many scores (Korthikanti et al.: 5 bytes each kept)."""
    rate = A100.memory_bytes_per_s
    few, many = (scored_attention_seconds(1, 2048, heads, 4096 // heads, A100, rate) for heads in (32, 64))
    assert many[0] > 1.5 * few[0] and many[1] > 1.5 * few[1]


def test_heads_of_an_odd_width_leave_matrix_units() -> None:
    """4 s^2 w FLOP a head at 19.5 TFLOP/s are most of it."""
    odd, even = (scored_attention_seconds(1, 2048, 8, width, A100, FAST)[0] for width in (225, 216))
    assert odd > 4 * 8 * 2048**2 * 225 / A100.fp32_flops_per_s > 5 * even


@pytest.mark.parametrize("name", ["matmul_efficiency", "attention_efficiency", "memory_efficiency", "traffic_factor"])
def test_what_seconds_are_divided_by_is_above_0(name: str) -> None:
    for value in (0.0, -0.0, -1.0):
        with pytest.raises(InputError, match=f"device: {name} is {value}"):
            DeviceModel(**{name: value})  # type: ignore[arg-type]
    assert getattr(DeviceModel(**{name: 1e-30}), name) == 1e-30  # type: ignore[arg-type]


def test_a_weight_gradient_is_added_by_its_product_or_apart() -> None:
    of = BlockOperator(name="x", kind="linear", shape=ProductShape(rows=4096, inputs=4096, outputs=4096))
    apart, fused = (DeviceModel(fused_accumulation=fused) for fused in (False, True))
    assert operator_seconds(of, A100, fused)[1] >= operator_seconds(of, A100, apart)[1]
    assert accumulation_seconds(10**9, A100, fused) == 0 < accumulation_seconds(10**9, A100, apart)


@pytest.mark.parametrize(
    ("name", "precision", "cast_bytes"),
    [("h100", "fp8", 6), ("h100", "fp8-block", 4), ("h100", "mxfp8", 4), ("b200", "fp8", 5), ("gb300", "mxfp8", 4)],
)
def test_products_of_8_bits_are_twice_as_fast_and_their_operands_are_cast(
    name: str, precision: Literal["fp8", "fp8-block", "mxfp8"], cast_bytes: int
) -> None:
    """Forward what comes in and the weights are cast, backward the gradient; the head stays in 16 bits."""
    gpu, rows, inputs, outputs = accelerator(name), 8192, 4096, 14336
    shape = ProductShape(rows=rows, inputs=inputs, outputs=outputs)
    device = DeviceModel(precision=precision)
    share, rate = gpu.sustained_share * gpu.fp8_gain, device.memory_bytes_per_s(gpu)
    twice = replace(gpu, flops_per_s=gpu.fp8_flops_per_s, sustained_share=share)
    orders = (rows, inputs, outputs), (rows, outputs, inputs), (inputs, rows, outputs)
    forward_s, data_s, weights_s = (product_seconds(*order, twice, rate, operand_bytes=1) for order in orders)
    made = operator_seconds(BlockOperator(name="gate_up", kind="linear", shape=shape), gpu, device)
    casts = (rows + outputs) * inputs, rows * outputs
    cast_s = [cast_bytes * elements / rate for elements in casts]
    assert made == pytest.approx((forward_s + cast_s[0], data_s + weights_s + cast_s[1]))
    whole = BlockOperator(name="head", kind="linear", shape=shape)
    assert operator_seconds(whole, gpu, device) == operator_seconds(whole, gpu, DeviceModel())
    with pytest.raises(InputError, match="a100 multiplies no numbers of 8 bits"):
        operator_seconds(BlockOperator(name="down", kind="linear", shape=shape), A100, device)


@pytest.mark.parametrize(("name", "share"), [("h100", 0.69), ("b200", 0.44 * 1.4)])
def test_long_products_of_8_bits_take_what_power_leaves(name: str, share: float) -> None:
    """Of their peak as much as those of 16 bits of theirs, on Blackwell 1.4 times as much."""
    gpu, size = accelerator(name), 32768
    shape = ProductShape(rows=size, inputs=size, outputs=size)
    device = DeviceModel(precision="mxfp8")
    forward_s, _ = operator_seconds(BlockOperator(name="down", kind="linear", shape=shape), gpu, device)
    cast_s = 4 * 2 * size**2 / device.memory_bytes_per_s(gpu)
    assert forward_s == pytest.approx(2 * size**3 / gpu.fp8_flops_per_s / share + cast_s)


def test_a_part_of_an_operator() -> None:
    of = BlockOperator(name="x", kind="linear", shape=ProductShape(rows=8, inputs=64, outputs=32), traffic_bytes=16)
    assert of.part(0.5).shape == ProductShape(rows=8, inputs=64, outputs=16)
    assert of.part(1, 0.25).shape == ProductShape(rows=8, inputs=16, outputs=32)
    heads = BlockOperator(name="x", kind="attention", shape=AttentionShape(sequences=1, length=64, heads=8, width=4))
    assert heads.part(0.25).flops == heads.flops / 4 == 4 * 64**2 * 2 * 4
    assert of.part(0.5).traffic_bytes == 8


def test_wrong_kernels() -> None:
    with pytest.raises(UnknownNameError, match="flash-2"):
        DeviceModel(attention_kernel="flash-9")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ACCELERATORS)
def test_a_sheet_is_consistent(name: str) -> None:
    """Peak by the clock: products of a multiprocessor in a clock are a power of two."""
    sheet = accelerator(name)
    assert sheet.source and sheet.sustained_source and 0 <= sheet.uncertainty < 0.5 and 0.4 < sheet.sustained_share < 1
    a_clock = sheet.flops_per_s / sheet.multiprocessors / sheet.clock_hz
    assert a_clock == pytest.approx(2 ** round(log2(a_clock)), rel=0.03)
    if sheet.fp8_flops_per_s:
        assert sheet.fp8_flops_per_s == pytest.approx(2 * sheet.flops_per_s, rel=0.01)


@pytest.mark.parametrize("name", stacks())
def test_a_stack_that_ships_reads(name: str) -> None:
    assert read_stack(name).name == name and read_stack(name).source


def test_a_gpu_that_nobody_measured_widens_the_interval() -> None:
    """The same software on two GPUs: the parts of the interval but for the GPU's are the same share of the step."""
    card, widths = replace(read_card("gpt2"), layers=2), {}
    for gpu in ("h100", "h100-pcie"):
        stack = replace(read_stack("megatron-a100"), accelerator=gpu)
        profile = modelled_profile(card, stack)
        cluster = flat_switch(1, WIRE)
        plan = make_plan("data", profile, cluster, StepSettings(batch_size=1))
        report = step_report(profile, cluster, plan)
        parts = step_interval(report, profile, cluster).parts
        widths[gpu] = {name: below / report.step_s for name, (below, _) in parts.items()}
    assert widths["h100-pcie"].pop("gpu") == pytest.approx(accelerator("h100-pcie").uncertainty)
    assert "gpu" not in widths["h100"] and widths["h100"] == pytest.approx(widths["h100-pcie"])


WIRE = Wire(bandwidth_bytes_per_s=1e10, latency_s=5e-6, tier="inter")


@pytest.mark.parametrize(("kind", "expected"), [("NVIDIA H100 PCIe 80GB", "h100-pcie"), ("NVIDIA GH200 96GB", "gh200")])
def test_the_form_of_a_gpu_tells_its_sheet(kind: str, expected: str) -> None:
    cluster = flat_switch(2, WIRE, device=Device(name="gpu", host="", kind=kind, memory_bytes=80 * 2**30))
    assert accelerator_of(cluster) == expected


def test_tables_of_measured_kernels(shared_data: Path) -> None:
    """By table: (median of predicted over measured, mean error of shapes), as benchmarks.library.operators prints."""
    for each in operator_tables():
        ours, one_share = each.errors
        assert abs(each.bias) < 0.22 and ours < 0.2, each.name
        if "bf16, B200" not in each.name and "V100" not in each.name:
            assert ours < 0.8 * one_share, each.name
