"""A plan as a script or a configuration of a runtime that others wrote. This folder is the registry of `export --to`.

launch       a grid of a card as a runtime's command line, checked before it is printed
plan_shape   what a plan is in the words of these runtimes: data, tensor and pipeline degrees; and what they leave out
script       the parts that scripts share
ddp          DistributedDataParallel, as a script
fsdp2        torch's fully_shard, as a script
pipelining   torch.distributed.pipelining, as a script
torchtitan   its options, as a shell script
nanotron     its YAML file, of cards alone
megatron     Megatron-LM's arguments, as a shell script
chakra       no runtime: a plan's step as MLCommons' execution traces, one per rank, which simulators run
"""

RUNTIMES = ("ddp", "fsdp2", "pipelining", "torchtitan", "megatron")
TRACES = "chakra"
