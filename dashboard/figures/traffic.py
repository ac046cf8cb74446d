"""Bytes from device to device in one step, of all phases or one of them."""

from __future__ import annotations

import numpy as np

from dashboard.figures.style import MAGNITUDE, Figure, figure, message, with_table
from dashboard.state.device_groups import DeviceGroup, device_groups
from dashboard.state.measures import traffic
from dashboard.words.volume import volume_unit
from simulator.cluster import Cluster
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
    matrix = _grouped(traffic(run, cluster, phase), groups)
    if not matrix.any():
        return message(f"nothing crosses between devices{f' in {phase}' if phase else ''}")
    names = [group.name for group in groups]
    largest = float(matrix.max())
    unit = volume_unit(run.report.communication_bytes.total)
    cells = np.where(matrix > 0, matrix / unit.size, np.nan)
    z = np.log10(cells) if logarithmic else cells
    texts = [[format_bytes(v) if v else "" for v in row] for row in matrix.tolist()]
    labels = [[f"{v:.3g}" if v == v else "" for v in row] for row in cells.tolist()]
    heat: dict[str, object] = {
        "type": "heatmap",
        "x": names,
        "y": names,
        "z": [[None if v != v else v for v in row] for row in z.tolist()],
        "text": labels if len(names) <= _LABELLED else None,
        "texttemplate": "%{text}" if len(names) <= _LABELLED else None,
        "textfont": {"size": 10},
        "customdata": texts,
        "hovertemplate": "%{y} → %{x}: %{customdata}<extra></extra>",
        "hoverongaps": False,
        "colorscale": MAGNITUDE,
        "reversescale": True,
        "xgap": 2,
        "ygap": 2,
        "colorbar": _bar(unit.name, z, logarithmic),
    }
    if not logarithmic:
        heat |= {"zmin": 0, "zmax": largest / unit.size}
    drawn = figure(
        [heat],
        xaxis={"title": {"text": "to"}, "type": "category", "showgrid": False},
        yaxis={"title": {"text": "from"}, "type": "category", "autorange": "reversed", "showgrid": False},
    )
    pairs = ((names[i], names[j], round(matrix[i, j])) for i, j in zip(*np.nonzero(matrix), strict=True))
    return with_table(drawn, ("from", "to", "bytes"), pairs)


def _grouped(matrix: Floats, groups: tuple[DeviceGroup, ...]) -> Floats:
    """Sums over groups of devices, shape (groups, groups)."""
    member = np.zeros((len(groups), len(matrix)))
    for number, group in enumerate(groups):
        member[number, list(group.devices)] = 1
    summed: Floats = member @ matrix @ member.T
    return summed


def _bar(unit: str, z: np.ndarray, logarithmic: bool) -> dict[str, object]:
    bar: dict[str, object] = {"title": {"text": unit}, "thickness": 10, "outlinewidth": 0}
    if logarithmic:
        ticks = np.linspace(np.nanmin(z), np.nanmax(z), 5)
        bar |= {"tickvals": ticks.tolist(), "ticktext": [f"{10**t:.3g}" for t in ticks]}
    return bar
