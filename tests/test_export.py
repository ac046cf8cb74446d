"""Exported scripts run on two processes and have one device's gradients; configurations say what the plan says."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import options_in, report, shardscope
from conftest import ROOT

from simulator import files
from simulator.exports import RUNTIMES
from simulator.exports.launch import pinned
from simulator.language_models.card_files import read_card
from simulator.plan import Sharding, Synchronisation
from simulator.readers import read_configuration

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("forked_python")

MODEL = ("--model", "traces.zoo.networks:vgg_digits", "--input-shape", "1x8x8")
TWO_INPUTS = """
import torch


class Two(torch.nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.embedding, self.head = torch.nn.Embedding(7, 8), torch.nn.Linear(32 + 4 * 8, num_classes)

    def forward(self, data, codes):
        return self.head(torch.cat([data, self.embedding(codes).flatten(1)], 1))
"""
CLUSTER = ("--cluster", "cpu-1g", "--devices", "2")


def plan(folder: Path, strategy: str, *options: str) -> Path:
    path = folder / f"{strategy}.json"
    staged = ("--set", "judged=false") if strategy == "pipeline" else ()  # one device is faster
    command = (
        "vgg_digits",
        *CLUSTER,
        "--strategy",
        strategy,
        "--batch-size",
        "16",
        *options,
        *staged,
        "--output",
        path,
    )
    assert shardscope("partition", *command) == 0
    return path


def loaded(script: Path) -> Any:
    specification = importlib.util.spec_from_file_location(script.stem, script)
    assert specification and specification.loader
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def gradients_of_one_device(script: Path) -> dict[str, Any]:
    """Of the whole batch at once, in the script's own words."""
    module = loaded(script)
    model = module.built()
    data, numbers = module.batch(0)
    module.loss_of(model(*data), numbers).backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def trained(script: Path, *options: str) -> str:
    """What a script prints that two processes run."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    environment = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"}
    completed = subprocess.run(
        [*launch, *options], capture_output=True, text=True, timeout=600, env=environment, cwd=script.parent
    )
    assert completed.returncode == 0, completed.stderr[-2000:]
    return completed.stdout


@pytest.mark.parametrize(
    ("runtime", "strategy", "options"),
    [
        ("ddp", "data", ("--microbatches", "2")),
        ("fsdp2", "data", ("--microbatches", "2")),
        ("fsdp2", "data", ("--microbatches", "2", "--zero", "3", "--shard-group", "1")),  # a mesh of 2 x 1
        ("pipelining", "pipeline", ("--microbatches", "4", "--schedule", "1f1b")),
    ],
)
def test_a_script_trains_with_one_devices_gradients(
    runtime: str, strategy: str, options: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And prints its loss and step time beside what was predicted, which `check` reads."""
    script, gradients, path = tmp_path / "train.py", tmp_path / "gradients", plan(tmp_path, strategy, *options)
    command = ("export", path, "--to", runtime, *MODEL, "--output", script)
    capsys.readouterr()
    assert shardscope(*command) == 0
    printed = trained(script, "--steps", "2", "--gradients", str(gradients))
    lines = re.findall(r"^step (\d): loss ([\d.]+), step time ([\d.]+) ms, predicted ([\d.]+) ms$", printed, re.M)
    assert [line[0] for line in lines] == ["0", "1"] and all(float(line[2]) > 0 for line in lines)
    module = loaded(script)
    assert float(lines[0][1]) == pytest.approx(
        module.loss_of(module.built()(*module.batch(0)[0]), module.batch(0)[1]).item(), rel=1e-3
    )
    log = tmp_path / "train.log"
    log.write_text(printed)
    compared = report(capsys, "check", log, path)
    assert compared["recorded_steps_s"] == pytest.approx([1e-3 * float(line[2]) for line in lines])
    assert compared["predicted_s"] == pytest.approx(1e-3 * float(lines[0][3]), rel=1e-3)
    expected = gradients_of_one_device(script)
    actual: dict[str, Any] = {}
    for rank in (0, 1):
        actual |= torch.load(f"{gradients}.{rank}.pt", weights_only=True)
    assert set(actual) == set(expected)
    for name, gradient in expected.items():
        torch.testing.assert_close(actual[name], gradient, rtol=1e-4, atol=1e-6)


def test_a_script_has_all_inputs_and_the_classes_of_the_capture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "nets.py").write_text(TWO_INPUTS)
    command = "python -m traces.capture nets:Two --batch-size 8 --input 32 --input=codes=4:7 --classes 5"
    profile = replace(files.read_profile("vgg_digits"), model="nets:Two", command=command)
    files.write_profile(profile, tmp_path / "two.json")
    made = (*CLUSTER, "--strategy", "data", "--batch-size", "16", "--output", tmp_path / "plan.json")
    assert shardscope("partition", tmp_path / "two.json", *made) == 0
    export = ("export", tmp_path / "plan.json", "--to", "ddp", "--output", tmp_path / "train.py")
    capsys.readouterr()
    assert shardscope(*export, "--input-shape", "32") == 2
    assert "captured with --input 32 --input codes=4:7 --classes 5; leave it out" in capsys.readouterr().err
    assert shardscope(*export) == 0
    assert "step 0: loss " in trained(tmp_path / "train.py", "--steps", "1")


def test_a_script_says_what_is_not_as_planned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = plan(tmp_path, "data", "--sync", "ps", "--compression", "4", "--no-overlap")
    capsys.readouterr()
    assert shardscope("export", path, "--to", "ddp", *MODEL, "--output", tmp_path / "train.py") == 0
    printed = capsys.readouterr().err
    for line in ("all-reduce, not through parameter servers", "not compressed", "beside the backward pass"):
        assert line in printed and line in (tmp_path / "train.py").read_text()


def test_torchtitan_gets_degrees_and_stages(tmp_path: Path) -> None:
    path = plan(tmp_path, "pipeline", "--microbatches", "4", "--schedule", "1f1b")
    assert shardscope("export", path, "--to", "torchtitan", "--output", tmp_path / "train.sh") == 0
    text = (tmp_path / "train.sh").read_text()
    assert set(options_in(text)) <= {*pinned("torchtitan").arguments, "activation-checkpoint:none"}
    for argument in (
        *("pipeline_parallel_degree 2", "pipeline_parallel_schedule 1F1B", "num_pp_microbatches 4"),
        *("dp_rank $((4 * SEQUENCE))", "train_step $((16 * SEQUENCE))", "module_fqns_per_model_part of the"),
    ):
        assert argument in text
    assert subprocess.run(["sh", "-n", tmp_path / "train.sh"], check=False).returncode == 0


def test_a_script_is_started_on_the_hosts_of_its_cluster(tmp_path: Path) -> None:
    words = ("resnet50_v100", "--cluster", "p3-8xlarge", "--devices", "8", "--strategy", "data", "--output")
    assert shardscope("partition", *words, tmp_path / "plan.json") == 0
    for runtime in ("megatron", "torchtitan", "ddp"):
        script = tmp_path / runtime
        model = ("--model", "mine:net", "--input-shape", "3x224x224") if runtime == "ddp" else ()
        assert shardscope("export", tmp_path / "plan.json", "--to", runtime, *model, "--output", script) == 0
        assert "torchrun --nnodes 2 --nproc-per-node 4 --rdzv-backend" in script.read_text()


@pytest.mark.parametrize(
    ("layout", "chunks", "said"),
    [
        ("4,4,4,4", 1, ""),
        ("5,4,4,3", 1, '--pipeline-model-parallel-layout "Et*5|t*4|t*4|t*3L"'),
        ("equal", 2, "--num-virtual-stages-per-pipeline-rank 2"),
        ("3,2,2,2,2,2,2,1", 2, '--pipeline-model-parallel-layout "Et*3|t*2|t*2|t*2|t*2|t*2|t*2|t*1L"'),
    ],
)
def test_a_cards_plan_becomes_a_whole_command(
    layout: str, chunks: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It reads back as the grid that it is, of the card."""
    path, script = tmp_path / "plan.json", tmp_path / "train.sh"
    options = ("--set", "pipeline=4", "--set", f"chunks={chunks}", "--set", f"layout={layout}", "--microbatches", "8")
    command = ("llama3-1b", "--cluster", "dgx-h100", "--strategy", "megatron", "--zero", "1", "--batch-size", "16")
    assert shardscope("partition", *command, *options, "--output", path) == 0
    capsys.readouterr()
    assert shardscope("export", path, "--to", "megatron", "--output", script) == 0
    assert "arguments" not in (error := capsys.readouterr().err) and "transformer layers" not in error
    assert re.findall(r"--\S+(?:layout|virtual)\S* \S+", script.read_text()) == ([said] if said else [])
    started = read_configuration(str(script), None)
    assert started.card.parameters == read_card("llama3-1b").parameters
    assert (started.grid.pipeline, started.grid.data, started.grid.accumulation) == (4, 2, 8)


@pytest.mark.parametrize(
    ("name", "cluster", "layout", "moved", "counts"),
    [
        ("gpt_1_3b_v100", "p3-16xlarge", "7,6,6,5", (), "7, 6, 6, 5"),
        ("llama3-1b", "dgx-h100", "4,4,4,4", ("norm_attention", "q", "k", "v", "attention", "output"), "5, 3, 5, 3"),
    ],
)
def test_stages_that_megatron_has_not_are_counted_in_blocks(
    name: str, cluster: str, layout: str, moved: tuple[str, ...], counts: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Of a network that is no card's; and of a card's where two stages begin inside of a block."""
    path, script = tmp_path / "plan.json", tmp_path / "train.sh"
    step = ("--strategy", "megatron", "--batch-size", "16", "--microbatches", "8", "--output", path)
    options = ("--set", "pipeline=4", "--set", f"layout={layout}")
    assert shardscope("partition", name, "--cluster", cluster, *step, *options) == 0
    made = files.read_plan(path)
    homes = {f"blocks.{stage}.{layer}": f"blocks.{stage - 1}.add_ffn" for stage in (4, 12) for layer in moved}
    placements = {layer: made.placements[homes.get(layer, layer)] for layer in made.placements}
    files.write_plan(replace(made, placements=placements), path)
    capsys.readouterr()
    assert shardscope("export", path, "--profile", name, "--to", "megatron", "--output", script) == 0
    assert f"as many whole transformer layers; the plan's stages have {counts}\n" in capsys.readouterr().err
    assert "layout" not in script.read_text().replace("layout=", "")


def test_a_script_starts_on_the_hosts_of_a_rack(tmp_path: Path) -> None:
    path, script = tmp_path / "plan.json", tmp_path / "train.sh"
    command = ("vgg_digits", "--cluster", "gb200-nvl72", "--devices", "8", "--strategy", "data", "--output", path)
    assert shardscope("partition", *command) == 0
    assert shardscope("export", path, "--to", "megatron", "--output", script) == 0
    assert "torchrun --nnodes 2 --nproc-per-node 4 --rdzv-backend" in script.read_text()


def test_megatron_gets_data_and_tensor_degrees(tmp_path: Path) -> None:
    made = files.read_plan(plan(tmp_path, "data"))
    split = {name: Sharding(degrees=(2, 2, 1, 1), devices=(0, 1, 2, 3)) for name in made.placements}
    split["loss"] = Sharding(degrees=(2, 1, 1, 1), copy=2, devices=(0, 1, 2, 3))  # one channel
    path = tmp_path / "both.json"
    bucket = Synchronisation(bucket_bytes=4 * 10**6)
    files.write_plan(replace(made, placements=split, synchronisation=bucket), path)
    assert shardscope("export", path, "--to", "megatron", "--output", tmp_path / "run.sh") == 0
    text = (tmp_path / "run.sh").read_text()
    for argument in (
        *("--tensor-model-parallel-size 2", "--pipeline-model-parallel-size 1", "--micro-batch-size 8"),
        *("--global-batch-size 16", "--ddp-bucket-size 1000000", "--nnodes 1 --nproc-per-node 4"),
    ):
        assert argument in text
    for overlap in (True, False):
        files.write_plan(replace(made, placements=split, synchronisation=replace(bucket, overlap=overlap)), path)
        assert shardscope("export", path, "--to", "megatron", "--output", tmp_path / "run.sh") == 0
        assert ("--overlap-grad-reduce" in (tmp_path / "run.sh").read_text()) == overlap


@pytest.mark.parametrize(
    ("strategy", "options", "message"),
    [
        ("pipeline", ("--to", "ddp", *MODEL), "it has 2 stages, and DDP none: --to pipelining"),
        ("data", ("--to", "pipelining", *MODEL), "it has one stage; --to ddp or fsdp2"),
        ("spatial", ("--to", "ddp", *MODEL), "`shardscope execute` does"),
        ("data", ("--to", "ddp"), "name what makes it, --model package.module:callable"),
        ("data", ("--to", "ddp", "--model", "mine:net"), "its input is unknown"),
        ("data", ("--to", "nowhere"), "invalid choice: 'nowhere'"),
    ],
)
def test_what_a_runtime_cannot_run_is_one_line(
    strategy: str, options: tuple[str, ...], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = plan(tmp_path, strategy)
    capsys.readouterr()
    assert shardscope("export", path, *options, "--output", tmp_path / "never.py") == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not (tmp_path / "never.py").exists()


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_plan_of_another_profile_or_without_a_layer_is_one_line(
    runtime: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = plan(tmp_path, "data")
    whole = files.read_plan(path)
    files.write_plan(replace(whole, placements=dict(list(whole.placements.items())[1:])), tmp_path / "lacking.json")
    capsys.readouterr()
    for export, message in (
        ((tmp_path / "lacking.json",), f"placements lacks layer {next(iter(whole.placements))!r}"),
        ((path, "--profile", "vgg16_v100"), "which profile 'vgg16' lacks"),
    ):
        assert shardscope("export", *export, "--to", runtime, *MODEL, "--output", tmp_path / "never") == 2
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1
        assert not (tmp_path / "never").exists()


def test_model_and_input_are_those_of_the_capture(tmp_path: Path) -> None:
    profile = replace(
        files.read_profile("vgg_digits"),
        model="mine:net",
        command="python -m traces.capture mine:net --batch-size 8 --input-shape 64 --vocabulary 11",
    )
    files.write_profile(profile, tmp_path / "own.json")
    command = ("partition", tmp_path / "own.json", *CLUSTER, "--strategy", "data", "--output", tmp_path / "plan.json")
    assert shardscope(*command) == 0
    assert shardscope("export", tmp_path / "plan.json", "--to", "ddp", "--output", tmp_path / "train.py") == 0
    text = (tmp_path / "train.py").read_text()
    assert "MODEL, ARGUMENTS = 'mine:net', {}\nINPUTS = [('', (64,), 11)]  #" in text


@pytest.mark.parametrize("recomputation", ["none", "selective", "full"])
def test_a_grid_keeps_its_degrees(recomputation: str, tmp_path: Path) -> None:
    """Tensor 2 x pipeline 2 x data 2 with sequence parallelism and a shared optimizer, of GPT-1.3B."""
    path, script, other = (tmp_path / name for name in ("plan.json", "train.sh", "titan.sh"))
    options = ("--set", "tensor=2", "--set", "pipeline=2", "--set", f"recomputation={recomputation}", "--zero", "1")
    command = ("gpt_1_3b_v100", "--cluster", "p3-16xlarge", "--strategy", "megatron", "--batch-size", "16", *options)
    assert shardscope("partition", *command, "--microbatches", "4", "--output", path) == 0
    assert shardscope("export", path, "--profile", "gpt_1_3b_v100", "--to", "megatron", "--output", script) == 0
    words = script.read_text().split()
    asked = {"--tensor-model-parallel-size": "2", "--pipeline-model-parallel-size": "2", "--micro-batch-size": "2"}
    assert {name: words[words.index(name) + 1] for name in asked} == asked
    assert {"--sequence-parallel", "--use-distributed-optimizer"} <= set(words)
    granularity = words[words.index("--recompute-granularity") + 1] if "--recompute-granularity" in words else "none"
    assert granularity == recomputation
    assert shardscope("export", path, "--profile", "gpt_1_3b_v100", "--to", "torchtitan", "--output", other) == 0
    degrees = re.findall(r"--parallelism.(tensor|pipeline)_parallel_degree (\d+)", other.read_text())
    assert degrees == [("tensor", "2"), ("pipeline", "2")]
    assert shardscope("export", path, "--profile", "gpt_1_3b_v100", "--to", "ddp", "--output", script) == 2


def test_shared_parameters_are_shared_by_the_runtime(tmp_path: Path) -> None:
    path, script = tmp_path / "plan.json", tmp_path / "train.sh"
    command = ("gpt_1_3b_v100", "--cluster", "p3-16xlarge", "--strategy", "fsdp", "--batch-size", "16", "--zero", "3")
    assert shardscope("partition", *command, "--output", path) == 0
    for runtime, argument in (
        ("megatron", "--data-parallel-sharding-strategy optim_grads_params"),
        ("torchtitan", "--parallelism.fsdp_reshard_after_forward always"),
    ):
        assert shardscope("export", path, "--profile", "gpt_1_3b_v100", "--to", runtime, "--output", script) == 0
        assert argument in script.read_text()


def test_a_mixture_keeps_its_experts(tmp_path: Path) -> None:
    """Mixtral, tensor 2 x pipeline 2 x data 4, experts over 2 of them: for Megatron alone."""
    path, script = tmp_path / "plan.json", tmp_path / "train.sh"
    options = ("--set", "tensor=2", "--set", "pipeline=2", "--set", "expert=2", "--batch-size", "16", "--devices", "16")
    command = ("mixtral-8x7b", "--cluster", "dgx-h100", "--strategy", "megatron", *options)
    assert shardscope("partition", *command, "--output", path) == 0
    assert shardscope("export", path, "--profile", "mixtral-8x7b", "--to", "megatron", "--output", script) == 0
    words = script.read_text().split()
    asked = {
        "--tensor-model-parallel-size": "2", "--pipeline-model-parallel-size": "2", "--micro-batch-size": "1",
        "--expert-model-parallel-size": "2", "--num-experts": "8", "--moe-router-topk": "2",
    }  # fmt: skip
    assert {name: words[words.index(name) + 1] for name in asked} == asked
    assert shardscope("export", path, "--profile", "mixtral-8x7b", "--to", "torchtitan", "--output", script) == 2
    assert shardscope("partition", *command, "--set", "expert_tensor=1", "--output", path) == 0
    assert shardscope("export", path, "--profile", "mixtral-8x7b", "--to", "megatron", "--output", script) == 0
    assert "--expert-tensor-parallel-size 1" in script.read_text() and "--expert-tensor" not in words
