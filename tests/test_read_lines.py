"""Shell scripts and launch lines as people write them: redirections, arithmetic, Slurm, several launchers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simulator.errors import InputError
from simulator.readers import read_configuration

OWN = "pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 --bf16 --seq-length 8"
START = f"torchrun --nproc-per-node 8 {OWN}"


@pytest.mark.parametrize(
    ("line", "devices"),
    [
        (f"{START} 2>&1 | tee log.txt", 8),
        (f"{START} > log.txt 2>&1 &\nwait\necho done", 8),
        (f"{START} >log.txt --micro-batch-size 1", 8),
        (f"{START} $@", 8),
        (f'{START} "${{@:2}}"', 8),
        (f"{START} --spec layers.py local", 8),
        (f"{START} --data-path corpus.py\npython plot", 8),
        (f"N=$((2 * 8))\ntorchrun --nnodes $N --nproc-per-node $((N/4)) {OWN}", 64),
        (f"A=4\ntorchrun --nnodes $(( ($A + 1) % 3 )) --nproc-per-node 8 {OWN}", 16),
        (f"python -m torch.distributed.run --nproc-per-node 8 {OWN}", 8),
        (f"srun --nodes=4 --ntasks-per-node=8 python {OWN}", 32),
        (f"#SBATCH --nodes=4  # of 8\n#SBATCH --ntasks-per-node=8\nsrun python {OWN}", 32),
        (f"#SBATCH -N 4\n#SBATCH --gres=gpu:8\n#SBATCH --ntasks-per-node=1\nsrun torchrun --nnodes=$SLURM_NNODES {OWN}",
         32),
        (f"#SBATCH --ntasks-per-node=1\naccelerate launch --num_machines 2 --num_processes 16 {OWN}", 16),
        (f"srun --nodes=2 --ntasks-per-node=4 --gpus-per-node=8 python {OWN}", 8),
        (f"deepspeed --num_nodes 4 --num_gpus 8 {OWN}", 32),
        (f"deepspeed --num_gpus 8 {OWN}", 8),
        (f"torchrun --nnodes 2:2 --nproc-per-node 8 {OWN}", 16),
        (f"accelerate launch --num_machines 2 --num_processes 16 {OWN}", 16),
    ],
)  # fmt: skip
def test_devices_of_lines_as_people_write_them(line: str, devices: int) -> None:
    started = read_configuration(line, None)
    assert started.grid.devices == devices and started.card.sequence == 8


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (f"torchrun --nnodes 2:4 --nproc-per-node 8 {OWN}", "nnodes is 2:4, a range"),
        (f"{START} --micro-batch-size $OTHERS", "micro-batch-size is missing: it is a whole number"),
        (f"{START} --micro-batch-size _", "micro-batch-size is _: it is a whole number"),
        (f"{START} --micro-batch-size $((2**3))", "micro-batch-size is $((2**3)): it is a whole number"),
        (f"{START} --micro-batch-size $((1/0))", "micro-batch-size is $((1/0)): it is a whole number"),
    ],
)
def test_lines_that_say_no_number_are_refused(line: str, message: str) -> None:
    with pytest.raises(InputError) as refused:
        read_configuration(line, None)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("section", "message"),
    [("[parallelism]\ntensor_parallel_degree = 0\n[training]", "tensor_parallel_degree is 0: it is at least 1"),
     ("[parallelism]\n[training]\nlocal_batch_size = 0", "local_batch_size is 0: it is at least 1")],
)  # fmt: skip
def test_degrees_of_files_are_at_least_1(section: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "train.toml"
    path.write_text(f'[model]\nname = "llama3"\nflavor = "8B"\n{section}\n')
    with pytest.raises(InputError, match=message):
        read_configuration(None, str(path), devices=8)


def test_fewer_layers_on_an_end_may_be_none_and_degrees_of_nanotron_are_at_least_1(tmp_path: Path) -> None:
    less = "--parallelism.pipeline_parallel_first_stage_less_layers 0 --parallelism.pipeline_parallel_degree 2"
    line = f"torchrun --nproc-per-node 8 -m torchtitan.train --module llama3 --config llama3_8b {less}"
    assert read_configuration(line, None).grid.pipeline == 2
    path = tmp_path / "nanotron.yaml"
    path.write_text(
        "model: {}\nparallelism: {dp: 8, tp: 0, pp: 1}\n"
        "tokens: {micro_batch_size: 1, batch_accumulation_per_replica: 1, sequence_length: 8}\n"
    )
    with pytest.raises(InputError, match="tensor is 0: it is at least 1"):
        read_configuration(None, str(path), devices=8)


def test_a_file_without_a_model_says_how_each_command_takes_it(tmp_path: Path) -> None:
    path = tmp_path / "ds.json"
    path.write_text(json.dumps({"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 1}}))
    with pytest.raises(InputError, match="simulate CARD, compare CARD or check --model CARD"):
        read_configuration(None, str(path), devices=8)


MORE = "--micro-batch-size"


@pytest.mark.parametrize(
    ("lines", "microbatch"),
    [
        (f"A=(\n  {MORE} 2  # (of 4)\n  # {MORE} 3\n)\n{START} ${{A[@]}}", 2),
        (f'A=({MORE} 2)\nA+=({MORE} 4)\n{START} "${{A[@]}}"', 4),
        (f'A=(\n  "{MORE} $((2 * 4))"\n  --moe-layer-freq "([0]*1+[1]*1)"\n)\n{START} ${{A[@]}}', 8),
        (f'A="{MORE} 2"\nA+=" --fp16"\n{START} $A', 2),
        (f"{START} {MORE} ${{1:-4}}", 4),
        (f"{START} --wandb-exp-name 'run #3' {MORE} 4", 4),
        (f'D=fp8\nA=2\nif [[ "$D" == "fp8" ]]; then\n  A=4\nelse\n  A=8\nfi\n{START} {MORE} $A', 4),
        (f'D=b\nif [ $D = "f" ]; then A=4\nelif [ -z "$W" ] && [ 3 -gt 2 ]; then\nA=2\nelse A=8; fi\n{START} {MORE} $A',
         2),
        (f"A=2; B=4; C=8\n{START} {MORE} $B", 4),
        (f'if [[ "$N" != "1" || -n "$N" ]]; then\n  {START} {MORE} 4\nelse\n  {START} {MORE} 8\nfi', 4),
        (f'if [ "$#" -lt 2 ]; then\n  A=4\nelse\n  A=8\nfi\n{START} {MORE} $A', 8),  # nobody knows: the last one
    ],
)  # fmt: skip
def test_scripts_are_read_as_a_shell_does(lines: str, microbatch: int) -> None:
    """Comments, arrays that are added to, elements of two words, defaults of arguments, and choices."""
    assert read_configuration(lines, None).grid.microbatch == microbatch
