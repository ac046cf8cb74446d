"""Training to a target accuracy, for real.

curve_measurement  train for real in many regimes, with gradients as old as each says, and keep every curve
datasets           data sets small enough to train on until a target accuracy, in seconds on one core
"""
