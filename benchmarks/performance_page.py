"""docs/performance.md but for its numbers, which `benchmarks.speed` puts in."""

TEXT = """\
# Performance

Written by `python -m benchmarks.speed --write` on {machine}. Times are processor seconds of one
run; `make bench` prints them for your machine. "When set" is what the work took when the goals were set, on two cores;
"of the goal" is how much of it is reached (1: reached, more: better); "compiled / reference" is how many times faster
the compiled engine simulates the same form of graph than SimPy.

<!-- real: times of one machine -->
<!-- output: python -m benchmarks.speed --write -->
{work}
<!-- end -->

How often the hypergraph search wins, at which price of a task, is in [reproductions](reproductions.md).

## Growth with the number of devices

ResNet-50, data parallel, one ring all-reduce per layer, nodes of 8 devices: first as its report is made, with equal
replicas simulated once, then task by task as a timeline needs it. Once, the work that grows is that of the cluster
itself: its routes, and one collective that leads over all links. Task by task all three stages are linear in the number
of tasks. Only the pairs of devices that talk to each other are kept; the full traffic matrix is made when asked for.

<!-- real: times of one machine -->
<!-- output: python -m benchmarks.speed --write -->
{once}
<!-- end -->

<!-- real: times of one machine -->
<!-- output: python -m benchmarks.speed --write -->
{devices}
<!-- end -->

## Growth with the number of layers

Layers in a row on 16 devices, data parallel, buckets of 25 MiB, task by task.

<!-- real: times of one machine -->
<!-- output: python -m benchmarks.speed --write -->
{layers}
<!-- end -->

## Where it goes

- **Equal replicas of a model** are lowered and simulated once (`simulator.lowering.symmetry`): of a plan whose layers
  are all cut by sample into as many equal parts, the tasks of the first replica stand for all. With stragglers or
  devices of unequal speed the first replica of each class does, within which replicas are equally fast, so that one
  straggler among 16,384 devices costs a second replica. A message in a replica becomes one transfer over the links of
  its class; gradients are summed over everybody, as ever. The report is that of all replicas bit for bit, which
  `tests/test_symmetry.py` asserts of random plans; it is laid out by device at the end. Where equality is not certain
  everything is simulated: jitter, links that are not as fast or as much used for each replica, parameter servers,
  collectives that treat hosts apart, states that replicas share out (ZeRO), hosts that share cores, and messages that
  wait for their receivers. Timelines, traces and the pages of the dashboard show every device, so they take the
  task-by-task way.
- **Ranks of tensor parallelism** are simulated once too, those of sequence parallelism and of copies with them, where
  every layer of a replica is on as many devices, one shard each and all equally fast in all replicas, and activations
  move in collectives. One micro-batch is lowered with all ranks; its tasks are sorted into classes that take as long,
  hold as much and wait for the same classes, and the first rank's stay (`simulator.lowering.tasks.equal_ranks`). A
  collective inside a group leads over the links of all, and what rank i sends to rank i becomes one transfer. Shards
  cut unequally, messages that cross ranks, outputs received again (full recomputation), unequal links, and bytes that
  do not add up exactly, such as those of rings of three replicas, are simulated in full; with a straggler all ranks of
  the first replica of each class are.
- **Lowering** makes the messages of layers in a row, and the sums of all buckets, as arrays, and together the
  exchanges of layers that are alike, cut alike and read alike. What the shards of a run of layers cut alike cost, who
  reads what of them, what moves for that, and who shares their parameters, is kept with the profile for the next plan;
  the first plan of a profile works it out, 0.2 ms for each different layer. A further plan of some thousand tasks is
  some hundred numpy calls of 2 to 20 us, none of which stands out. Of the transformer on 512 devices lowering takes
  half of the time, in small pieces (one micro-batch with all ranks, their classes, pieces of parameters, buckets), the
  engine and the report a quarter each.
- **The engine** takes well under a microsecond per task where transfers do not contend: its queues compare times as
  whole numbers, and what a task makes ready is fetched from memory when it begins. Where they do, a start or an
  end is followed from link to link only as far as it gives a link another share, and only classes of messages whose
  rate changes are served and given a new end; collectives over many links are filled in rounds instead. Which order
  shares are found in makes no difference, since there is but one solution. On one switch where everybody sends to
  everybody, of 240 classes 13 change their rate with each message, 6.6 at its start and as many at its end, and so do
  the shares of 8 links with 13 users each. No exact engine does with less: at the 3 M messages a second of the goal it
  would have 25 ns for each of those rates, with the links that it follows from and all else that a message takes.
- **The report** computes its numbers by column. Its rows of devices, links and layers are made when somebody reads
  them. The chain that bound the step is followed in C, which also finds what a device ran before
  each task, and adds up what it does and holds (numpy and
  Python do where there is no compiled engine, to the same bits).
- **A ring or a tree message by message** is a recurrence of maxima and sums, which `shardscope allreduce` evaluates in
  closed form: which member a chain of messages begins at, and which is the slowest that it passes, say when it ends.
  It is for one collective that has its links for itself; in a step a collective is one task, each of whose rounds
  waits for its slowest pair.
- **A sweep** keeps plans lowered, routes and layer-wise tables from point to point where only bandwidths and latencies
  differ, and gives such points to one worker together; the plans that one point judges, up to 32, are there for the
  next; plans of equal replicas stay lowered as long as the same links are as fast as each other. Points that differ in
  the devices' speed are lowered anew, since seconds divided by another speed round differently. A point of a judged
  pipeline still finds the stages of the best pace over its links, bounds all cuts and simulates a few of them, each on
  its own. The best stages are found in C, a millisecond or two for VGG-16 on 16 devices with replicas (numpy takes 11,
  to the same bits). How these cuts lie on the devices, what they compute, send and sum, and what a run of layers takes,
  is kept with the profile; a point puts its latencies and bandwidths into it. One device alone, which sends nothing, is
  simulated for the first point; the plan that is chosen is not simulated again for its report. What neither depends on
  times nor on how fast links are is kept with the lowered tasks: classes, dependencies, who touches what, what is sent,
  and how the engine's memory is laid out and what stands in it at first. A point makes latencies and bandwidths and
  starts from a copy of that memory; memory peaks are looked at only where not all allocations together fit. Several
  points are not put side by side into one run of the engine: what ends within 1e-12 of the clock ends together there,
  which would make one point's times depend on another's. A layer-wise point finds its least sums in blocks of
  configurations.
- **The hypergraph search** simulates the strongest configurations of the other strategies and changes the best two:
  layers in a row, from all of them down to one group, are placed as another plan has them, whose layers are all cut
  alike (by sample, by channel, into terms of sums) on some of the devices, which is another strategy's, or which
  the search found on its way from either. Stages on so few devices that perfectly shared compute alone takes a
  fifth longer than the best plan are left out, and no settings are tried for plans whose busiest device computes as
  long as that. What a layer and its messages ask of every device and link is looked up once, bytes of an edge by
  two products of matrices without making a message. For layers in a row, sums over those before each layer then
  bound what step each such change promises, all at once; of the lowest bounds the promise is worked out, and only
  what promises a shorter step is simulated: first, of a descent by promises alone, its end and plans half-way to
  where the step turns, then changes of the best of them, until 24 in a row gain less than a thousandth together.
  The 96 most promising of these are kept, so that a bound above the last of them spares its promise. All that
  counts against a budget, as so many tasks simulated, so that the answer does not depend on how fast the machine
  is; kahypar's cuts get at most a four-hundredth of it, of what is left, since they seldom beat what is found by
  then. Of VGG-16's search on 16 devices, which simulates about 110 plans, the starts take two fifths, most of that
  layer-wise tables and plans; look-ups, bounds and promises a third; plans of the local search a quarter, most of
  it for making tasks; cuts a twentieth.
- **communication_volume**, the count without simulating, still adds up in a dense matrix and grows with the square of
  the number of devices.
"""
