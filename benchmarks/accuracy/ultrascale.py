"""The Ultra-Scale Playbook's runs on 8 to 128 H100 by the stack that ships: a sample of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.accuracy._grids import PredictedRun, verdicts
from benchmarks.language_models import published_runs, rank_and_regret, some_predicted, usable_rows
from benchmarks.published import table

EVERY = 6
"""A run of so many is simulated."""


def _figures(name: str, runs: Sequence[PredictedRun]) -> list[str]:
    """A row of the table: errors of steps and memory, rank and regret, and how many steps lie in their interval."""
    steps = np.array([each.step.error for each in runs])
    peaks = np.array([each.peak_error for each in runs], dtype=float)
    rank, regret, worst = rank_and_regret(runs)
    return [
        name, str(len(runs)), f"{np.median(abs(steps)):.1%}", f"{abs(steps).mean():.1%}", f"{steps.mean():+.1%}",
        f"{rank:.3f}", f"{regret:.1%} / {worst:.0%}", f"{np.mean([each.inside for each in runs]):.0%}",
        f"{np.median(abs(peaks)):.1%}",
    ]  # fmt: skip


def section() -> str:
    """The section of the page."""
    sample_runs = published_runs(usable_rows()[::EVERY])
    done, refused = some_predicted(sample_runs)
    narrow = [each for each in done if each.run.grid.tensor <= 8]
    lines = [_figures("all", done)]
    lines += [
        _figures(model, [each for each in done if each.run.card.name == model])
        for model in ("llama-1b-ultrascale", "llama-8b-ultrascale")
    ]
    lines.append(_figures("tensor groups inside a node", narrow))
    headings = ["runs", "steps", "median", "mean", "bias", "rank", "regret", "in interval", "memory"]
    return f"""## Llama-like 1B and 8B on 8 to 128 H100, every grid (Ultra-Scale Playbook)

Every {EVERY}th of the clean runs, by the stack `nanotron-h100`, which was calibrated on this benchmark, and the network
of the preset `p5`, as they ran on EFA: what the mechanisms leave over. Tensor groups across nodes come out much too
short: a gather of 17 MB over 16 GPUs on two nodes takes 0.8 ms in these runs, at any size below 100 MB, where NCCL's
own tests on such nodes take 0.2 ms. Regret is how much longer the plan takes that was predicted best than the
best measured one of the sample, mean and worst; memory is the median error of the first device's peak. One of them:

    {narrow[0].run.command}

{table(headings, lines)}

{verdicts(done)}
Left out: {len(refused)} of them, which leave a pipeline's stage without a block, as no plan can say.
Noise floor: one plan alone was run twice, in 19.0 and 88.9 s; the second is suspect."""
