"""What ships as data, made of published measurements, and how well it predicts others.

gpu_library      profiles of real GPUs
typical_scaling  what a part of a layer takes on a usual device
operators        seconds of operators by shape beside tables of kernels
language_models  steps and memory of published runs, and stacks calibrated on them
"""
