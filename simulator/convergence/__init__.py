"""Samples to a target accuracy, and the time and money that they take.

curve_files       files of measured convergence curves, and those that come with Shardscope, one per network
curves            how many samples a network takes to a target accuracy, from measured curves
noise_scale       how noisy gradients are, and what that says of larger batches
time_to_accuracy  when a plan reaches a target accuracy, and what that costs: the simulated step times the samples
                  it takes
"""
