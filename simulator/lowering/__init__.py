"""From a profile and a plan to the tasks of one training step.

step           ShardedModel, Cluster, Runtime -> TaskGraph
sharded_model  ShardedModel: everything that follows from a profile and a plan, derived once and read by all who need it

tasks/         the tasks of a step: passes, what moves between them, and what synchronises gradients and weights
symmetry/      which devices do the same at the same times, so that they are lowered and simulated once
parameters/    who holds which part of a parameter, and which gradients travel together
costs/         what shards, and the passes over them, take and hold
exchange/      what of a tensor moves between the shards that make it and those that read it
schedules/     in which order a device runs the passes of its micro-batches, one file per schedule
"""
