"""Bytes from device to device in one step, of all phases or one of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from dashboard.figures.style import NAMES, NAMES_DOWN, Figure, colour_bar, figure, heatmap, message, with_table
from dashboard.state.device_groups import DeviceGroup, device_groups
from dashboard.words.volume import volume_unit
from simulator.cluster import Cluster
from simulator.report import traffic as report_traffic
from simulator.report.step_totals import PHASES
from simulator.run import Run
from simulator.taskgraph import Floats
from simulator.units import format_bytes

_LABELLED = 10  # devices up to which a cell has room for its number


def traffic_matrix(
    run: Run, cluster: Cluster, phase: str | None = None, logarithmic: bool = False, opened: int | None = None
) -> Figure:
    """Row sends to column; cells without traffic are blank.

    Of many devices a row and a column per group; opened: the group whose devices are drawn, what leaves it left out.
    """
    groups = device_groups(cluster, opened)
    kinds = PHASES.values() if phase is None else (PHASES[phase],)
    matrix = _grouped(report_traffic.traffic_matrix(run.graph, len(cluster.devices), kinds), groups)
    if not matrix.any():
        return message(f"nothing crosses between devices{f' in {phase}' if phase else ''}")
    names = [group.name for group in groups]
    largest = float(matrix.max())
    unit = volume_unit(run.report.communication_bytes.total)
    cells = np.where(matrix > 0, matrix / unit.size, np.nan)
    z = np.log10(cells) if logarithmic else cells
    texts = [[format_bytes(v) if v else "" for v in row] for row in matrix.tolist()]
    labels = [[f"{v:.3g}" if v == v else "" for v in row] for row in cells.tolist()]
    shown = [[None if v != v else v for v in row] for row in z.tolist()]
    ends = {} if logarithmic else {"zmin": 0, "zmax": largest / unit.size}
    written = {"text": labels, "texttemplate": "%{text}", "textfont": {"size": 10}} if len(names) <= _LABELLED else {}
    heat = heatmap(
        names, names, shown, _bar(unit.name, z, logarithmic), "%{y} → %{x}: %{customdata}", customdata=texts, xgap=2,
        ygap=2, **ends, **written,
    )  # fmt: skip
    drawn = figure([heat], xaxis={"title": "to", **NAMES}, yaxis={"title": "from", **NAMES_DOWN})
    pairs = ((names[i], names[j], round(matrix[i, j])) for i, j in zip(*np.nonzero(matrix), strict=True))
    return with_table(drawn, ("from", "to", "bytes"), pairs)


def _grouped(matrix: Floats, groups: tuple[DeviceGroup, ...]) -> Floats:
    """Sums over groups of devices, shape (groups, groups)."""
    member = np.zeros((len(groups), len(matrix)))
    for number, group in enumerate(groups):
        member[number, list(group.devices)] = 1
    summed: Floats = member @ matrix @ member.T
    return summed


def _bar(unit: str, z: np.ndarray, logarithmic: bool) -> dict[str, Any]:
    if not logarithmic:
        return colour_bar(unit)
    ticks = np.linspace(np.nanmin(z), np.nanmax(z), 5)
    return colour_bar(unit, tickvals=ticks.tolist(), ticktext=[f"{10**t:.3g}" for t in ticks])
