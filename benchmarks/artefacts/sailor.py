"""Reads Sailor's profile.json: seconds of every layer by micro-batch and tensor-parallel degree.

    {micro-batch: {degree: {layer: [forward, backward, update]}}}

Layers are the embedding, the transformer blocks and the head, each one layer. llm_info.json, three folders above
(MODEL/DEVICE/profile.json inside profiles/), says what they hold. The rows of a degree above 1 hold the communication
of their group, which therefore becomes one device. Rows of micro-batch 1 do not add up to the steps measured with them
and are dropped.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from simulator.errors import InputError
from simulator.workload import Geometry, Layer, Profile, ScalingPoint
from traces.imports._imported import read_text

_LEAST_SAMPLES = 2
_BYTES = 4
_SIZES = ("params_bytes", "act_output_bytes", "act_mem_bytes")
Times = Mapping[int, Sequence[tuple[float, float, float]]]
"""Micro-batch -> (forward, backward, update) of every layer."""


def read(path: Path, degree: int, device: str) -> Profile:
    """The profile of one model on one device, or a tensor-parallel group of `degree`; InputError names the rule."""
    path = path.resolve()
    model = path.parent.parent.name
    info = path.parents[3] / "llm_info.json"
    holdings = _holdings(info, model)
    times = _times(path, degree)
    samples = max(times)
    if any(len(layers) != len(holdings) for layers in times.values()):
        raise InputError(f"{path}: its layers are not the {len(holdings)} of {model} in {info.name}")
    return Profile(
        model=model,
        device=device,
        batch_size=samples,
        notes=f"imported from Sailor at tensor-parallel degree {degree}, micro-batches {sorted(times)}"
        + (", with the communication of the group" if degree > 1 else "")
        + "; micro-batch 1 dropped, as it does not add up to its own step; sizes as in llm_info.json, in float32",
        layers=tuple(_layer(i, holdings, times) for i in range(len(holdings))),
    )


def _times(path: Path, degree: int) -> Times:
    times: dict[int, list[tuple[float, float, float]]] = {}
    for samples, by_degree in _mapping(path, _content(path)).items():
        by_layer = _mapping(path, by_degree).get(str(degree))
        if by_layer is not None and _whole_number(path, samples) >= _LEAST_SAMPLES:
            rows = sorted(_mapping(path, by_layer).items(), key=lambda item: _whole_number(path, item[0]))
            times[int(samples)] = [_row(path, row) for _, row in rows]
    if not times:
        raise InputError(f"{path}: it has no rows of degree {degree} with a micro-batch of at least {_LEAST_SAMPLES}")
    return times


def _row(path: Path, row: Any) -> tuple[float, float, float]:
    if not isinstance(row, list) or len(row) != 3 or not all(type(x) in (int, float) and 0 <= x < 1e6 for x in row):
        raise InputError(f"{path}: a layer is {str(row)[:60]}: it is [forward, backward, update] in seconds")
    return float(row[0]), float(row[1]), float(row[2])


def _holdings(path: Path, model: str) -> list[Mapping[str, int]]:
    """What every layer holds for one sample, unsplit."""
    models = _mapping(path, _content(path))
    if model not in models:
        raise InputError(f"model is {model!r}: {path} knows {', '.join(models)[:200]}")
    by_layer = _mapping(path, _mapping(path, models[model]).get("1"))
    rows = sorted(by_layer.items(), key=lambda item: _whole_number(path, item[0]))
    holdings: list[Mapping[str, int]] = []
    for _, row in rows:
        named = _mapping(path, row)
        if not all(type(named.get(name)) in (int, float) and 0 <= named[name] < 1e15 for name in _SIZES):
            raise InputError(f"{path}: a layer of {model} lacks {', '.join(_SIZES)}: bytes, at least 0")
        holdings.append({name: round(named[name]) for name in _SIZES})
    return holdings


def _layer(position: int, holdings: Sequence[Mapping[str, int]], times: Times) -> Layer:
    samples, count, holding = max(times), len(holdings), holdings[position]
    forward_s, backward_s, update_s = times[samples][position]
    name = "embedding" if not position else "head" if position == count - 1 else f"blocks.{position - 1}.transformer"
    before = {1: "embedding"}.get(position, f"blocks.{position - 2}.transformer")
    output = max(holding["act_output_bytes"], _BYTES)
    kind = "embedding" if not position else "linear" if position == count - 1 else "transformer"
    return Layer(
        name=name,
        kind=kind,
        inputs=(before,) if position else (),
        output_shape=_shape(output // _BYTES, holdings),
        forward_s=forward_s,
        backward_s=backward_s,
        update_s=update_s,
        parameter_bytes=holding["params_bytes"],
        output_bytes=output * samples,
        saved_bytes=holding["act_mem_bytes"] * samples,
        geometry=Geometry(kernel=None, mixes_channels=True),
        scaling=tuple(
            ScalingPoint(batch_size=size, forward_s=times[size][position][0], backward_s=times[size][position][1])
            for size in sorted(times)[:-1]
        ),
    )


def _shape(elements: int, holdings: Sequence[Mapping[str, int]]) -> tuple[int, int, int]:
    """(channels, positions, 1): a block of h channels has 12 h^2 + 13 h parameters, and puts out h per position."""
    if len(holdings) < 2:
        return elements, 1, 1
    channels = (math.sqrt(169 + 48 * (holdings[1]["params_bytes"] / _BYTES)) - 13) / 24
    positions = max(round(holdings[1]["act_output_bytes"] / _BYTES / max(channels, 1)), 1)
    return max(elements // positions, 1), positions, 1


def _content(path: Path) -> Any:
    try:
        return json.loads(read_text(path))
    except FileNotFoundError:
        raise InputError(f"{path}: it is missing; give Sailor's llm_info.json beside the profile") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not valid JSON ({str(error)[:80]})") from None


def _mapping(path: Path, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{path}: {str(value)[:60]!r} stands where Sailor has a mapping")
    return value


def _whole_number(path: Path, text: str) -> int:
    if not text.isdecimal() or len(text) > 9:
        raise InputError(f"{path}: key {text[:60]!r} is no whole number")
    return int(text)
