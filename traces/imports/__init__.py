"""Reading what others measured: one file per format.

nccl_tests  reads the logs of nccl-tests (all_reduce_perf and its like) as measured curves of a collective
pipedream   reads the per-layer profiles that PipeDream's profiler writes (graph.txt)
"""

from traces.imports.nccl_tests import left_out_errors, read_nccl_log, two_parameter_errors
from traces.imports.pipedream import read_pipedream

__all__ = ["left_out_errors", "read_nccl_log", "read_pipedream", "two_parameter_errors"]
