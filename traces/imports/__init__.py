"""Measurements of others as profiles and curves. This folder is the registry: a file without "_" in front is a format.

kineto             torch.profiler's traces, with the structure of the model
pipedream          PipeDream's graph.txt
triosim            TrioSim's trace.csv, with the structure of the model
neusight           NeuSight's tables of torch.fx nodes
aceso              Aceso's tables by micro-batch and tensor-parallel degree
sailor             Sailor's profile.json
bytedance          timelines of whole jobs: profile, plan, and every step's actual Timeline
nccl_tests         logs of nccl-tests: curves, no profile

_registry          which format a file is of; import_files
_imported          ImportOptions in, Imported out
_text              text of a file, packed or plain
_structure         a network on torch's meta device: layers, and the operators that they call
_kineto            a profile out of recordings
_recording         a trace as spans of host threads and work of the GPU
_step_bounds       which spans and work each recorded step holds
_recorded_phases   recorded steps by cause, or their times alone
_recorded_input    batch size, sample and precision out of recorded shapes
_attribution       whose every kernel is
_alignment         longest common subsequence
_job_operations    the operations of a recorded job, step by step
_collectives       collectives in a trace, and their curves
_fx_table          layers out of a table of torch.fx nodes
_aceso_tables, _aceso_gpt, _aceso_resnet
"""
