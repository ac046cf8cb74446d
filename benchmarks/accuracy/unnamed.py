"""Runs of other sources by the software that is taken where nobody names one."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.accuracy import (
    bloom,
    dgxc,
    internevo,
    llm_foundry,
    megatron_a100,
    mlperf,
    mosaicml,
    nemo,
    primus,
    torchtitan,
    ultrascale,
)
from benchmarks.accuracy._grids import PublishedRun, all_predicted
from benchmarks.accuracy._source import Source

SOFTWARE = {
    "nanotron": lambda: [run for run in ultrascale.runs() if run.stack == "nanotron-h100"],
    "llm-foundry": lambda: [*llm_foundry.runs(), *mosaicml.runs()],
    "torchtitan": torchtitan.runs,
    "NeMo": lambda: [*dgxc.runs(), *nemo.runs(), *mlperf.runs()],
    "InternEvo": internevo.runs,
    "Megatron-LM": megatron_a100.runs,
    "Megatron-DeepSpeed": bloom.runs,
    "Primus": primus.runs,
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
        title="Dense networks of ten of these sources, their software unnamed",
        method="As who names no training stack gets them: by `fsdp-a100` or `fsdp-h100`. Left out are nanotron's "
        "runs whose hosts check collectives or wait for messages. Memory is not judged.",
        steps=[replace(step, fit="") for step in all_predicted(published)],
        commands=next(run.command for run in published if run.family == "torchtitan, dgx-h100"),
        calibrated="what is fitted to these sources' own runs, where their sections say so",
        not_expressed={},
    )
