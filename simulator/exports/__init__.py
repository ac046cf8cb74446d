"""A plan as a script or a configuration of a runtime that others wrote. This folder is the registry of `export --to`.

plan_shape   what a plan is in the words of these runtimes: data, tensor and pipeline degrees; and what they leave out
script       the parts that scripts share
ddp          DistributedDataParallel, as a script
fsdp2        torch's fully_shard, as a script
pipelining   torch.distributed.pipelining, as a script
torchtitan   its TOML file
megatron     Megatron-LM's arguments, as a shell script
"""

RUNTIMES = ("ddp", "fsdp2", "pipelining", "torchtitan", "megatron")
