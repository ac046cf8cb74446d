"""Measures one check of a card."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import torch

from benchmarks.device_card.cards import CHANNELS, MEMORY, PIPELINE, STEP, Check, stage_names
from benchmarks.device_card.stream_pipeline import SharedPipeline
from benchmarks.device_card.whole_steps import WholeSteps
from simulator.errors import InputError
from traces.capture import machine_settings
from traces.capture.measurement_rounds import MeasurementRounds, median, spread
from traces.zoo.networks import Network

NEEDS_CUDA = "needs a CUDA device"


def measured(
    check: Check,
    network: Network,
    torch_device: torch.device,
    dtype: torch.dtype,
    times: Sequence[tuple[str, float]],
    repeats: int,
) -> Check:
    """The check with its measurement, or with the reason why there is none.

    times: (name, seconds) of the profile's layers in order, by which a pipeline is cut.
    """
    try:
        with machine_settings.memory_errors(check.batch_size, str(torch_device)):
            if check.kind == CHANNELS:
                return _channels(check, network, torch_device, dtype, repeats)
            if check.kind == MEMORY and torch_device.type != "cuda":
                return replace(check, skipped=f"{NEEDS_CUDA}, whose allocator counts")
            whole = WholeSteps(network, torch_device, dtype, check.batch_size)
            if check.kind == MEMORY:
                return replace(check, measured=float(whole.peak_bytes()), repeats=1)
            if check.kind == PIPELINE:
                pipeline = SharedPipeline(whole, stage_names(times, check.stages), check.microbatches)
                return _timed(check, whole.consecutive_s(pipeline.step, repeats))
            filled = _timed(check, whole.eager_s(repeats, check.microbatches))
    except InputError as error:
        return replace(check, skipped=str(error))
    return _as_graph(filled, whole, repeats) if check.kind == STEP else filled


def _as_graph(check: Check, whole: WholeSteps, repeats: int) -> Check:
    if whole.torch_device.type != "cuda":
        return replace(check, no_graph=NEEDS_CUDA)
    try:
        return replace(check, graph=median(whole.graph_s(repeats)))
    except RuntimeError as error:
        return replace(check, no_graph=str(error).splitlines()[0])


def _channels(check: Check, network: Network, torch_device: torch.device, dtype: torch.dtype, repeats: int) -> Check:
    fraction = Fraction(check.fraction)
    rounds = MeasurementRounds(network, torch_device, check.batch_size, dtype, [fraction])
    names = [layer.name for layer in rounds.surveyed]
    only = {i: narrow for i, narrow in rounds.narrowed.get((False, fraction), {}).items() if names[i] == check.layer}
    if not only:
        return replace(check, skipped=f"{fraction} of its channels is no whole number of them")
    times = (rounds.passes.narrowed(rounds.inputs, only) for _ in range(2 + repeats))
    seconds = [sum(sum(part.values()) for part in each.phases) for each in times]
    return _timed(check, seconds[2:])


def _timed(check: Check, seconds: Sequence[float]) -> Check:
    return replace(check, measured=median(seconds), spread=spread(seconds), repeats=len(seconds))
