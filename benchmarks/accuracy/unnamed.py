"""Runs of other sources by the software that is taken where nobody names one."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.accuracy import dgxc, internevo, mosaicml, nvidia_fp8, torchtitan
from benchmarks.accuracy._grids import PublishedRun, all_predicted
from benchmarks.accuracy._source import Source

SOFTWARE = {
    "llm-foundry": mosaicml.runs,
    "torchtitan": torchtitan.runs,
    "NeMo": lambda: [*dgxc.runs(), *nvidia_fp8.runs()],
    "InternEvo": internevo.runs,
}


def runs() -> list[PublishedRun]:
    """Every run of a dense network, without its software."""
    named = [(software, run) for software, published in SOFTWARE.items() for run in published()]
    return [_unnamed(software, run) for software, run in named if not run.card.routing]


def _unnamed(software: str, run: PublishedRun) -> PublishedRun:
    family = f"{software}, {run.preset}"
    return replace(run, stack=None, attention=None, peak_bytes=None, note="", family=family, software=software)


def source() -> Source:
    published = runs()
    return Source(
        title="Dense networks of five of these sources, their software unnamed",
        method="As who names no training stack gets them: on H100 by `nanotron-h100`, on other GPUs by `megatron-a100`"
        ". Memory is not judged.",
        steps=[replace(step, fit="") for step in all_predicted(published)],
        commands=next(run.command for run in published if run.family == "torchtitan, dgx-h100"),
        calibrated="what is fitted to these sources' own runs, where their sections say so",
        not_expressed={},
    )
