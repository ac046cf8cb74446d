"""The collectives that a recording holds: which, over how many devices, how many bytes, in what time."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from simulator.cluster import MEASURED_COLLECTIVES
from simulator.curve import Curve
from traces.imports._recording import Work

_BYTES = {"float": 4, "half": 2, "bfloat16": 2, "double": 8, "long": 8, "int": 4, "byte": 1, "char": 1, "bool": 1}
_BYTES |= {"short": 2, "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1}
_NAMES = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "alltoall": "all_to_all",
    "send": "send",
    "recv": "receive",
    "sendrecv": "send_receive",
}
_OF_ONE_DEVICE = ("all_gather", "all_to_all")
"""Whose recorded input is one device's part of what all of them move."""
_KERNELS = ("ncclkernel", "nccldevkernel", "rcclkernel", "rccldevkernel", "mscclkernel")


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveCall:
    """One collective of one rank. size_bytes: as `Cluster.collectives` counts it, 0 where the recording does not say.

    torch's ProcessGroupNCCL records "In msg nelems" of one rank: the whole tensor of an all-reduce, a broadcast and a
    reduce-scatter, whose input is the sum before it is cut; of an all-gather the part that this rank gives, and of an
    all-to-all what it sends, while a cluster counts what all devices give and send together.
    """

    name: str
    devices: int
    size_bytes: int
    seconds: float


def is_collective(work: Work) -> bool:
    """Both spellings of NCCL's kernels, RCCL's, and the Generic ones of newer versions."""
    return "Collective name" in work.arguments or work.name.lower().startswith(_KERNELS)


def collective_call(work: Work) -> CollectiveCall:
    """What a collective's kernel says of itself, or else the record_param_comms around its launch."""
    about = _described(work)
    elements, kind = about.get("In msg nelems"), str(about.get("dtype", "")).lower()
    devices = about.get("Group size")
    name = str(about.get("Collective name", "")) or work.name.partition("_")[2].partition("_")[0]
    plain = "".join(c for c in name.lower() if c.isalpha())
    name = _NAMES.get(plain) or next((known for key, known in _NAMES.items() if plain.startswith(key)), plain)
    devices = devices if isinstance(devices, int) and devices > 0 else 1
    elements = elements if isinstance(elements, int) and 0 < elements < 1 << 50 else 0
    return CollectiveCall(
        name=name or "collective",
        devices=devices,
        size_bytes=elements * _BYTES.get(kind, 0) * (devices if name in _OF_ONE_DEVICE else 1),
        seconds=work.duration_s,
    )


def group_of(work: Work) -> str:
    """The process group of a collective: its ranks, else its name, else "" of a recording that has but one."""
    about = _described(work)
    return str(about.get("Process Group Ranks") or about.get("Process Group Name") or "")


def least(calls: Sequence[Sequence[CollectiveCall]]) -> list[CollectiveCall]:
    """Of the collectives of several ranks and steps, in order, each in its least time: the others waited for someone.

    Steps that hold other collectives than most are left out.
    """
    shapes = [tuple((call.name, call.devices, call.size_bytes) for call in step) for step in calls]
    if not shapes:
        return []
    usual = statistics.mode(shapes)
    alike = [step for step, shape in zip(calls, shapes, strict=True) if shape == usual]
    return [min(each, key=lambda call: call.seconds) for each in zip(*alike, strict=True)]


def curves(calls: Sequence[CollectiveCall]) -> Mapping[str, Mapping[int, Curve]]:
    """Curves by collective and number of devices, as `Cluster.collectives` takes them, where two sizes are known."""
    points: dict[str, dict[int, dict[float, float]]] = {}
    for call in calls:
        if call.name in MEASURED_COLLECTIVES and call.size_bytes and call.seconds > 0 and call.devices > 1:
            sizes = points.setdefault(call.name, {}).setdefault(call.devices, {})
            sizes[float(call.size_bytes)] = min(call.seconds, sizes.get(float(call.size_bytes), call.seconds))
    return {
        name: {
            devices: Curve(points=tuple(sorted(sizes.items()))) for devices, sizes in groups.items() if len(sizes) > 1
        }
        for name, groups in points.items()
        if any(len(sizes) > 1 for sizes in groups.values())
    }


def _described(work: Work) -> Mapping[str, Any]:
    if "In msg nelems" in work.arguments:
        return work.arguments
    return next((each.arguments for each in work.around if "In msg nelems" in each.arguments), work.arguments)
