"""Measurements of others as profiles and curves. This folder is the registry: a file without "_" in front is a format.

kineto             torch.profiler's traces, with the structure of the model
pipedream          PipeDream's graph.txt
nccl_tests         logs of nccl-tests: curves, no profile
table              a table of layers (CSV) that anyone can fill

_registry          which format a file is of; import_files
_imported          ImportOptions in, Imported out; text of a file, packed or plain
_structure         a network on torch's meta device: layers and their operators; its input out of recorded shapes
_kineto            a profile out of recordings
_recording         a trace as spans of host threads and work of the GPU
_recorded_phases   recorded steps: what each holds, by cause, or their times alone
_attribution       whose every kernel is
_collectives       collectives in a trace, and their curves
_ranks             the steps of the ranks of a run, and how far their clocks are apart
_aligned_ranks     these on one clock, as a task graph: who is late, and what would shorten the step
"""
