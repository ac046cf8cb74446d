"""A Profile out of a model card: every layer's seconds from peaks and efficiencies. Modelled, and it says so."""

from __future__ import annotations

import shlex
from dataclasses import replace
from itertools import product
from pathlib import Path

from simulator.cluster import Cluster
from simulator.errors import InputError, require
from simulator.files import read_profile
from simulator.language_models.accelerators import Accelerator, accelerator
from simulator.language_models.card_files import is_card, read_card
from simulator.language_models.device_model import accumulation_seconds, operator_seconds
from simulator.language_models.layer_shapes import ELEMENT_BYTES, LayerShape, layer_shapes
from simulator.language_models.model_card import ModelCard
from simulator.language_models.training_stack import NEAREST, TrainingStack, read_stack, stack_for
from simulator.workload import Layer, Profile, ScalingPoint

FRACTIONS = (0.5, 0.25, 0.125, 0.0625)
"""Of channels that tensor parallelism leaves a device."""
STEP_SEQUENCES = 4
"""Of a device, where nobody says how many: 256 on 64 GPUs."""
MOST_MICROBATCH = 16
"""Sequences for which a profile has points of its own, of each device where several share experts."""
ADAM_TRAFFIC = 30
"""Bytes per parameter: gradient, weight and two moments in fp32 read, three of them written, and the 16-bit copy."""


def read_profile_or_card(
    source: str | Path,
    cluster: Cluster | None = None,
    *,
    stack: str | None = None,
    sequence: int | None = None,
    precision: str | None = None,
) -> Profile:
    """The profile in a file or the library; of a model card, the one modelled on the GPUs of `cluster`.

    On an H100 where there is no cluster, or one without GPUs of a data sheet: the notes of the profile say whose times
    these are. stack: a name or file, other than the nearest. sequence: other than the card's. precision: other than the
    stack's. Raises as the readers do.
    """
    if not is_card(source):
        return read_profile(source)
    named = read_stack(stack) if stack else None
    try:
        used = stack_for(cluster, named)
    except InputError:
        used = stack_for(None, named)
    card, used = read_card(source), used.with_precision(precision)
    asked = {"--sequence": sequence, "--precision": precision}
    card = replace(card, sequence=sequence or card.sequence)
    words = ["shardscope", "model", str(source), "--stack", stack or used.name, "--device", used.accelerator]
    words += [word for name, value in asked.items() if value for word in (name, str(value))]
    command = shlex.join([*words, "--batch-size", str(STEP_SEQUENCES), "--output", "profile.json"])
    return modelled_profile(card, used, batch_size=STEP_SEQUENCES, command=command, stack_source=stack or "")


def modelled_profile(
    card: ModelCard, stack: TrainingStack, *, batch_size: int = 1, command: str = "", stack_source: str = ""
) -> Profile:
    """Layers of `card` for batches of `batch_size` sequences on the accelerator of `stack`, as one device has them.

    Points at other batch sizes and at parts of the channels are modelled alike. The layers of a mixture's experts have
    one column for each expert, of as many tokens as it is expected to get. stack_source: where the stack is read from,
    if it does not ship.
    """
    require(batch_size >= 1, "batch_size", batch_size, "it is at least 1")
    gpu = accelerator(stack.accelerator)
    made: dict[object, Layer] = {}  # by shape but for names: blocks are alike
    layers = []
    for shape in layer_shapes(card, batch_size, stack):
        key = replace(shape, name="", inputs=(), tied_to=(), geometry=replace(shape.geometry, aligned_inputs=()))
        if key not in made:
            made[key] = _layer(card, shape, gpu, stack, batch_size)
        first = made[key]
        own = replace(first, name=shape.name, inputs=shape.inputs, tied_to=shape.tied_to, geometry=shape.geometry)
        layers.append(own)
    unsure = f", of which no step was compared: {gpu.uncertainty:.0%} less sure" if gpu.uncertainty else ""
    return Profile(
        model=card.name, device=gpu.kind, batch_size=batch_size, dtype="bfloat16", command=command, source=card.source,
        layers=tuple(layers),
        software={"stack": stack_source or stack.name, "precision": stack.device.precision}
        | ({"stack_by": NEAREST} if stack.by_default else {}),
        notes=f"modelled, not measured: {gpu.source}; products at {gpu.sustained_share:.0%} of its peak "
        f"({gpu.sustained_source}){unsure}; software of {stack.name} ({stack.source or 'stated'})",
    )  # fmt: skip


def _layer(card: ModelCard, shape: LayerShape, gpu: Accelerator, stack: TrainingStack, batch_size: int) -> Layer:
    """The layer of `shape`, with points at other batches and at parts of its channels.

    Experts have points for the sequences of as many devices as there may be with one expert each.
    """
    rate = stack.device.memory_bytes_per_s(gpu)
    columns, visits = (shape.routing.experts, shape.routing.top_k) if shape.routing else (1, 1)
    output_bytes = batch_size * card.sequence * shape.channels * shape.element_bytes * visits
    most = max(batch_size, MOST_MICROBATCH) * columns
    batches = sorted({batch_size, *(2**i for i in range(most.bit_length()))})
    cut = shape.operator.kind in ("linear", "attention", "activation")
    points = []
    for samples, fraction in product(batches, (1.0, *FRACTIONS) if cut else (1.0,)):
        tokens = samples / batch_size
        if fraction < 1 or samples != batch_size:
            seconds = _seconds(shape, gpu, stack, fraction, tokens=tokens)
            points.append(_point(samples, seconds, channel_fraction=fraction))
        if fraction < 1 and shape.operator.kind == "linear":
            seconds = _seconds(shape, gpu, stack, inputs=fraction, tokens=tokens)
            points.append(_point(samples, seconds, input_channel_fraction=fraction))
    forward_s, backward_s = _seconds(shape, gpu, stack)
    return Layer(
        name=shape.name, kind=shape.kind, inputs=shape.inputs, output_shape=(shape.channels, card.sequence, columns),
        forward_s=forward_s, backward_s=backward_s, update_s=_rounded(shape.parameters * ADAM_TRAFFIC / rate),
        accumulate_s=_rounded(accumulation_seconds(shape.parameters, gpu, stack.device)),
        parameter_bytes=shape.parameters * ELEMENT_BYTES, tied_to=shape.tied_to, geometry=shape.geometry,
        output_bytes=output_bytes, routing=shape.routing,
        saved_bytes=round(shape.saved_bytes), saved_output_bytes=round(output_bytes * shape.kept_output),
        working_bytes=round(shape.working_bytes),
        flops=shape.operator.flops * shape.share, scaling=tuple(points),
    )  # fmt: skip


def _seconds(
    shape: LayerShape,
    gpu: Accelerator,
    stack: TrainingStack,
    outputs: float = 1.0,
    inputs: float = 1.0,
    tokens: float = 1.0,
) -> tuple[float, float]:
    """(forward, backward) of the shape's part of its operator, without adding gradients up.

    outputs, inputs: shares of the channels that one device has. tokens: how many times the shape's. Parts of one
    operator are computed in one product; those that are exchanged in parts, as they come: what a product reads and its
    terms, and of its gradients what a sum is made of, see `Runtime.overlaps_products`.
    """
    parts = (1, 1)
    if stack.runtime.overlaps_products and not shape.routing:
        parts = round(1 / (outputs * inputs)), round(1 / inputs)
    forward_s, backward_s = operator_seconds(shape.operator.part(outputs, inputs, tokens), gpu, stack.device, parts)
    return _rounded(forward_s * shape.share), _rounded(backward_s * shape.share)


def _point(samples: int, seconds: tuple[float, float], **fractions: float) -> ScalingPoint:
    return ScalingPoint(batch_size=samples, forward_s=seconds[0], backward_s=seconds[1], **fractions)


def _rounded(seconds: float) -> float:
    return float(f"{seconds:.6g}")
