"""What training costs under a plan: the nouns, and the verbs that lead from one to the next.

    errors      every error that Shardscope raises on purpose
    units       reading and printing quantities; inside there are only seconds, bytes, FLOP and ratios
    workload    Profile: a network measured layer by layer on one device
    expert_routing    Routing: which tokens travel to which experts
    curve       Curve: measured times of messages by their size
    cluster     Cluster: devices and the links that join them
    routes      the shortest way between two nodes
    plan        Plan: who computes which shard
    plan_rules  what every plan keeps to; profile_rules: what every profile does
    parameter_states  ParameterStates: which states of a parameter its users share out
    recompute_segments  which layers are recomputed together
    sample_work what takes longer of one sample than of another
    runtime     Runtime: what the software that runs a plan adds
    taskgraph   TaskGraph: what has to be done in one step
    timeline    Timeline: when every task ran
    files       every file format; file_gate: bounded plain data out of any text; file_content: data as a dataclass
    owned_files temporary files and folders that carry their owner's name, for what killed processes left
    one_line_parser  arguments of programs, complaints in one line, types of options
    terminal         lines of text, folded where a terminal shows them; version: that of Shardscope
    device_names     which devices' names are of one model
    kept        Kept: what has been worked out, by value within a budget
    distinct    the different ones among whole numbers
    ordered_sum one order of addition, for equal reports on every Python
    registry    folders whose files are entries
    run         from a plan to its report in one call

    network/      links and what flows over them       report/       what a step cost
    collectives/  how a group sums a gradient          studies/      questions that take several simulations
    lowering/     from a plan to tasks                 elastic/      devices that come and go
    engine/       when every task runs                 convergence/  samples to an accuracy
    sweep/        many points, one table               exports/      a plan for runtimes of others
    language_models/  profiles out of model cards      cli/          the command line

Rooms import only those that stand above them in `tests/test_architecture.py`. Nothing is imported here, so that a
command's help, and a capture on a machine with torch alone, load nothing else; `shardscope` has the public names.
"""
