"""docs/gpu-validation.md from what a card's suite stored.

Usage: python -m benchmarks.device_card.gpu_validation FOLDER [PAGE]

FOLDER is what `python -m benchmarks.device_card --output FOLDER` wrote on the GPU machine. Every number of the page
comes from there; predictions that the machine could not make are made here, from the stored profiles alone.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import ROOT
from benchmarks.device_card import cards
from benchmarks.device_card.cards import ACCUMULATION, CHANNELS, MEMORY, PIPELINE, STEP, Card, Check, Copies
from benchmarks.device_card.predictions import predicted
from benchmarks.pages.published import table
from simulator.files import read_profile, write_text_atomic
from simulator.units import format_bytes, format_time
from simulator.workload import Profile

CNN = ("alexnet", "vgg16", "resnet50", "inception_v3")
TITLES = {
    STEP: "Steps at batch sizes that were not captured",
    ACCUMULATION: "Gradient accumulation",
    CHANNELS: "Fractions of a layer's channels that were not captured",
    MEMORY: "Peak memory",
    PIPELINE: "Pipelines whose stages share the device",
}
INTRODUCTION = """# One GPU, predicted and measured

Made by `python -m benchmarks.device_card.gpu_validation` from what `python -m benchmarks.device_card` stored:
profiles, and for each what the simulator said of the same device before it was measured. Times are medians; an error
is predicted over measured, less 1. Layers hold no launching, so a step that launching limits is longer than their
sum; as a CUDA graph it is launched at once."""


def main() -> None:
    folder = Path(sys.argv[1])
    target = Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT / "docs" / "gpu-validation.md"
    write_text_atomic(target, page(folder))


def page(folder: Path) -> str:
    """The whole page in Markdown. Raises InputError or OSError."""
    measured = [_measured(path, folder) for path in sorted((folder / "cards").glob("*.json"))]
    copies = folder / "copies.json"
    parts = [
        INTRODUCTION,
        machine(measured),
        "## In short\n\n" + promises(measured),
        "## Sum of layers against the step\n\n" + sums(measured),
        *(f"## {title}\n\n{details(measured, kind)}" for kind, title in TITLES.items() if _all(measured, kind)),
        *(["## Copies\n\n" + links(cards.read_copies(copies))] if copies.exists() else []),
        *(["## Not measured\n\n" + gaps(measured)] if gaps(measured) else []),
    ]
    return "\n\n".join(parts) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCard:
    """A profile and its card."""

    profile: Profile
    card: Card

    @property
    def own_step(self) -> Check | None:
        """The step at the batch size of the profile."""
        return next((c for c in self.card.checks if c.kind == STEP and c.batch_size == self.card.batch_size), None)


def machine(measured: Sequence[MeasuredCard]) -> str:
    """The devices and all the software that the profiles name, each once."""
    lines = []
    for device in dict.fromkeys(each.profile.device for each in measured):
        profiles = [each.profile for each in measured if each.profile.device == device]
        keys = dict.fromkeys(key for profile in profiles for key in profile.software)
        values = {key: dict.fromkeys(p.software[key] for p in profiles if key in p.software) for key in keys}
        listed = ", ".join(f"{key} {_span(list(values[key]))}" for key in keys)
        dates = sorted({profile.date for profile in profiles})
        lines.append(f"{device}, {' to '.join(dict.fromkeys((dates[0], dates[-1])))}: {listed}.")
    return "\n\n".join(lines)


def promises(measured: Sequence[MeasuredCard]) -> str:
    """What the project wants to hold to, and what it did."""
    steps = [(each, _sum_error(each)) for each in measured]
    cnn = [e for m, e in steps if m.profile.model in CNN and m.profile.batch_size >= 32 and e is not None]
    rest = [e for m, e in steps if not (m.profile.model in CNN and m.profile.batch_size >= 32) and e is not None]
    unseen, accumulated, memory = (_errors(_all(measured, kind)) for kind in (STEP, ACCUMULATION, MEMORY))
    rows = [
        _promise("sum of layers, CNNs at batch >= 32", cnn, 0.05, "each", _worst),
        _promise("sum of layers, all others", rest, 0.10, "each", _worst),
        _promise("steps at batch sizes not captured", unseen, 0.05, "mean", _mean),
        _promise("gradient accumulation", accumulated, 0.03, "each", _worst),
        _promise("peak memory", memory, 0.10, "each", _worst),
    ]
    return table(["what", "number", "mean absolute error", "bias", "worst", "to hold", "held"], rows)


def sums(measured: Sequence[MeasuredCard]) -> str:
    """Every profile's layers beside its whole step."""
    rows = []
    for each in measured:
        profile, own = each.profile, each.own_step
        graph = own.graph if own else None
        as_graph = (
            [format_time(graph), f"{profile.layers_s / graph:.3f}"] if graph else [own.no_graph if own else "", ""]
        )
        step = [format_time(profile.step_s), f"{profile.layers_to_step:.3f}"] if profile.step_s else ["", ""]
        name = [profile.model, profile.dtype, profile.batch_size]
        rows.append([*name, format_time(profile.layers_s), *step, *as_graph, profile.notes])
    head = ["network", "numbers", "batch", "sum of layers", "step", "ratio", "as a graph", "ratio", "notes"]
    return table(head, rows)


def details(measured: Sequence[MeasuredCard], kind: str) -> str:
    """Every check of a kind, in order."""
    rows = [[each.card.model, each.card.dtype, *_row(c)] for each in measured for c in _of(each, kind) if not c.skipped]
    head = ["network", "numbers", "what", "predicted", "measured", "spread", "error"]
    return table(head + (["as a graph", "error"] if kind == STEP else []), rows)


def links(copies: Copies) -> str:
    """The curves of copies, side by side."""
    sizes = sorted({size for points in copies.curves.values() for size, _ in points})
    times = {name: {int(size): seconds for size, seconds in points} for name, points in copies.curves.items()}
    rows = [[format_bytes(size), *(_copy(size, times[name].get(size)) for name in copies.curves)] for size in sizes]
    missing = "".join(f"\n\n{name}: {reason}." for name, reason in copies.skipped.items())
    return f"{copies.device}, medians of {copies.repeats}.\n\n" + table(["size", *copies.curves], rows) + missing


def gaps(measured: Sequence[MeasuredCard]) -> str:
    """What has no measurement, by reason; empty when nothing lacks one."""
    reasons: dict[str, list[str]] = {}
    for each in measured:
        for check in each.card.checks:
            if check.measured is None:
                where = f"{each.card.model} {each.card.dtype} {check.kind} {_what(check)}"
                reasons.setdefault(check.skipped or "not reached yet", []).append(where)
    return "\n".join(f"- {reason}: {len(names)}, such as {names[0]}" for reason, names in reasons.items())


def _measured(path: Path, folder: Path) -> MeasuredCard:
    source, card = folder / "profiles" / path.name, cards.read_card(path)
    if any(check.predicted is None for check in card.checks):
        card = predicted(card, source)
    return MeasuredCard(profile=read_profile(source), card=card)


def _of(each: MeasuredCard, kind: str) -> Iterable[Check]:
    """Checks of a kind that have a measurement or a reason; of steps those that were not captured."""
    return (c for c in each.card.checks if c.kind == kind and c.done and c is not each.own_step)


def _all(measured: Sequence[MeasuredCard], kind: str) -> list[Check]:
    return [check for each in measured for check in _of(each, kind) if not check.skipped]


def _errors(checks: Sequence[Check]) -> list[float]:
    return [check.error for check in checks if check.error is not None]


def _sum_error(each: MeasuredCard) -> float | None:
    return None if each.profile.layers_to_step is None else each.profile.layers_to_step - 1


def _promise(
    what: str, errors: list[float], limit: float, per: str, judged: Callable[[list[float]], float]
) -> list[object]:
    if not errors:
        return [what, 0, "", "", "", f"{limit:.0%} {per}", "not measured"]
    worst = max(errors, key=abs)
    figures = f"{_mean(errors):.1%}", f"{statistics.fmean(errors):+.1%}", f"{worst:+.1%}"
    return [what, len(errors), *figures, f"{limit:.0%} {per}", "yes" if judged(errors) <= limit else "**no**"]


def _mean(errors: list[float]) -> float:
    return statistics.fmean(map(abs, errors))


def _worst(errors: list[float]) -> float:
    return max(map(abs, errors))


def _row(check: Check) -> list[str]:
    shown: Callable[[float], str] = format_bytes if check.kind == MEMORY else format_time
    amounts = [shown(value) if value is not None else "" for value in (check.predicted, check.measured)]
    spread = shown(check.spread) if check.spread else ""
    row = [_what(check), *amounts, spread, "" if check.error is None else f"{check.error:+.1%}"]
    if check.kind != STEP:
        return row
    against = check.predicted / check.graph - 1 if check.graph and check.predicted is not None else None
    return [
        *row,
        format_time(check.graph) if check.graph else check.no_graph,
        "" if against is None else f"{against:+.1%}",
    ]


def _what(check: Check) -> str:
    words = {
        ACCUMULATION: f"{check.microbatches} x {check.batch_size // check.microbatches}",
        CHANNELS: f"{check.fraction:g} of {check.layer}, batch {check.batch_size}",
        PIPELINE: f"{check.stages} stages, {check.microbatches} x {check.batch_size // check.microbatches}",
    }
    return words.get(check.kind, f"batch {check.batch_size}")


def _copy(size: int, seconds: float | None) -> str:
    return "" if seconds is None else f"{format_time(seconds)}, {size / seconds / 1e9:.3g} GB/s"


def _span(values: list[str]) -> str:
    """One value, or the first and last of several in order."""
    return values[0] if len(values) == 1 else f"{min(values)} to {max(values)}"


if __name__ == "__main__":
    main()
