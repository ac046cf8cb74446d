"""Where the step goes: device time by what it was spent on, adding up to 100 %."""

from __future__ import annotations

from dashboard.figures.style import FORWARD, IDLE, LEGEND, Figure, figure, with_table
from dashboard.state.measures import BUBBLE, COMPUTE, EXPOSED, LAUNCHES, NAMES, OVERLAPPED, Share
from dashboard.state.measures import IDLE as NO_WORK

COLOURS = {
    COMPUTE: FORWARD,
    OVERLAPPED: "#3f97cf",
    **dict.fromkeys(EXPOSED.values(), "#b9a3c9"),
    EXPOSED["forward"]: "#c9b458",
    EXPOSED["backward"]: "#b5838d",
    EXPOSED["synchronisation"]: "#8fbfa8",
    LAUNCHES: "#c2b8a3",
    BUBBLE: "#d9dce1",
    NO_WORK: IDLE,
}
"""Whatever is waited for is hatched, in a hue that no kind of task has."""
_PLAIN = {COMPUTE, OVERLAPPED}
_LABELLED = 0.09  # share of the width that leaves room for a number


def breakdown(rows: list[tuple[str, tuple[Share, ...]]]) -> Figure:
    """A stacked bar per row (a name and its shares, e.g. baseline and candidate or one per device), first on top."""
    names = [name for name, _ in rows]
    data = []
    for i, part in enumerate(NAMES):
        ratios, seconds = [shares[i].ratio for _, shares in rows], [shares[i].seconds for _, shares in rows]
        if max(ratios, default=0.0) < 0.0005:
            continue
        data.append({
            "type": "bar",
            "orientation": "h",
            "name": part,
            "y": names,
            "x": ratios,
            "customdata": [s * 1e3 for s in seconds],
            "text": [f"{r:.0%}" if r >= _LABELLED else "" for r in ratios],
            "textposition": "inside",
            "insidetextanchor": "middle",
            "textangle": 0,
            "marker": _marker(part),
            "hovertemplate": f"%{{y}}: {part} %{{x:.1%}}, %{{customdata:,.4~r}} ms of device time<extra></extra>",
        })  # fmt: skip
    drawn = figure(
        data,
        barmode="stack",
        bargap=0.35,
        legend={**LEGEND, "entrywidth": 0.5, "entrywidthmode": "fraction"},
        xaxis={"tickformat": ".0%", "range": [0, 1], "dtick": 0.25, "showgrid": False},
        yaxis={"type": "category", "autorange": "reversed", "showgrid": False},
    )
    cells = ((name, share.name, share.seconds, share.ratio) for name, shares in rows for share in shares)
    return with_table(drawn, ("of", "spent_on", "device_seconds", "ratio"), cells)


def _marker(part: str) -> dict[str, object]:
    marker: dict[str, object] = {"color": COLOURS[part]}
    if part not in _PLAIN:
        marker["pattern"] = {"shape": "/", "fgcolor": "#8b929c", "bgcolor": COLOURS[part], "size": 6, "solidity": 0.25}
    return marker
