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
