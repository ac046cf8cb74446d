"""The discrete-event engine: when every task of a graph runs.

noise      stragglers and jitter: seeded changes of how long compute tasks take
reference  the discrete-event engine: TaskGraph, Cluster -> Timeline, on SimPy
"""

from simulator.engine.noise import Noise
from simulator.engine.reference import simulate

__all__ = ["Noise", "simulate"]
