"""Measure the links of a cluster and the runtime that uses them, and write both as a cluster file (needs torch).

With --from measured.csv: fit what training gets of the bandwidth to measured steps instead, without torch.
With --reconfiguration: measure what changing the devices of a running job costs instead, for `shardscope scenario`.
"""

from __future__ import annotations

from simulator.cli import _plan_files
from simulator.errors import needing


def main(argv: list[str]) -> int:
    """Hand the arguments to one of the three programs that calibrate."""
    if {"-h", "--help"} & set(argv):
        print((__doc__ or "") + "\nEach of the three has a --help of its own; what follows is this one's.\n")
    if any(word.partition("=")[0] == "--from" for word in argv):
        from traces.calibrate import bandwidth_fit

        return bandwidth_fit.main(argv)
    with needing("torch", "calibrate"):
        if "--reconfiguration" in argv:
            from traces.elastic import reconfiguration_costs

            return reconfiguration_costs.main([word for word in argv if word != "--reconfiguration"])
        from traces.calibrate import command
    return command.main(argv, _plan_files.profile_of)
