"""A report as one HTML file that needs neither a server nor a network: figures, timelines and their scripts inside."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources

from dashboard.figures import span_columns
from dashboard.figures.devices import breakdown, load_balance, memory
from dashboard.figures.network import link_use, topology, traffic_matrix
from dashboard.figures.partition import partition
from dashboard.figures.style import CONFIG, Figure
from dashboard.state.columns import columns_of
from dashboard.state.flows import flows_of
from dashboard.state.measures import shares
from dashboard.words.kpis import kpis
from simulator.cluster import Cluster
from simulator.run import Run, expected_interval
from simulator.workload import Profile

_SCRIPTS = ("painting.js", "pointing.js", "spans.js", "timeline.js")
"""In the order in which the app's pages load them, too: by name."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """One run under a title, or the reason why there is none; `note` says how to repeat it."""

    title: str
    profile: Profile
    cluster: Cluster
    run: Run | None = None
    reason: str = ""
    note: str = ""


def standalone(sections: Sequence[Section]) -> str:
    """The whole document. The first run is the baseline of the others."""
    from plotly.offline import get_plotlyjs

    first = next((section.run for section in sections if section.run is not None), None)
    bodies = [
        _section(number, section, first if section.run is not first else None)
        for number, section in enumerate(sections)
    ]
    name = f"{sections[0].profile.model} on {sections[0].cluster.name}"
    return (
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{escape(name)} · Shardscope</title>'
        f"<style>{_asset('style.css')}{_asset('partition.css')}{_STYLE}</style></head><body><main><h1>{escape(name)}</h1>"
        f"{_provenance(sections[0].profile)}{''.join(bodies)}</main>"
        f"<script>{get_plotlyjs()}</script>{''.join(f'<script>{_asset(name)}</script>' for name in _SCRIPTS)}"
        f"<script>{_START}</script></body></html>"
    )


def _section(number: int, section: Section, baseline: Run | None) -> str:
    head = f"<section><h2>{escape(section.title)}</h2>"
    note = f'<p class="mono">{escape(section.note)}</p>' if section.note else ""
    if section.run is None:
        return f'{head}{note}<p class="bad">{escape(section.reason)}</p></section>'
    verdict = (
        f'<p class="{"" if section.run.report.fits else "bad"}">{escape(section.run.report.verdict)}</p>'
        if section.run.report.verdict
        else ""
    )
    spans = base64.b64encode(span_columns.encode(section.run, section.cluster)).decode()
    timeline = (
        f'<figure><figcaption>Timeline (click it, then W A S D F M C)</figcaption><div class="timeline" tabindex="0" '
        f'id="timeline-{number}"><script type="text/plain">{spans}</script></div></figure>'
    )
    columns = columns_of(section.profile, section.run.plan)
    drawn = partition(columns, flows_of(section.run, section.profile, section.cluster), section.cluster)
    split = f"<figure><figcaption>Partition</figcaption>{drawn}</figure>"
    figures = "".join(_figure(f"{name}-{number}", name, figure) for name, figure in _figures(section, baseline).items())
    numbers = _kpis(section, baseline)
    return f"{head}{note}{verdict}{numbers}{timeline}{split}<div class='figures'>{figures}</div></section>"


def _figures(section: Section, baseline: Run | None) -> dict[str, Figure]:
    assert section.run is not None
    run, cluster = section.run, section.cluster
    return {
        "load balance": load_balance(run, cluster, baseline),
        "device to device": traffic_matrix(run, cluster),
        "where the step goes": breakdown([("all", shares(run, cluster).total)]),
        "peak memory": memory(run, cluster, baseline),
        "network": topology(run, cluster),
        "link utilisation": link_use(run, cluster),
    }


def _figure(name: str, title: str, figure: Figure) -> str:
    # Whatever a layer is called, it cannot end the script that the figure stands in.
    content = json.dumps({**figure, "config": CONFIG}, allow_nan=False).replace("<", "\\u003c")
    return (
        f"<figure><figcaption>{escape(title.capitalize())}</figcaption>"
        f'<div class="plot" id="{name.replace(" ", "-")}" style="height:280px">'
        f'<script type="application/json">{content}</script></div></figure>'
    )


def _kpis(section: Section, baseline: Run | None) -> str:
    assert section.run is not None
    run = section.run
    interval = expected_interval(run.report, section.profile, section.cluster, run.plan, run.runtime)
    cells = "".join(
        f'<div><div class="kpi-label">{escape(kpi.label)}</div><span class="kpi-value">{escape(kpi.value)}</span> '
        f'<span class="kpi-change {kpi.tone}">{escape(kpi.change)}</span>'
        f'<div class="figure-note">{escape(kpi.note)}</div></div>'
        for kpi in kpis(run.report, baseline.report if baseline else None, interval=interval)
    )
    return f'<div class="kpis">{cells}</div>'


def _provenance(profile: Profile) -> str:
    facts = [f"measured on {profile.device}", f"batch {profile.batch_size}", profile.dtype, profile.date]
    return f"<p>{escape(' · '.join(part for part in facts if part))}</p>"


def _asset(name: str) -> str:
    return (resources.files("dashboard") / "assets" / name).read_text(encoding="utf-8")


_STYLE = """
body { font-family: system-ui, sans-serif; margin: 0 auto; max-width: 1300px; padding: 12px 20px; color: #2e3440; }
section { border-top: 1px solid #dde1e8; margin-top: 18px; }
figure { margin: 12px 0; } figcaption { font-weight: 600; font-size: 14px; margin-bottom: 4px; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(380px, 1fr)); gap: 4px 18px; }
.kpi-label, .figure-note, .timeline-status { color: #5b6472; }
"""

_START = """
window.shardscope.select = () => {};
for (const root of document.querySelectorAll(".timeline")) {
  const packed = root.firstChild.textContent;
  const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
  window.shardscope.timeline(root.id).show(window.shardscope.decode(bytes.buffer), "");
}
for (const root of document.querySelectorAll(".plot")) {
  const { data, layout, config } = JSON.parse(root.firstChild.textContent);
  root.replaceChildren();
  Plotly.newPlot(root, data, layout, config);
}
"""
