"""The published work that the project implements, beside its own numbers.

hypergraph         cuts of the hypergraph: volume and balance
hypergraph_steps   `hypergraph` beside the best of every other strategy, by the step
iopddl             Google's contest of intra-operator strategies
optcnn             layer-wise parallelism
contiguous         contiguous stages: PipeDream's splits
placements         contiguous stages: the instances of Tarnawski et al.
sharding_cases     closed forms of what shardings move
convergence        docs/convergence.md, by section
convergence_plots  the plots of that page
demonstration      a network trained to an accuracy under four plans, for real
demonstrated       one network in one shaped network, predicted first
plan_training      a plan trained for real until an accuracy
whole_parameters   parameters joined from what the ranks hold
interconnects      which strategy is first at an accuracy, by interconnect, simulated
rehearsal          changes of devices of a running job, for real
rehearsed_changes  such changes with what they take beside the pause
torchelastic       torchrun's own restarts of the same training
elastic_figures    published pauses of elastic jobs
balanced_shares    shares of a batch on devices of unequal speed, for real
cpu_throttle       processes held to a share of a core
unequal            shares on devices of unequal speed, simulated
"""
