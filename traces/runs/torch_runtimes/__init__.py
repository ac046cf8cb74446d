"""torch's own runtimes as users run them, over gloo, one process per device; watched task by task.

ddp              data parallelism: DistributedDataParallel
measured_steps   whole training steps on one rank: timed back to back, their bytes counted, their memory taken
pipelining       pipelines: torch.distributed.pipelining
stage_modules    a traced network cut into stages, each a module, and torch's stage of one, which is observed
task_observer    observes the tasks of a rank that torch drives: when layers' passes and messages begin and end
"""
