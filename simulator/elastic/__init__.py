"""Jobs whose devices join, leave, fail and slow down, and what each change costs.

job              simulate a job over a scenario: steady steps between membership changes, one simulation per
                 configuration
job_account      the account of a job over a scenario: what it did when, and what each event cost
movement         what must move when one plan replaces another: pieces of parameters to devices that do not hold
                 them
reconfiguration  what it costs to change the devices of a running job: each policy is a sum of named parts that can
                 be measured
scenario         a job and its membership changes: what a scenario file says
"""

from simulator.elastic.job import simulate_job
from simulator.elastic.job_account import Account, incident_rows
from simulator.elastic.movement import Placed, movement
from simulator.elastic.reconfiguration import (
    DETECT,
    FRAMEWORK,
    GROUPS,
    LAUNCH,
    LEAVE,
    MOVE,
    READ,
    STOP,
    WRITE,
    Change,
    Overheads,
    Reconfiguration,
    read_overheads,
)
from simulator.elastic.scenario import POLICIES, Scenario, read_scenario

__all__ = [
    "DETECT",
    "FRAMEWORK",
    "GROUPS",
    "LAUNCH",
    "LEAVE",
    "MOVE",
    "POLICIES",
    "READ",
    "STOP",
    "WRITE",
    "Account",
    "Change",
    "Overheads",
    "Placed",
    "Reconfiguration",
    "Scenario",
    "incident_rows",
    "movement",
    "read_overheads",
    "read_scenario",
    "simulate_job",
]
