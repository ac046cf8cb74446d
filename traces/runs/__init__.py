"""A plan, for real: by our own executor of any plan, and by the runtimes of torch as users run them.

executor/        our own executor: every rank runs its tasks of the graph that the simulator simulates
torch_runtimes/  DistributedDataParallel and torch.distributed.pipelining, watched task by task
"""
