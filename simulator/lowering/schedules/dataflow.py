"""Dataflow: no order, every pass runs as soon as it is ready."""

from simulator.lowering.schedules._schedule import Schedule

SCHEDULE = Schedule(name="dataflow", order=None)
