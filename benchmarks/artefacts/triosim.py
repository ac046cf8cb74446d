"""Reads TrioSim's trace.csv: one row per operator of a training step, with the time of its kernels.

    OperatorID,OperatorName,...,Operator_cudatime,Operator_cudatimenooverlap,InputSize,...,stage,tpflag

Times are whole microseconds, sizes in elements. `Operator_cudatime` holds gaps in which the host launched nothing, so
the no-overlap column is taken. The file has no graph: the model gives it, and its operators are matched in order. A
backward pass runs in exactly the reverse order of the forward operators that it differentiates.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.artefacts._csv_rows import read_rows
from simulator.errors import InputError
from simulator.workload import Profile
from traces.imports._attribution import align
from traces.imports._imported import shown

if TYPE_CHECKING:
    from traces.imports._structure import Structure

_PREFIX = "autograd::engine::evaluate_function: "
_BACKWARD_OF = {
    "ConvolutionBackward": "conv2d",
    "CudnnBatchNormBackward": "batch_norm",
    "NativeBatchNormBackward": "batch_norm",
    "MiopenBatchNormBackward": "batch_norm",
    "ReluBackward": "relu",
    "MaxPool2DWithIndicesBackward": "max_pool2d",
    "AvgPool2DBackward": "avg_pool2d",
    "AdaptiveAvgPool2DBackward": "adaptive_avg_pool2d",
    "MeanBackward": "adaptive_avg_pool2d",
    "AddmmBackward": "linear",
    "NativeDropoutBackward": "dropout",
    "NativeLayerNormBackward": "layer_norm",
    "GeluBackward": "gelu",
    "EmbeddingBackward": "embedding",
    "AddBackward": "add",
    "CatBackward": "cat",
}
_COUNT = re.compile(r"\d{1,15}")
_LOSS = ("NllLossBackward", "LogSoftmaxBackward", "MseLossBackward")
Row = Mapping[str, str]


def read(path: Path, model: str, device: str, dtype: str) -> Profile:
    """The profile of one trace.csv of a network of the zoo; the batch size follows from the first operator's input."""
    from traces.imports._structure import structure
    from traces.zoo.networks import load

    network = load(model)
    rows = read_rows(path)
    batch_size = _batch_size(path, rows, math.prod(network.input_shape))
    built = structure(network, batch_size, dtype)
    forward_s, owners = _forward(path, [row for row in rows if row.get("stage") == "forward"], built)
    backward_s = _backward(path, [row for row in rows if row.get("stage") == "backward"], built, owners)
    update_s = sum(_seconds(path, row) for row in rows if row.get("stage") == "optimizer")
    total_bytes = sum(layer.parameter_bytes for layer in built.layers) or 1
    layers = tuple(
        replace(
            layer,
            forward_s=_rounded(forward_s[i]),
            backward_s=_rounded(backward_s[i]),
            update_s=_rounded(update_s * layer.parameter_bytes / total_bytes),
        )
        for i, layer in enumerate(built.layers)
    )
    return Profile(
        model=model,
        device=device,
        batch_size=batch_size,
        dtype=dtype,
        notes="imported from TrioSim; kernel times without host gaps, in whole microseconds; structure from the model; "
        "the update (Adam) is shared out by parameters; the whole step was not measured",
        layers=layers,
    )


def _forward(path: Path, rows: Sequence[Row], built: Structure) -> tuple[list[float], list[tuple[str, int]]]:
    """Seconds of every layer, and (kind, layer) of every matched operator in order."""
    from traces.imports._structure import kind_of

    loss = len(built.layers) - 1
    calls = [call for call in built.calls if call.layer != loss]
    kinds = [kind_of(row["OperatorName"]) for row in rows]
    owners = {right: calls[left].layer for left, right in align([call.kind for call in calls], kinds) or ()}
    missing = {i for i, layer in enumerate(built.layers) if layer.parameter_bytes} - set(owners.values())
    if missing:
        name = built.layers[min(missing)].name
        raise InputError(f"{path}: it does not run layer {name!r} of the model; name the model that was traced")
    last = max(owners)
    seconds = [0.0] * len(built.layers)
    for position, row in enumerate(rows):
        if position not in owners and position < last:
            raise InputError(
                f"{path}: operator {shown(row['OperatorName'])} is none of the model's; name the model that was traced"
            )
        seconds[owners.get(position, loss)] += _seconds(path, row)
    return seconds, [(kinds[position], owners[position]) for position in sorted(owners)]


def _backward(path: Path, rows: Sequence[Row], built: Structure, owners: Sequence[tuple[str, int]]) -> list[float]:
    """Seconds of every layer's backward: its operators stand in the reverse order of the forward's."""
    seconds = [0.0] * len(built.layers)
    kinds = []
    for row in rows:
        name = row["OperatorName"].removeprefix(_PREFIX).rstrip("0123456789")
        kinds.append("loss" if name in _LOSS else _BACKWARD_OF.get(name, name))
    backwards = [("loss", len(built.layers) - 1)] * kinds.count("loss") + list(reversed(owners))
    matched = {right: left for left, right in align([kind for kind, _ in backwards], kinds) or ()}
    for position, row in enumerate(rows):
        if position not in matched:
            name = row["OperatorName"].removeprefix(_PREFIX)
            number = shown(row.get("OperatorID", ""))
            raise InputError(f"{path}: {shown(name)} (row {number}) is no layer's backward; is it this model's trace?")
        seconds[backwards[matched[position]][1]] += _seconds(path, row)
    return seconds


def _batch_size(path: Path, rows: Sequence[Row], sample: int) -> int:
    sizes = (rows[0].get("InputSize") or "").strip("[]").split(";") if rows else []
    size, rest = divmod(int(sizes[0]), sample) if sizes and _COUNT.fullmatch(sizes[0]) else (0, 0)
    if rest or not size:
        elements = shown(sizes[0] if sizes else "")
        raise InputError(
            f"{path}: its first operator reads {elements} elements, no whole number of samples of {sample}"
        )
    return size


def _seconds(path: Path, row: Row) -> float:
    text = row.get("Operator_cudatimenooverlap") or ""
    if not text.replace(".", "", 1).isdecimal() or len(text) > 15:
        raise InputError(
            f"{path}: row {shown(row.get('OperatorID'))}: Operator_cudatimenooverlap is {shown(text)}: microseconds, "
            "a number"
        )
    return float(text) / 1e6


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")
