"""Measuring a network layer by layer on this machine: `python -m traces.capture`.

channel_fractions   a layer with a fraction of its output channels, as a device that holds a channel shard would run
                    it
checkpointed_call   activation checkpointing: modules that keep only their inputs, and run again in their backward
                    pass
command             measure a network layer by layer on this machine
device_clocks       clocks that time what a device does, step by step, without slowing it down; layers' times
doubts              why the layers of a capture do not add up to its step, and what to do about it
fx_steps            a network as a list of steps that can be run, timed and differentiated one by one
layer_geometry      what kind of layer a step is, and what part of its input a part of its output needs
layer_survey        what can be known of a network's layers without timing them: shapes, sizes, geometry, joins,
                    saved storage
machine_settings    the machine that a profile is captured on: its name, its software, settings that are put back
                    afterwards, and what its host took of its core time
measurement_rounds  rounds of measurement over one network, and the layers that their medians make
median_profile      several captures of one network as one profile, also those of processes at once
module_tracer       torch.fx as capture uses it: which modules are whole, what they are called, and what their nodes
                    call
momentum_sgd        stochastic gradient descent with momentum, as torch.optim.SGD does it by default
recorded_calls      a network's calls as they happen while it runs once on example data: any Python, any containers,
                    no tracing
recorded_steps      recorded calls as steps: modules are steps, and the functions between two of them are one step
                    together, compiled
timed_passes        whole training steps, run layer by layer and timed in place
"""
