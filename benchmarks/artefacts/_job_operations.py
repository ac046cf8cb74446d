"""The operations of a recorded job, step by step, out of the file that ByteDance's StragglerAnalysis publishes."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from simulator.errors import InputError

FORWARD, BACKWARD = "forward-compute", "backward-compute"
_STAGE = re.compile(r"PP rank (\d{1,4})\b")
_MOST_BYTES = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One recorded operation of a worker. number: its micro-batch, or which of its kind it is in the step."""

    name: str
    replica: int
    stage: int
    number: int
    start_s: float
    duration_s: float

    @property
    def end_s(self) -> float:
        return self.start_s + self.duration_s


def steps_of(path: Path) -> dict[int, list[Operation]]:
    """Operations by step, in seconds since the first of their step, of a timeline (.json or .json.gz).

    Raises InputError naming file and rule, OSError when unreadable.
    """
    events = [event for event in _events(path) if isinstance(event, dict)]
    stages = {}
    for event in events:
        named = _STAGE.match(str(_arguments(event).get("name", ""))) if event.get("name") == "thread_name" else None
        if named:
            stages[str(event.get("pid")), str(event.get("tid"))] = int(named[1])
    steps: dict[int, list[Operation]] = defaultdict(list)
    for event in events:
        if event.get("ph") == "X":
            steps[_number(path, _arguments(event), "step", 0)].append(_operation(path, event, stages))
    if not steps or not all(_complete(step) for step in steps.values()):
        raise InputError(f"{path}: not every step has every stage's {FORWARD} and {BACKWARD}; give the timeline whole")
    return {step: _from_zero(each) for step, each in sorted(steps.items())}


def _events(path: Path) -> list[Any]:
    try:
        content = path.read_bytes()
        if content[:2] == b"\x1f\x8b":
            with gzip.open(path) as file:
                content = file.read(_MOST_BYTES)
        events = json.loads(content)
    except (EOFError, zlib.error, gzip.BadGzipFile, ValueError, RecursionError) as error:
        raise InputError(f"{path}: not a whole JSON file ({str(error)[:80]}); copy it again") from None
    if not isinstance(events, list):
        raise InputError(f"{path}: a job's timeline is a list of events")
    return events


def _arguments(event: Mapping[str, Any]) -> Mapping[str, Any]:
    arguments = event.get("args")
    return arguments if isinstance(arguments, dict) else {}


def _operation(path: Path, event: Mapping[str, Any], stages: Mapping[tuple[str, str], int]) -> Operation:
    stage = stages.get((str(event.get("pid")), str(event.get("tid"))))
    if stage is None:
        raise InputError(f"{path}: thread {str(event.get('tid'))[:20]} has no name with its PP rank")
    start, duration = event.get("ts"), event.get("dur")
    if not all(isinstance(x, int | float) and not isinstance(x, bool) and 0 <= x < 1e15 for x in (start, duration)):
        raise InputError(f"{path}: {str(event.get('name'))[:40]} has no ts and dur in microseconds")
    name, arguments = str(event.get("name")), _arguments(event)
    compute = name in (FORWARD, BACKWARD)
    return Operation(
        name=name,
        replica=_number(path, event, "pid", 0),
        stage=stage,
        number=_number(path, arguments, "mb_id" if compute else "seq_id", 0),
        start_s=float(event["ts"]) / 1e6,
        duration_s=float(event["dur"]) / 1e6,
    )


def _number(path: Path, mapping: Mapping[str, Any], key: str, least: int) -> int:
    value = mapping.get(key)
    if type(value) is not int or not least <= value < 1 << 20:
        raise InputError(f"{path}: {key} is {str(value)[:40]!r}: it is a whole number of at least {least}")
    return value


def _complete(step: Sequence[Operation]) -> bool:
    """Whether all workers of a step, as many on every stage, ran the same micro-batches forward and backward."""
    passes = {
        (name, each): sorted(o.number for o in step if o.name == name and (o.replica, o.stage) == each)
        for name in (FORWARD, BACKWARD)
        for each in {(o.replica, o.stage) for o in step}
    }
    replicas, stages = (1 + max(getattr(o, name) for o in step) for name in ("replica", "stage"))
    numbers = list(range(max((o.number for o in step if o.name == FORWARD), default=-1) + 1))
    return len(passes) == 2 * replicas * stages and all(numbers and each == numbers for each in passes.values())


def _from_zero(step: Sequence[Operation]) -> list[Operation]:
    first = min(each.start_s for each in step)
    return sorted((replace(each, start_s=each.start_s - first) for each in step), key=lambda each: each.start_s)
