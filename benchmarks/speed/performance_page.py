"""docs/performance.md but for its numbers, which `benchmarks.speed` puts in."""

TEXT = """\
# Performance

Written by `python -m benchmarks.speed --write` on {machine}.
Times are processor seconds of one run; `make bench` prints them for your machine. "Of the goal" is how much of it is
reached (1: reached, more: better); "compiled / reference" is how many times faster the compiled engine simulates the
same form of graph than SimPy.

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

## Whole commands

<!-- real: times of one machine -->
<!-- output: python -m benchmarks.speed --write -->
{commands}
<!-- end -->

## Where it goes

- **What is equal is simulated once and counted.** Replicas of a model (`simulator.lowering.symmetry`), of each class
  of speeds where there are stragglers, and of each way in which hosts part them; ranks of tensor parallelism
  (`simulator.lowering.tasks.equal_ranks`); blocks of a stage; micro-batches of a steady state. Reports equal those of
  everything, bit for bit or to 1e-9, which `tests/test_symmetry.py` and `tests/test_steady_state.py` hold on random
  plans. Where equality is not certain (jitter, unequal links, parameter servers, hosts that share cores, messages that
  wait for receivers) everything is simulated, and so it is for timelines and traces, which show every device.
- **Lowering** makes messages and sums as arrays. What a run of layers cut alike costs, who reads what of it and who
  shares its parameters is kept with the profile for the next plan; the first plan works it out, 0.2 ms for each
  different layer.
- **The engine** takes well under a microsecond a task where nothing contends. Links as fast as each other that the
  same transfers use equally often are one link to it (70B on 2,048 GPUs: 2.1 to 0.6 s a grid). Where transfers
  contend, a start or an end is followed from link to link only as far as it changes a share. On one switch where
  everybody sends to everybody, of 240 classes of messages 13 change their rate with each message: the goal of 3 M
  messages a second would leave 25 ns for each of those rates, which no exact engine does.
- **The report** works by column; the chain that bound the step is followed in C. Numpy and Python do all of it where
  there is no compiler, to the same bits.
- **A ring or tree message by message** is a recurrence of maxima and sums, which `shardscope allreduce` evaluates in
  closed form.
- **A sweep** keeps plans lowered, routes, cuts and layer-wise tables from point to point where only bandwidths and
  latencies differ. Points are not put side by side into one run of the engine: what ends within 1e-12 of the clock
  ends together there, so that one point's times would depend on another's.
- **The hypergraph search** bounds what each change of a run of layers promises from sums over the layers before it,
  works out the promise of the lowest bounds, and simulates only what promises a shorter step. It descends from several
  starts, each with its own micro-batches, since the shortest start is seldom the best one, and changes the best that
  they come to. Of VGG-16's search on 16 devices the starts take a third, descents and changes half, annealing a
  seventh, KaHyPar's cuts a fiftieth. Its budget is counted in tasks, so that the answer does not
  depend on the machine.
- **Layer-wise tables and their least sum**: a lower bound rules out all but about one choice a layer before the exact
  elimination, to the same bits (Inception-v3 on 16 devices: 0.30 to 0.07 s a sum); what messages load is looked at in
  blocks that stay in the cache (6.3 to 2.2 s).
- **The communication volume without simulating** adds up a dense matrix and grows with the square of the devices.
"""
