"""Measuring a network layer by layer on this machine: `python -m traces.capture`.

allocations         bytes that operators hold at once
channel_fractions   a layer with a fraction of its channels, as a device that holds a channel shard would run it
checkpointed_call   activation checkpointing: modules that keep their inputs alone, and run again in their backward pass
command             measure a network layer by layer on this machine
device_clocks       clocks that time what a device does, step by step, without slowing it down; layers' times
doubts              why the layers of a capture do not add up to its step, and what to do about it
fx_steps            a network as a list of steps that can be run, timed and differentiated one by one
layer_geometry      what kind of layer a step is, and what part of its input a part of its output needs
layer_survey        what is known of layers without timing them: shapes, sizes, geometry, joins, saved storage
machine_settings    the machine: its name, software, settings that are put back, and core time that its host took
measurement_rounds  rounds of measurement over one network, and the layers that their medians make
median_profile      several captures of one network as one profile, also those of processes at once
module_tracer       torch.fx as capture uses it: which modules are whole, their names, and what their nodes call
momentum_sgd        stochastic gradient descent with momentum, as torch.optim.SGD does it by default
recorded_calls      a network's calls while it runs once on example data: any Python, any containers, no tracing
recorded_steps      recorded calls as steps: modules, and the functions between two of them as one, compiled
timed_passes        whole training steps, run layer by layer and timed in place
"""
