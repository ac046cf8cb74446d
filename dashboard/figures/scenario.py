"""A job over time: throughput under each policy, number of devices, and the membership changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dashboard.figures.style import IDLE, INK, LEGEND_ABOVE, LINES, OUTLINE, Figure, figure, with_table
from simulator.elastic.job_account import Account

INTERVALS = 288


def throughput(accounts: Mapping[str, Account], policy: str, selected: int | None = None) -> Figure:
    """Mean samples/s in equal parts of the time, the selected policy's filled; events numbered as in the table."""
    account = accounts[policy]
    unit_s, unit = _unit(account.duration_s)
    others = [name for name in accounts if name != policy]
    colours = dict(zip(accounts, LINES, strict=False))
    data = [_rates(name, accounts[name], unit_s, colours[name], filled=name == policy) for name in (policy, *others)]
    data.append(_devices(account, unit_s))
    top = max(max(trace["y"]) for trace in data[:-1])
    drawn = figure(
        data,
        margin={"l": 62, "r": 16, "t": 40, "b": 44},
        legend={**LEGEND_ABOVE, "x": 1, "xanchor": "right"},
        shapes=[_line(incident.at_s / unit_s, i == selected) for i, incident in enumerate(account.incidents)],
        annotations=[_number(i, incident.at_s / unit_s, i == selected) for i, incident in enumerate(account.incidents)],
        xaxis={"title": unit, "range": [0, account.duration_s / unit_s], "anchor": "y2"},
        yaxis={"title": "samples/s", "domain": [0.26, 1], "range": [0, (top or 1) * 1.1]},
        yaxis2={"title": "devices", "domain": [0, 0.18], "rangemode": "tozero", "showgrid": False,
                "nticks": 3},
    )  # fmt: skip
    rates = ((name, zip(*each.throughput(INTERVALS), strict=False)) for name, each in accounts.items())
    rows = ((name, float(from_s), float(rate)) for name, parts in rates for from_s, rate in parts)
    return with_table(drawn, ("policy", "from_s", "samples_per_s"), rows)


def _rates(name: str, account: Account, unit_s: float, colour: str, *, filled: bool) -> dict[str, Any]:
    edges_s, rates = account.throughput(INTERVALS)
    return {
        "type": "scatter", "mode": "lines", "name": name, "x": (edges_s / unit_s).tolist(),
        "y": [*rates.tolist(), float(rates[-1])],
        "line": {"color": colour, "width": 2 if filled else 1.3, "shape": "hv", "dash": "solid" if filled else "dot"},
        "fill": "tozeroy" if filled else "none", "fillcolor": f"{colour}22",
        "hovertemplate": f"{name}: %{{y:,.4~r}} samples/s<extra></extra>",
    }  # fmt: skip


def _devices(account: Account, unit_s: float) -> dict[str, Any]:
    segments = account.segments
    return {
        "type": "scatter", "mode": "lines", "yaxis": "y2", "showlegend": False,
        "x": [*(segment.start_s / unit_s for segment in segments), account.duration_s / unit_s],
        "y": [*(segment.devices for segment in segments), segments[-1].devices],
        "line": {"color": OUTLINE, "shape": "hv", "width": 1.5}, "fill": "tozeroy", "fillcolor": f"{IDLE}33",
        "hovertemplate": "%{y} devices<extra></extra>",
    }  # fmt: skip


def _line(x: float, selected: bool) -> dict[str, Any]:
    line = {
        "color": INK if selected else OUTLINE,
        "width": 2 if selected else 1,
        "dash": "solid" if selected else "dot",
    }
    return {"type": "line", "xref": "x", "yref": "paper", "x0": x, "x1": x, "y0": 0, "y1": 1, "line": line}


def _number(index: int, x: float, selected: bool) -> dict[str, Any]:
    return {"x": x, "yref": "paper", "y": 1, "yanchor": "bottom", "showarrow": False, "text": f"{index + 1}",
            "font": {"size": 12 if selected else 11}}  # fmt: skip


def _unit(duration_s: float) -> tuple[float, str]:
    return (3600.0, "hours") if duration_s > 7200 else (60.0, "minutes") if duration_s > 120 else (1.0, "seconds")
