"""What the user has set: a Configuration, and its two written forms, a URL query and a command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any
from urllib.parse import parse_qsl, urlencode

from dashboard.state.inventory import label
from simulator import collectives
from simulator.lowering.schedules import SCHEDULES
from simulator.network.catalogue import presets
from simulator.one_line_parser import parsed
from simulator.plan import OPTIMIZERS

VERSION = "1"
MOST_DEVICES = 1024
MOST_SAMPLES = 65536
MOST_MICROBATCHES = 1024
TIERS = ("inter", "intra")
"""Tiers of links whose bandwidth and latency have a control each; an uploaded cluster may have others."""
FACTORS = ("inter_bandwidth", "inter_latency", "intra_bandwidth", "intra_latency", "speed")
"""Fields that multiply what the cluster says."""
DEGREES = ("tensor", "pipeline", "context", "expert")
OWN = "own"
"""The schedule that the strategy itself chooses, and the optimizer that `simulate` takes."""
RECOMPUTATION = ("none", "selective", "op", "full")
"""What is computed again before its backward pass, as strategies name it."""
SHARES_STATES = frozenset({"data", "fsdp", "megatron"})
"""Strategies whose replicas may share out states, as the stages of ZeRO."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """Everything that the controls hold; two equal ones give the same step.

    profile: an identity of the store ("vgg16@1a2b3c4d"). batch_size None is what suits the profile and the devices,
    microbatches None the strategy's choice, imbalance None its own. The four link fields multiply what the cluster's
    preset says of its tiers; 1 leaves its measured curves in place. plan: the identity of an uploaded plan, which then
    says everything that the strategy would, and the batch; empty without. optimizer OWN is what `simulate` takes.
    tensor, pipeline, context, expert: degrees of a strategy that takes them; what the first three leave of the devices
    are replicas. expert_tensor: devices of a tensor group that share each expert, all (0) or 1. chunks: virtual stages
    of a device, 0 as the schedule has them. shard_group: replicas that share out states among them, 0 all. zero_stage:
    of what replicas share out, 0 the strategy's own. recomputation: as strategies name it.
    """

    profile: str
    cluster: str
    strategy: str
    devices: int
    batch_size: int | None = None
    microbatches: int | None = None
    schedule: str = OWN
    collective: str = "ring"
    overlap: bool = True
    optimizer: str = OWN
    inter_bandwidth: float = 1.0
    inter_latency: float = 1.0
    intra_bandwidth: float = 1.0
    intra_latency: float = 1.0
    speed: float = 1.0
    imbalance: float | None = None
    effort: float = 0.1
    seed: int = 0
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    expert: int = 1
    expert_tensor: int = 0
    chunks: int = 0
    shard_group: int = 0
    zero_stage: int = 0
    recomputation: str = "none"
    plan: str = ""

    @property
    def planner(self) -> str:
        """What makes its plan: the strategy, or the uploaded plan, by name."""
        return f"plan {label(self.plan)}" if self.plan else self.strategy

    @property
    def machine(self) -> str:
        """e.g. "8 × dgx-h100"."""
        return f"{self.devices} × {label(self.cluster)}"

    def link_factors(self, tier: str) -> tuple[float, float]:
        """(factor on the bandwidth, factor on the latency) of a tier's links; 1 for a tier without controls."""
        if tier not in TIERS:
            return 1.0, 1.0
        return getattr(self, f"{tier}_bandwidth"), getattr(self, f"{tier}_latency")

    def query(self) -> str:
        """This configuration as a URL query without "?": every control, "v" first."""
        controls = {field.name: _text(getattr(self, field.name)) for field in fields(self)}
        return urlencode({"v": VERSION, **controls}, safe="@")


def from_query(query: str, default: Configuration) -> tuple[Configuration, list[str]]:
    """The configuration that a URL query holds, and a sentence for each of its values that could not be used.

    What the query lacks is taken from `default`; numbers out of range are clamped; nothing raises.
    """
    return from_values(dict(parse_qsl(query.removeprefix("?"), keep_blank_values=True)), default)


def from_values(written: Mapping[str, Any], default: Configuration) -> tuple[Configuration, list[str]]:
    """The same from values by name, such as those of the page's controls."""
    problems: list[str] = []
    values: dict[str, Any] = {}
    for field in fields(Configuration):
        kept = getattr(default, field.name)
        values[field.name] = kept
        if field.name in written:
            try:
                values[field.name], note = _READERS[field.name](written[field.name])
            except (ValueError, TypeError) as error:
                value = _short(written[field.name])
                note = f"{field.name} is {value!r}: {error}; using {_text(kept) or 'auto'}"
            problems += [note] if note else []
    if written.get("v", VERSION) != VERSION:
        problems.append(f"the link is of version {_short(written['v'])!r}, this is version {VERSION}")
    return Configuration(**values), problems


Reader = Callable[[Any], tuple[Any, str]]


@dataclass(frozen=True, slots=True)
class NumberRange:
    """The numbers that a field takes. optional: nothing, too, which leaves it to the strategy or the profile."""

    low: float
    high: float
    whole: bool = True
    optional: bool = False


NUMBERS: Mapping[str, NumberRange] = {
    "devices": NumberRange(1, MOST_DEVICES),
    "batch_size": NumberRange(1, MOST_SAMPLES, optional=True),
    "microbatches": NumberRange(1, MOST_MICROBATCHES, optional=True),
    **dict.fromkeys(FACTORS, NumberRange(1 / 1024, 1024, whole=False)),
    "imbalance": NumberRange(0.005, 1.0, whole=False, optional=True),
    "effort": NumberRange(0.02, 1.0, whole=False),
    "seed": NumberRange(0, 10**6),
    **dict.fromkeys(DEGREES, NumberRange(1, MOST_DEVICES)),
    "expert_tensor": NumberRange(0, MOST_DEVICES),
    "chunks": NumberRange(0, 64),
    "shard_group": NumberRange(0, MOST_DEVICES),
    "zero_stage": NumberRange(0, 3),
}
"""The fields that are numbers."""


def _number(name: str) -> Reader:
    """Reads a number and clamps it into its range, with a note when that changed it."""
    taken = NUMBERS[name]

    def read(raw: Any) -> tuple[float | None, str]:
        if taken.optional and raw in ("", None, "auto"):
            return None, ""
        value = parsed(str(raw))
        if value != value:
            raise ValueError("it is a whole number" if taken.whole else "it is a number")
        kept = min(max(value, taken.low), taken.high)
        note = "" if kept == value else f"{name} {value:g} is out of range; using {kept:g}"
        return (round(kept) if taken.whole else kept), note

    return read


def _one_of(known: Callable[[], Sequence[str]]) -> Reader:
    def read(raw: Any) -> tuple[str, str]:
        if raw not in known():
            raise ValueError(f"it is one of {', '.join(known())}")
        return str(raw), ""

    return read


def _strategies() -> Sequence[str]:
    import partitioners

    return partitioners.strategies()


def _switch(raw: Any) -> tuple[bool, str]:
    if raw not in (True, False, "1", "0"):
        raise ValueError("it is 1 or 0")
    return raw in (True, "1"), ""


def _cluster(raw: Any) -> tuple[str, str]:
    """A preset, or the identity of an upload."""
    return _identity(raw) if "@" in str(raw) else _one_of(presets)(raw)


def _identity(raw: Any) -> tuple[str, str]:
    return str(raw)[:200], ""


_READERS: Mapping[str, Reader] = {
    "profile": _identity,
    "cluster": _cluster,
    "strategy": _one_of(_strategies),
    "schedule": _one_of(lambda: (OWN, *SCHEDULES)),
    "collective": _one_of(collectives.names),
    "overlap": _switch,
    "optimizer": _one_of(lambda: (OWN, *OPTIMIZERS)),
    "recomputation": _one_of(lambda: RECOMPUTATION),
    "plan": _identity,
    **{name: _number(name) for name in NUMBERS},
}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def _short(value: object) -> str:
    return str(value)[:40]
