"""Llama 3 blocks on 8 B200 under Megatron-LM (SimuMax): operators from its tables by shape."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from benchmarks.accuracy._steps import PredictedStep, steps_table, summary
from benchmarks.published import shared_data
from simulator.transformers.block import ACTIVATION_TRAFFIC, ATTENTION_TRAFFIC, NORM_TRAFFIC
from simulator.transformers.gradient_exchange import ADAM_TRAFFIC
from simulator.transformers.model_card import ModelCard, read_card

SEQUENCE, GPUS = 4096, 8
COLLECTIVES = 10
"""Of a block with sequence parallelism: none beside a matrix product, as Megatron-LM has them without async flags."""


@cache
def _system() -> Mapping[str, Any]:
    """The B200 as SimuMax measured it."""
    folder = shared_data() / "simumax" / "configs" / "system"
    loaded: Mapping[str, Any] = json.loads((folder / "b200_bf16_ceperm.json").read_text())
    return loaded


def _efficiency(kind: str, shape: str) -> float:
    """Share of the peak that an operator of that shape reached, the default of its kind where it was not measured."""
    table = _system()["accelerator"]["op"][kind]
    return float(table["accurate_efficient_factor"].get(shape, table["efficient_factor"]))


def _product_seconds(rows: int, inputs: int, outputs: int, layout: str, *, accumulate: bool = False) -> float:
    kind = f"accumulate={accumulate}, out_dtype={'fp32' if accumulate else 'bf16'}"
    share = _efficiency("matmul", f"b=1, m={rows}, k={inputs}, n={outputs}, layout={layout}, {kind}")
    return 2.0 * rows * inputs * outputs / (_peak() * share)


def _linear_seconds(tokens: int, inputs: int, outputs: int) -> float:
    """Forward, gradient of the input, and gradient of the weight added to its fp32 sum."""
    forward_s = _product_seconds(tokens, inputs, outputs, "TN")
    backward_s = _product_seconds(tokens, outputs, inputs, "NN")
    return forward_s + backward_s + _product_seconds(outputs, tokens, inputs, "NT", accumulate=True)


def _attention_seconds(card: ModelCard, tensor: int) -> float:
    heads, keys = card.heads // tensor, max(1, card.key_heads // tensor)
    shape = f"batch=1, seq_len={SEQUENCE}, head_num={heads}, kv_head_num={keys}, qk_head_dim=128, v_head_dim=128"
    flops = 4.0 * SEQUENCE**2 * heads * 128  # a causal mask is not subtracted in the tables
    shares = [_efficiency(kind, f"{shape}, qkv_contiguous=True") for kind in ("sdp_fwd", "sdp_bwd")]
    return flops / (_peak() * shares[0]) + 2.5 * flops / (_peak() * shares[1])


def _collective_seconds(name: str, size: float, members: int) -> float:
    """By the fitted line of the tables: bytes over bus bandwidth, a latency per member and a fixed one."""
    if members == 1:
        return 0.0
    network = _system()["networks"]["high_intra_node"]
    fitted = network["op"][name]
    rate = network["bandwidth"]["gbps"] * 1e9 * fitted["efficient_factor"]
    latency_s = (fitted["latency_us"] * (members - 1) + fitted["fixed_latency_us"]) * 1e-6
    return float(size * (members - 1) / members / rate + latency_s)


def _peak() -> float:
    return float(_system()["accelerator"]["op"]["matmul"]["tflops"]) * 1e12


def _traffic_seconds(size: float, kind: str = "default") -> float:
    bandwidth = _system()["accelerator"]["bandwidth"][kind]
    return size / float(bandwidth["gbps"] * 1e9 * bandwidth["efficient_factor"])


def _block_seconds(card: ModelCard, tensor: int) -> float:
    """A micro-batch of one sequence through a block: fused gradients, so that nothing but operators moves memory."""
    h, q, k = card.hidden, card.query_channels, card.key_channels
    products_s = _linear_seconds(SEQUENCE, h, (q + 2 * k) // tensor) + _linear_seconds(SEQUENCE, q // tensor, h)
    products_s += _linear_seconds(SEQUENCE, h, 2 * card.ffn // tensor) + _linear_seconds(
        SEQUENCE, card.ffn // tensor, h
    )
    elementwise = 2 * NORM_TRAFFIC * h + ATTENTION_TRAFFIC * q + ACTIVATION_TRAFFIC * card.ffn
    whole = 2 * SEQUENCE * h
    gathers_s = COLLECTIVES / 2 * _collective_seconds("all_gather", whole, tensor)
    scatters_s = COLLECTIVES / 2 * _collective_seconds("reduce_scatter", whole, tensor)
    waits_s = gathers_s + scatters_s
    return products_s + _attention_seconds(card, tensor) + _traffic_seconds(SEQUENCE * elementwise / tensor) + waits_s


def _step_seconds(card: ModelCard, tensor: int, microbatches: int) -> float:
    """Micro-batches, then the distributed optimizer: gradients scattered, parameters updated and gathered."""
    replicas = GPUS // tensor
    head_s = _linear_seconds(SEQUENCE, card.hidden, card.vocabulary // tensor)
    loss_s = _traffic_seconds(12.0 * SEQUENCE * card.vocabulary / tensor, "ce_fusion")
    passes_s = microbatches * (card.layers * _block_seconds(card, tensor) + head_s + loss_s)
    parameters = card.parameters / tensor
    exchange_s = _collective_seconds("reduce_scatter", 4 * parameters, replicas)
    exchange_s += _collective_seconds("all_gather", 2 * parameters, replicas)
    return passes_s + exchange_s + _traffic_seconds(parameters * ADAM_TRAFFIC / replicas)


def predicted_steps() -> list[PredictedStep]:
    """The dense rows without context parallelism."""
    rows = json.loads((shared_data() / "simumax" / "b200_steps_visible.json").read_text())["rows"]
    steps = []
    for row in rows:
        degrees = re.fullmatch(r"tp(\d+)pp1", row["parallel"])
        if not degrees or not row["model"].startswith("llama") or "cp" in row["case"]:
            continue
        tensor, count = int(degrees[1]), int(row["mbc"])
        card = replace(read_card(row["model"]), layers=int(row["layer_num"]), sequence=SEQUENCE)
        theirs = f"SimuMax {row['perf_ms'] / row['real_ms'] - 1:+.1%}"
        name = f"{row['model']}, {card.layers} blocks, tensor {tensor}, {count} micro-batches"
        steps.append(
            PredictedStep(
                name=name, predicted_s=_step_seconds(card, tensor, count), measured_s=row["real_ms"] / 1e3, note=theirs
            )
        )
    return steps


def section() -> str:
    """The section of the page."""
    steps = predicted_steps()
    return f"""## Llama 3 70B and 405B blocks on 8 B200 (SimuMax)

A few blocks of the network with its embedding and head, under Megatron-LM. Matrix products and attention take their
share of the peak from SimuMax's tables by shape, collectives its fitted lines; what moves memory alone is counted by
`simulator.transformers.block` at its measured bandwidth. The same box made tables and steps.

{steps_table(steps)}

{summary(steps, "no repeats; one network's steps of 4 and 32 micro-batches differ by more than their number says")}"""
