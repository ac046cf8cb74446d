"""FSDP2, tensor parallelism and recomputation as torch's users run them, beside their predictions.

blocking         a task graph whose collectives block, as torch's do over gloo on a CPU
fsdp             fully sharded data parallelism: FSDP2
parallel_plans   the plans that FSDP2 and tensor parallelism run
recomputation    activations computed again before the backward pass: torch.utils.checkpoint
runs             runs of drawn networks in the lab: `python -m benchmarks.parallel_runtimes.runs FOLDER`
tensor_parallel  layers split over all ranks: torch.distributed.tensor.parallel
"""
