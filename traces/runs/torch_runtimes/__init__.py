"""DistributedDataParallel and torch.distributed.pipelining, watched task by task.

    ddp             data parallelism as users run it: DistributedDataParallel over gloo, one process per device
    measured_steps  whole training steps on one rank: timed back to back, their bytes counted, their memory taken
                    afterwards
    pipeline_stage  a stage of torch's pipelines that is observed: its passes, and the messages before and after them
    pipelining      pipelines as users run them: torch.distributed.pipelining over gloo, one process per device
    stage_modules   a traced network cut into stages, each a module that runs its steps one after the other
    task_observer   observes the tasks of a rank that one of torch's runtimes drives: when layers' passes and messages
                    begin and end

Import from the files themselves: processes that start with one of them need none of the others.
"""
