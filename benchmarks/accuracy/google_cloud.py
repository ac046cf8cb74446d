"""Steps in Google's recipes for its machines of H100, H200 and B200: NeMo, and MaxText, which is JAX.

Figures: AI-Hypercomputer/gpu-recipes, the logs that its pages show beside the configurations that they are of, from
commits 916aa8e (GPT-3), 24ba6df and 3a1db07 (Llama 3 on H100), d57d222 (Llama 2), 7fa4518, 1a3020b, bd6c259 and a3b9cab
(H200), 6d85af4, 0211dc1 and 5be5988 (B200), Apache-2.0.
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks.accuracy._grids import PublishedRun, all_predicted
from benchmarks.accuracy._source import Source
from simulator.language_models.card_files import read_card
from simulator.language_models.training_grid import TrainingGrid

MACHINES = {"A3 Mega": ("dgx-h100", "inter=1600Gbps"), "A3 Ultra": ("dgx-h200", ""), "A4": ("dgx-b200", "")}
"""The preset of each, and its network where it is another."""
GPT2_VOCABULARY = 50_304
"""Of NeMo's runs, by their tokenizer."""


def _nemo(
    machine: str, model: str, gpus: int, batch: int, measured_s: float, *, precision: str | None = "fp8",
    sequence: int = 8192, tensor: int = 1, pipeline: int = 1, context: int = 1, chunks: int = 1, expert: int = 1,
    microbatch: int = 1, overlaps: bool = False,
) -> PublishedRun:  # fmt: skip
    """overlaps: its `ub_tp_comm_overlap`."""
    data = gpus // (tensor * pipeline * context)
    grid = TrainingGrid(
        data=data, tensor=tensor, pipeline=pipeline, context=context, chunks=chunks, expert=expert, zero_stage=1,
        microbatch=microbatch, accumulation=batch // (data * microbatch),
    )  # fmt: skip
    run = _run(machine, model, grid, sequence, measured_s, "nemo-h100" if overlaps else "megatron-a100", precision)
    return replace(run, card=replace(run.card, vocabulary=GPT2_VOCABULARY), software="NeMo")


def _maxtext(
    machine: str, model: str, data: int, microbatch: int, measured_s: float, *, precision: str | None = None,
    shard_group: int = 0, sequence: int = 8192, recomputation: str = "full",
) -> PublishedRun:  # fmt: skip
    grid = TrainingGrid(
        data=data, zero_stage=3, shard_group=shard_group, microbatch=microbatch, recomputation=recomputation
    )
    return replace(_run(machine, model, grid, sequence, measured_s, None, precision), software="MaxText")


def _run(
    machine: str, model: str, grid: TrainingGrid, sequence: int, measured_s: float, stack: str | None,
    precision: str | None,
) -> PublishedRun:  # fmt: skip
    preset, bandwidth = MACHINES[machine]
    card = replace(read_card(model), sequence=sequence)
    name = f"{model} on {grid.devices} of {machine}, {'MaxText' if stack is None else 'NeMo'}, {precision or 'bf16'}"
    family = "mixtures" if card.routing else "MaxText" if stack is None else "NeMo"
    return PublishedRun(
        name=name, card=card, grid=grid, preset=preset, bandwidth=bandwidth, stack=stack, precision=precision,
        measured_s=measured_s, family=family,
    )  # fmt: skip


def runs() -> list[PublishedRun]:
    """Every run that a page shows a step of."""
    return [
        _nemo("A3 Mega", "gpt3-175b", 256, 2048, 25.1156, sequence=2048, tensor=4, pipeline=8, chunks=2),
        _nemo("A3 Mega", "llama3-70b", 128, 1024, 45.8136, tensor=4, pipeline=4, context=2, chunks=5),
        _nemo(
            "A3 Mega", "llama3-70b", 256, 2048, 67.8204, tensor=4, pipeline=4, context=2, chunks=4, precision=None
        ),
        _nemo("A3 Ultra", "llama3-70b", 256, 1024, 20.0213, tensor=2, pipeline=4, chunks=20),
        _nemo("A3 Ultra", "llama3-405b", 576, 2016, 92.2874, tensor=8, pipeline=9, chunks=14, overlaps=True),
        _nemo("A4", "llama3-70b", 256, 2048, 19.9545, tensor=2, pipeline=4, chunks=20, overlaps=True),
        _nemo(
            "A4", "llama3-405b", 224, 2016, 118.1897, tensor=4, pipeline=14, context=2, chunks=9, overlaps=True
        ),
        _nemo("A3 Ultra", "mixtral-8x7b", 256, 1024, 2.7396, sequence=4096, expert=8, microbatch=2, precision=None),
        _nemo("A4", "mixtral-8x7b", 256, 1024, 1.0826, sequence=4096, expert=8, microbatch=4),
        _maxtext("A3 Mega", "llama2-7b", 256, 4, 1.5, shard_group=8, sequence=4096, recomputation="layernorm"),
        _maxtext("A3 Ultra", "llama3-70b", 256, 2, 15.516, shard_group=128, recomputation="layernorm+mlp"),
        _maxtext("A4", "llama3-70b", 256, 8, 20.935, precision="fp8"),
        _maxtext("A4", "llama3-405b", 256, 2, 28.294, precision="fp8", shard_group=128),
    ]  # fmt: skip


def source() -> Source:
    published = runs()
    return Source(
        title="Llama, GPT-3 and Mixtral on 128 to 576 H100, H200 and B200 (Google's recipes)",
        method="NeMo by `megatron-a100`, and by `nemo-h100` where products overlap their exchanges; MaxText, which is "
        "JAX, by the stack that is taken where none is named. What MaxText keeps of a block under two of its policies "
        "is what modules of Megatron-LM's names keep. Memory is not judged: gradients are summed in 16 bits.",
        steps=[replace(step, fit="") for step in all_predicted(published)],
        commands=published[3].command,
        calibrated="nothing",
        not_expressed={"Mixtral under MaxText, with a policy of its own": 1},
    )
