"""Samples to a target accuracy, and the time and money that they take.

curve_files       files of measured convergence curves, and those that come with Shardscope, one per network
curves            how many samples a network takes to a target accuracy, from measured curves
noise_scale       how noisy gradients are, and what that says of larger batches
time_to_accuracy  when a plan reaches a target accuracy, and what that costs: the simulated step times the samples
                  it takes
"""

from simulator.convergence.curve_files import measured, read_curves, write_curves
from simulator.convergence.curves import Curves, Interval, Method, Regime, Trial, accuracy_curve, noise_scale
from simulator.convergence.noise_scale import GradientNoise, estimated, fitted, over_training
from simulator.convergence.time_to_accuracy import CostToAccuracy, cost_to_accuracy, plan_cost_to_accuracy, regime_of

__all__ = [
    "CostToAccuracy",
    "Curves",
    "GradientNoise",
    "Interval",
    "Method",
    "Regime",
    "Trial",
    "accuracy_curve",
    "cost_to_accuracy",
    "estimated",
    "fitted",
    "measured",
    "noise_scale",
    "over_training",
    "plan_cost_to_accuracy",
    "read_curves",
    "regime_of",
    "write_curves",
]
