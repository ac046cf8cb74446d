"""torch's own runtimes as users run them, over gloo, one process per device; watched task by task.

    ddp              data parallelism: DistributedDataParallel
    fsdp             fully sharded data parallelism: FSDP2
    measured_steps   whole training steps on one rank: timed back to back, their bytes counted, their memory taken
                     afterwards
    network_blocks   the modules of a network that users name when they shard, split or recompute it
    parallel_plans   the plans that FSDP2 and tensor parallelism run
    pipeline_stage   a stage of torch's pipelines that is observed: its passes, and the messages before and after them
    pipelining       pipelines: torch.distributed.pipelining
    recomputation    activations computed again before the backward pass: torch.utils.checkpoint
    stage_modules    a traced network cut into stages, each a module that runs its steps one after the other
    task_observer    observes the tasks of a rank that one of torch's runtimes drives: when layers' passes and messages
                     begin and end
    tensor_parallel  layers split over all ranks: torch.distributed.tensor.parallel

Import from the files themselves: processes that start with one of them need none of the others.
"""
