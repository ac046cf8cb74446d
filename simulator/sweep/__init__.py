"""Batch sweeps: many points, one table.

specification   what to sweep, as the YAML file says it            Specification
axes            lists, ranges and zips as values                   Specification -> Axes
inputs          profiles and clusters, each loaded once            Axes -> Inputs
points          every combination that the constraints keep        Axes, Inputs -> Points
evaluate        one point: partition, simulate, measure            Point -> PointResult
runner          all points on an engine (engines: processes, Dask)
results_table   one row per point, in SQLite, written as points finish
queries         best, across, pareto; chart and export show them
bounds          what no plan, and no simulation of one, is below

Nothing here imports the strategies: the composer of a sweep passes `load` and `options` of their registry in.
"""
