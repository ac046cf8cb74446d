"""Damage, kills and faults: what must not break, and what the tests must notice.

fuzz              damaged files of every format that the simulator reads
fuzz_formats      those formats: sound content, and what reading and using it gives
mutations         changes of JSON-like values, tables and texts, from a seed
drawn_traces      traces of torch.profiler drawn event by event
mutated_traces    damaged trace files of every importer
mutants           deliberate faults in a copy of the project, and which of them its tests notice
drawn_faults      faults drawn by rules from the source of what decides numbers
faults.txt        faults that were once missed
kills             work that is killed at random moments
killed_processes  such processes, and what they leave
never_slower      pairs of cases of which the second has more: devices, links or memory
smoke             whether an installed Shardscope works
"""
