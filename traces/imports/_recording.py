"""Reads the files that torch.profiler writes (Kineto's trace-event JSON, plain or gzip'ed).

An operator, an annotation or a call into the GPU's driver is a Span of a host thread; a kernel, copy or memset is Work
of the GPU, joined to the call that launched it by its correlation. The spans of a thread nest, which makes them trees.

    thread 1   ProfilerStep#4 ------------------------------------------------------
                 aten::conv2d --------------------   aten::batch_norm -------- ...
                   aten::cudnn_convolution ------
                     cudaLaunchKernel 17
    stream 7                              kernel 17 ===========
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from simulator.errors import InputError
from traces.imports._imported import read_text, writable

OPTIMIZER_STEP = "Optimizer.step"
PROFILER_STEP = "ProfilerStep#"
BACKWARD = "autograd::engine::evaluate_function: "
_HOST = frozenset({"cpu_op", "user_annotation", "operator"})
_CALLS = frozenset({"cuda_runtime", "cuda_driver", "hip_runtime", "xpu_runtime", "runtime"})
_WORK = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"})
_READ = {
    *("correlation", "device", "dtype", "Collective name", "External id", "Group size", "In msg nelems"),
    *("Input Dims", "Input type", "Process Group Name", "Process Group Ranks", "Sequence number"),
}
"""The arguments of events that are read; the others are most of a long file."""


@dataclass(slots=True, eq=False, kw_only=True)
class _Event:
    """What both have; times in seconds since the first event."""

    name: str
    start_s: float
    duration_s: float
    arguments: Mapping[str, Any]

    @property
    def end_s(self) -> float:
        return self.start_s + self.duration_s


@dataclass(slots=True, eq=False, kw_only=True)
class Span(_Event):
    """Something on a host thread. `parent` is the span around it."""

    thread: object
    annotation: bool
    launches: bool
    parent: Span | None = None

    @property
    def sequence(self) -> int | None:
        """The number that joins an operator to its backward; None for an operator without one."""
        number = self.arguments.get("Sequence number")
        return number if isinstance(number, int) and number >= 0 else None


@dataclass(slots=True, eq=False, kw_only=True)
class Work(_Event):
    """A kernel, copy or memset on the GPU, or on a CPU what an operator does itself; `origin` is who launched it."""

    origin: Span | None

    @property
    def span_s(self) -> tuple[float, float]:
        """When it began and ended."""
        return self.start_s, self.end_s

    @property
    def around(self) -> Iterator[Span]:
        """Who launched it, and the spans around that, outwards."""
        return around(self.origin)


def around(span: Span | None) -> Iterator[Span]:
    """A span and those around it, outwards."""
    while span is not None:
        yield span
        span = span.parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """What one process did. spans: of all threads, by start; `device` is "cpu" where no GPU worked."""

    path: Path
    spans: Sequence[Span]
    work: Sequence[Work]
    device: str
    rank: int = 0
    software: Mapping[str, str] = field(default_factory=dict)


def read_recording(path: Path) -> Recording:
    """Raises InputError when the file is cut off or no recording of torch.profiler, OSError when unreadable."""
    content = _content(path)
    events = content.get("traceEvents") if isinstance(content, dict) else content
    if not isinstance(events, list):
        raise InputError(f"{path}: it has no list traceEvents; give the JSON that torch.profiler exports")
    kept = [_checked(path, event) for event in events if isinstance(event, dict) and event.get("ph") == "X"]
    if not any(event["cat"] in _HOST for event in kept):
        raise InputError(f"{path}: it has no operators; record with activities=[ProfilerActivity.CPU, ...]")
    origin_us = min(event["ts"] for event in kept)
    spans, calls = _spans(kept, origin_us)
    work = _gpu_work(kept, origin_us, calls, spans) or _host_work(spans)
    about: dict[str, Any] = content if isinstance(content, dict) else {}
    ranks: Any = about.get("distributedInfo")
    ranks = ranks if isinstance(ranks, dict) else {}
    return Recording(
        path=path,
        spans=spans,
        work=work,
        device=_device(about, work) if work and any(each["cat"] in _WORK for each in kept) else "cpu",
        rank=_whole_number(ranks, "rank", 0),
        software={"nccl": writable(ranks["nccl_version"])} if isinstance(ranks.get("nccl_version"), str) else {},
    )


def _content(path: Path) -> Any:
    text = read_text(path)
    try:
        return json.loads(text, object_hook=_without_the_rest)
    except json.JSONDecodeError as error:
        cut = "the file ends too early; copy it again, whole" if error.pos >= len(text.rstrip()) - 1 else error.msg
        raise InputError(f"{path}: line {error.lineno}, column {error.colno}: not valid JSON: {cut}") from None
    except (RecursionError, ValueError) as error:
        raise InputError(f"{path}: not the JSON of a profiler: {str(error)[:80]}") from None


def _without_the_rest(entry: dict[str, Any]) -> dict[str, Any] | None:
    """Drops at once the events that nobody reads, and the arguments of the others: most of a long file."""
    if "ph" not in entry:
        return entry
    category = entry.get("cat")
    if entry["ph"] != "X" or not isinstance(category, str) or category.lower() not in _HOST | _CALLS | _WORK:
        return None
    name, arguments = entry.get("name"), entry.get("args")
    if isinstance(name, str):
        entry["name"] = sys.intern(name)
    if isinstance(arguments, dict):
        entry["args"] = {key: value for key, value in arguments.items() if key in _READ}
    return entry


def _checked(path: Path, event: dict[str, Any]) -> dict[str, Any]:
    name = event.get("name")
    if not isinstance(name, str):
        _refuse(path, f"an event's name is {str(name)[:60]!r}", "it is a text")
    for key in ("ts", "dur"):
        value: Any = event.get(key)
        number = not isinstance(value, bool) and isinstance(value, int | float)
        if not number or not abs(value) < 1e18 or (key == "dur" and value < 0):
            _refuse(path, f"{key} of {name[:60]!r} is {str(value)[:60]!r}", "it is a finite number of microseconds")
    arguments = event.get("args", {})
    if not isinstance(arguments, dict):
        _refuse(path, f"args of {name[:60]!r} is {str(arguments)[:60]!r}", "it maps names to values")
    thread = (sys.intern(str(event.get("pid"))), sys.intern(str(event.get("tid"))))
    event |= {"name": sys.intern(writable(name)), "cat": event["cat"].lower(), "args": arguments, "thread": thread}
    return event


def _spans(events: Sequence[dict[str, Any]], origin_us: float) -> tuple[list[Span], dict[Any, Span]]:
    """All spans, each with the one around it, and the calls into the driver by correlation.

    Clocks are rounded to as much as 0.25 us, so a span is inside another when its middle is.
    """
    spans = [_span(event, origin_us) for event in events if event["cat"] in _HOST | _CALLS]
    spans.sort(key=lambda span: (span.start_s, -span.duration_s, _whole_number(span.arguments, "External id", 0)))
    open_spans: dict[object, list[Span]] = {}
    calls = {}
    for span in spans:
        stack = open_spans.setdefault(span.thread, [])
        while stack and stack[-1].end_s <= span.start_s + span.duration_s / 2:
            stack.pop()
        span.parent = stack[-1] if stack else None
        if span.launches:
            calls[_key(span.arguments.get("correlation"))] = span
        else:
            stack.append(span)
    return spans, calls


def _span(event: dict[str, Any], origin_us: float) -> Span:
    return Span(
        **_common(event, origin_us),
        thread=event["thread"],
        annotation=event["cat"] == "user_annotation" or event["name"].startswith((PROFILER_STEP, "Optimizer.")),
        launches=event["cat"] in _CALLS,
    )


def _common(event: dict[str, Any], origin_us: float) -> dict[str, Any]:
    """The fields that spans and work have in common."""
    start_s, duration_s = (event["ts"] - origin_us) / 1e6, event["dur"] / 1e6
    return {"name": event["name"], "start_s": start_s, "duration_s": duration_s, "arguments": event["args"]}


def _gpu_work(
    events: Sequence[dict[str, Any]], origin_us: float, calls: Mapping[Any, Span], spans: Sequence[Span]
) -> list[Work]:
    """What ran on the GPU, with the operator that launched it: by correlation, else by its External id."""
    by_identity = {_key(span.arguments.get("External id")): span for span in spans if not span.launches}
    work = []
    for event in events:
        if event["cat"] in _WORK:
            call = calls.get(_key(event["args"].get("correlation")))
            origin = call.parent if call is not None else by_identity.get(_key(event["args"].get("External id")))
            if (call is not None and "GraphLaunch" in call.name) or _is_compiled(origin):
                origin = None
            work.append(Work(**_common(event, origin_us), origin=origin))
    return sorted(work, key=lambda each: each.start_s)


def _is_compiled(span: Span | None) -> bool:
    """Whether an operator runs inside a compiled region, which has operators of its own making."""
    compiled = ("Torch-Compiled Region", "## Call CompiledFxGraph", "CompiledFunction", "triton_")
    return any(each.name.startswith(compiled) for each in around(span))


def _host_work(spans: Sequence[Span]) -> list[Work]:
    """On a CPU every operator is its own work: its duration without that of the spans inside it."""
    inside: dict[int, float] = {}
    for span in spans:
        if span.parent is not None:
            inside[id(span.parent)] = inside.get(id(span.parent), 0.0) + span.duration_s
    return [
        Work(
            name=span.name,
            start_s=span.start_s,
            duration_s=max(span.duration_s - inside.get(id(span), 0.0), 0.0),
            arguments={},
            origin=span,
        )
        for span in spans
        if not span.launches and (not span.annotation or span.name.startswith(OPTIMIZER_STEP))
    ]


def _device(about: Mapping[str, Any], work: Sequence[Work]) -> str:
    """The name of the GPU that the work ran on."""
    cards = about.get("deviceProperties")
    cards = [card for card in cards if isinstance(card, dict)] if isinstance(cards, list) else []
    names = {_key(card.get("id")): writable(card["name"]) for card in cards if isinstance(card.get("name"), str)}
    used = _key(next((each.arguments["device"] for each in work if "device" in each.arguments), None))
    return names.get(used) or next(iter(names.values()), "GPU of a torch.profiler trace")


def _whole_number(mapping: Mapping[str, Any], key: str, default: int) -> int:
    value = mapping.get(key)
    return value if isinstance(value, int) and 0 <= value < 1 << 62 else default


def _key(value: object) -> object:
    """A value that can be looked up; lists and mappings, which no identity is, all become None."""
    return value if isinstance(value, int | str) else None


def _refuse(path: Path, what: str, rule: str) -> NoReturn:
    raise InputError(f"{path}: {what}: {rule}")
