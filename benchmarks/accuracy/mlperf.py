"""MLPerf Training's language models: GPT-3 175B, Llama 3.1 405B and 8B on 8 to 11,616 H100 to GB300.

`mlperf_runs.csv` has them: MLCommons, training_results_v3.0 to v5.1, Apache-2.0. A step is the median
of what the first three logs of a result say (`train_step_timing`, `train_step_time`; in v4.0 blocks of training over
their steps); plans are those of the results' own configurations (config_*.sh and conf/custom.yaml), whose gradients are
summed in 16 bits and whose products are of 8. Results whose folder has several configurations of that size were left
out, and those in NVFP4.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.accuracy._grids import PublishedRun, all_predicted
from benchmarks.accuracy._recipes import PRESETS, named, recipe, rows
from benchmarks.accuracy._source import Source

RUNS = Path(__file__).parent / "mlperf_runs.csv"
FAMILIES = {"gpt3-175b": "GPT-3 175B", "llama3-405b": "Llama 3.1 405B", "llama3-8b": "Llama 3.1 8B"}


def _run(row: dict[str, str]) -> PublishedRun:
    card, grid = recipe(row)
    return PublishedRun(
        name=f"{named(row, card, grid)}, v{row['round']}, {row['submitter']}", grid=grid, card=card,
        preset=PRESETS[row["gpu"]], precision=row["precision"], gradient_dtype="bfloat16", stack="nemo-h100",
        family=FAMILIES[row["network"]], software=FAMILIES[row["network"]], measured_s=float(row["step_s"]),
        setting=f", v{row['round']}, {row['submitter']}",
    )  # fmt: skip


def runs() -> list[PublishedRun]:
    """Every result."""
    return [_run(row) for row in rows(RUNS)]


def source() -> Source:
    published = runs()
    return Source(
        title="GPT-3 175B, Llama 3.1 405B and 8B in 8 bits on 8 to 11,616 GPUs (MLPerf Training 3.0 to 5.1)",
        method="By `nemo-h100`, with gradients in 16 bits, as the configurations of eleven submitters have them. A "
        "plan of GPT-3 took 8 to 9% less in round 3.1 than in 3.0. CUDA graphs of whole steps and parameters "
        "gathered in 8 bits, which many results have from round 4.0 on, are not modelled.",
        steps=all_predicted(published),
        commands=published[12].command,
        noise_floor="a plan that several submitters ran on one kind of cluster differs by 0.4 to 1.7%",
        not_expressed={"in NVFP4, or of which several plans are published": 23, "on MI350X and MI355X": 6},
    )
