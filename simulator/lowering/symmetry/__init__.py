"""Which devices do the same at the same times, so that they are lowered and simulated once.

equal_links  whether links are shared equally by what simulated devices send and by what those like them do
symmetries   what may be alike in a plan: its replicas, and their ranks
symmetry     devices that do the same at the same times are lowered and simulated once, and counted
"""
