"""What the simulator's own work takes, beside goals. Nothing is asserted: times depend on the machine.

__main__          docs/performance.md: python -m benchmarks.speed
performance_page  the words of that page
command_times     processor seconds of whole commands
engine            tasks per second of both engines
growth            large inputs that once took minutes or all memory
sweep             points per second of a sweep, in processes and on Dask workers
"""
