"""Lines that launch a grid: every option is one of the runtime's, its own rules hold, and processes make the mesh."""

from __future__ import annotations

import re
from dataclasses import replace

import laws
import pytest
from command_line import options_in
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from simulator import file_gate
from simulator.cli import main
from simulator.errors import InputError, UnknownNameError
from simulator.exports.launch import LAUNCHED, launch_command, launched_by, pinned
from simulator.exports.megatron import layout
from simulator.language_models.card_files import cards, read_card
from simulator.language_models.grids import candidate_grids
from simulator.language_models.training_grid import RECOMPUTATION, TrainingGrid
from simulator.language_models.training_stack import read_stack

CARD = read_card("llama3-8b")
GRIDS = {
    name: list(candidate_grids(replace(read_card(name), sequence=4096), devices, 64))
    for name in ("llama3-8b", "mixtral-8x7b", "qwen3-30b-a3b", "deepseek-v3", "gpt2-xl")
    for devices in (16, 64)
}


def drawn() -> st.SearchStrategy[tuple[str, TrainingGrid]]:
    pairs = [(name, grid) for name, grids in GRIDS.items() for grid in grids]
    return st.builds(
        lambda pair, kind: (pair[0], replace(pair[1], recomputation=kind)),
        st.sampled_from(pairs), st.sampled_from(RECOMPUTATION),
    )  # fmt: skip


@settings(max_examples=laws.examples(60, 300), deadline=None)
@given(drawn(), st.sampled_from(LAUNCHED), st.sampled_from(["h100", "v100"]))
def test_every_option_is_one_of_the_runtime(pair: tuple[str, TrainingGrid], runtime: str, gpu: str) -> None:
    name, grid = pair
    try:
        text = launch_command(runtime, read_card(name), grid, gpu)
    except InputError as error:
        assert re.search(r" is |card |take ", str(error)), "a refusal says value and remedy"
        assume(False)
    line = text if runtime == "fsdp2" else text.partition("\n")[2]
    nodes, processes = map(int, re.findall(r"--(?:nnodes|nproc-per-node) (\d+)", line))
    assert nodes * processes == grid.devices
    assert gpu != "v100" or not re.search("bf16|bfloat16", line)
    if runtime in ("megatron", "torchtitan"):
        unknown = [option for option in options_in(line) if option not in pinned(runtime).arguments]
        assert not unknown, f"{pinned(runtime).version} has no {unknown}"
    if runtime == "nanotron":
        keys = set(_keys(file_gate.yaml_content(line.partition("# config.yaml\n")[2]), ""))
        assert keys <= pinned("nanotron").arguments


def _keys(content: object, parent: str) -> list[str]:
    if not isinstance(content, dict):
        return [parent]
    return [name for key, part in content.items() for name in _keys(part, f"{parent}.{key}".lstrip("."))]


@pytest.mark.parametrize("name", cards())
def test_megatron_has_a_line_for_every_card(name: str) -> None:
    text = launch_command("megatron", read_card(name), TrainingGrid(data=8, zero_stage=1))
    assert not set(options_in(text)) - pinned("megatron").arguments
    assert ("--kv-channels" in text) == (read_card(name).width * read_card(name).heads != read_card(name).hidden) or (
        read_card(name).latent
    )


WIDE = TrainingGrid(data=8, context=2, tensor=4, expert=2, zero_stage=1, microbatch=2, accumulation=4)
SHARED = TrainingGrid(data=32, zero_stage=3, recomputation="full", microbatch=2, accumulation=4)


@pytest.mark.parametrize(
    ("runtime", "card", "grid", "options"),
    [
        ("megatron", "mixtral-8x7b", WIDE, ("--context-parallel-size 2", "--expert-model-parallel-size 2",
                                            "--moe-router-topk 2", "--tensor-model-parallel-size 4",
                                            "--use-distributed-optimizer", "CUDA_DEVICE_MAX_CONNECTIONS=1")),
        ("megatron", "mixtral-8x7b", replace(WIDE, expert=8, expert_tensor=1), (
            "--expert-model-parallel-size 8 --expert-tensor-parallel-size 1",)),
        ("megatron", "llama3-8b", SHARED, ("--data-parallel-sharding-strategy optim_grads_params",
                                           "--recompute-granularity full")),
        ("megatron", "llama3-8b", replace(SHARED, zero_stage=2), ("--overlap-grad-reduce", "strategy optim_grads")),
        ("megatron", "llama3-8b", replace(SHARED, zero_stage=0), ("--overlap-grad-reduce",)),
        ("megatron", "qwen3-32b", SHARED, ("--kv-channels 128", "--qk-layernorm")),
        ("megatron", "qwen2.5-7b", SHARED, ("--add-qkv-bias", "--disable-bias-linear")),
        ("megatron", "gpt2", SHARED, ("--bf16",)),
        ("megatron", "deepseek-v3", replace(SHARED, zero_stage=1), ("--multi-latent-attention", "--q-lora-rank 1536",
                                                                    "([0]*3+[1]*58)", "--ffn-hidden-size 18432")),
        ("torchtitan", "qwen3-30b-a3b", replace(WIDE, zero_stage=2, expert_tensor=1), (
            "context_parallel_degree 2", "expert_parallel_degree 2", "tensor_parallel_degree 4",
            "data_parallel_shard_degree 8", "num_tokens_per_train_step 262144", "--config qwen3_30b_a3b")),
        ("torchtitan", "llama3-8b", SHARED, ("data_parallel_shard_degree 32", "fsdp_reshard_after_forward always",
                                             "activation-checkpoint:full")),
        ("nanotron", "mixtral-8x7b", replace(WIDE, expert=1), ("context_parallel_size: 2", "num_experts: 8", "tp: 4")),
        ("fsdp2", "llama3-8b", SHARED, ("(32,)", "reshard_after_forward=True", "checkpoint_wrapper")),
        ("fsdp2", "llama3-8b", TrainingGrid(data=16, zero_stage=1), ("DistributedDataParallel", "ZeroRedundancy")),
        ("fsdp2", "llama3-8b", TrainingGrid(data=8, accumulation=4), ("# 4 micro-batches of 1 sequence, all but",)),
        ("fsdp2", "llama3-8b", TrainingGrid(data=8, microbatch=2), ("# one micro-batch of 2 sequences, all but",)),
    ],
)  # fmt: skip
def test_every_degree_stands_where_the_runtime_reads_it(
    runtime: str, card: str, grid: TrainingGrid, options: tuple[str, ...]
) -> None:
    text = launch_command(runtime, read_card(card), grid)
    assert [option for option in options if option not in text] == []


def test_the_first_runtime_that_can_run_a_grid_launches_it() -> None:
    """Megatron-LM's FSDP shares out no experts and torchtitan's ZeRO no stage 1; the first says why where none can."""
    shared = TrainingGrid(data=8, expert=4, zero_stage=3)
    for card, grid, runtime in (
        ("qwen3-30b-a3b", replace(shared, zero_stage=1), "megatron"),
        ("qwen3-30b-a3b", shared, "torchtitan"),
        ("llama3-8b", TrainingGrid(data=8, zero_stage=3), "fsdp2"),
    ):
        expected = runtime, launch_command(runtime, read_card(card), grid)
        assert launched_by(read_card(card), grid, read_stack("fsdp-h100")) == expected
    with pytest.raises(InputError, match="shards dense blocks"):
        launched_by(read_card("mixtral-8x7b"), shared, read_stack("fsdp-h100"))
    with pytest.raises(InputError, match="shards dense blocks"):
        launched_by(read_card("qwen3-30b-a3b"), shared, read_stack("fsdp-h100"), runtime="megatron")


@pytest.mark.parametrize(
    ("devices", "of_node", "hosts", "of_host"), [(256, 64, 64, 4), (72, 72, 18, 4), (6, 72, 2, 3), (2, 72, 1, 2)]
)
def test_a_rack_is_several_hosts(devices: int, of_node: int, hosts: int, of_host: int) -> None:
    """Of four GB200 at most, as many on each; eight H100 are a host."""
    for gpu, expected in (
        ("gb200", (hosts, of_host)),
        ("h100", (devices // min(devices, of_node), min(devices, of_node))),
    ):
        text = launch_command("megatron", CARD, TrainingGrid(data=devices, node_devices=of_node), gpu)
        assert "torchrun --nnodes {} --nproc-per-node {} ".format(*expected) in text


def test_uneven_stages_are_laid_out() -> None:
    """33 blocks and more on 4 stages."""
    text = launch_command("megatron", replace(CARD, layers=33), TrainingGrid(pipeline=4, accumulation=4))
    assert '--pipeline-model-parallel-layout "Et*9|t*8|t*8|t*8L"' in text
    assert layout((2, 1)) == "Et*2|t*1L"
    assert "layout" not in launch_command("megatron", CARD, TrainingGrid(pipeline=4, accumulation=4))


@pytest.mark.parametrize(
    ("runtime", "card", "grid", "gpu", "message"),
    [
        ("fsdp2", "llama3-8b", TrainingGrid(tensor=2), "h100", "plain FSDP2"),
        ("nanotron", "llama3-8b", TrainingGrid(data=2, zero_stage=3), "h100", "nanotron has ZeRO-0 and -1"),
        ("nanotron", "mixtral-8x7b", TrainingGrid(data=2, expert=2), "h100", "lays its mesh out for 1"),
        ("nanotron", "gpt2", TrainingGrid(), "h100", "Llama's and Qwen 2's"),
        ("nanotron", "llama3-8b", TrainingGrid(), "v100", "needs bf16"),
        ("megatron", "mixtral-8x7b", TrainingGrid(data=2, zero_stage=3, expert=2), "h100", "shards dense blocks"),
        ("megatron", "llama3-8b", TrainingGrid(data=13), "h100", "devices is 13: nodes of 8"),
        ("torchtitan", "llama3-8b", TrainingGrid(data=2, zero_stage=1), "h100", "shards all states or none"),
        ("torchtitan", "qwen3-30b-a3b", TrainingGrid(data=4, expert=4), "h100", "divides shard x context x tensor, 1"),
        (
            "torchtitan",
            "qwen3-30b-a3b",
            TrainingGrid(data=4, tensor=2, expert=4, zero_stage=2),
            "h100",
            "splits no expert over a tensor group",
        ),
        ("torchtitan", "gpt2", TrainingGrid(), "h100", "no configuration of it"),
        ("torchtitan", "llama3-8b", TrainingGrid(pipeline=4, accumulation=2), "h100", "as many micro-batches"),
        ("torchtitan", "llama3-8b", TrainingGrid(), "v100", "trains in bf16"),
    ],
)
def test_what_would_not_start_is_refused(runtime: str, card: str, grid: TrainingGrid, gpu: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        launch_command(runtime, read_card(card), grid, gpu)


def test_a_line_says_what_the_runtime_does_otherwise() -> None:
    text = launch_command("megatron", read_card("bloom-7b1"), TrainingGrid(data=8))
    assert text.splitlines()[0].startswith("# Megatron-LM core 0.") and "# not as planned: it has not the norm" in text
    with pytest.raises(UnknownNameError, match="megatron"):
        launch_command("megatrom", CARD, TrainingGrid())


def test_seconds_are_those_of_the_runtime_that_is_launched(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["compare", "llama3-8b", "--cluster", "dgx-h100", "--devices", "8", "--sequence", "2048", "--budget", "1ms"]
    for runtime, stack in (("torchtitan", "fsdp-h100"), ("nanotron", "nanotron-h100"), ("megatron", "megatron-a100")):
        assert main([*asked, "--runtime", runtime, *(("--zero", "1") if runtime == "nanotron" else ())]) == 0
        assert f"modelled, not measured: {stack}" in capsys.readouterr().out
