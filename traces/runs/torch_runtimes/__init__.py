"""torch's own runtimes as users run them, over gloo, one process per device; watched task by task.

ddp              data parallelism: DistributedDataParallel
measured_steps   whole training steps on one rank: timed back to back, their bytes counted, their memory taken
                 afterwards
pipelining       pipelines: torch.distributed.pipelining
stage_modules    a traced network cut into stages, each a module that runs its steps one after the other, and
                 torch's stage of it that is observed: its passes, and the messages before and after them
task_observer    observes the tasks of a rank that one of torch's runtimes drives: when layers' passes and messages
                 begin and end
"""
