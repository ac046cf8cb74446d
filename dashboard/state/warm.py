"""Imported where worker processes are forked from: what a first simulation loads, they have from their start."""

from contextlib import suppress

from dashboard.state.configuration import Configuration
from dashboard.state.simulating import Request, simulated
from simulator import files

with suppress(Exception):  # whatever is wrong here is told by the first request that meets it
    name = min(files.library())
    now = Configuration(profile=name, cluster="azure-v100-10g", strategy="data", devices=8)
    simulated(Request(configuration=now, profile=files.read_profile(name), light=True))
