"""What Explore says: numbers, verdict, advice, the selected task, layer or device. Components, no callbacks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import dash_mantine_components as dmc
from dash import dcc, html

from dashboard.figures import span_columns
from dashboard.frame.cards import tiles
from dashboard.state.advice import Advice, SimulatedMove
from dashboard.state.hardware import mismatch, sequence_length, utilisation
from dashboard.state.inventory import label
from dashboard.state.measures import transfer_seconds
from dashboard.state.simulating import Outcome
from dashboard.words.kpis import SAME, Kpi, kpis
from simulator.run import Run
from simulator.units import format_bytes, format_time
from traces.results.validations import Validation


def kpi_row(outcome: Outcome, before: Outcome | None) -> list[Any]:
    """The key figures, each with its difference to the baseline `before`."""
    if outcome.run is None:
        return []
    baseline = before.run.report if before is not None and before.run is not None else None
    tokens = sequence_length(outcome.profile)
    rows = kpis(outcome.run.report, baseline, tokens)
    used = utilisation(outcome.profile, outcome.cluster, outcome.run.report) if tokens and outcome.cluster else None
    if used:  # convolutions need not do the arithmetic that they are counted with
        rows.append(Kpi(label="MFU", value=f"{used:.1%}", hint="model FLOP per second over the devices' peak"))
    if before is not None and (other := unlike(outcome, before)):
        rows = [replace(row, change=other, tone=SAME) for row in rows]
    return tiles(rows)


def unlike(outcome: Outcome, before: Outcome) -> str:
    """Why two outcomes cannot be compared in per cent: "another model" or "another machine"; empty where they can."""
    if outcome.profile.model != before.profile.model:
        return "another model"
    kinds = [{device.kind for device in side.cluster.devices} if side.cluster else set() for side in (outcome, before)]
    return "another machine" if all(kinds) and kinds[0] != kinds[1] else ""


def badge(outcome: Outcome) -> Any:
    """Whether the plan runs and fits, how many tasks it has and how long its simulation took."""
    if outcome.run is None:
        return dmc.Badge("cannot run", color="red", variant="light")
    report = outcome.run.report
    text = f"{report.tasks:,} tasks · simulated in {format_time(outcome.took_s)}"
    return dmc.Badge(
        f"fits · {text}" if report.fits else f"does not fit · {text}",
        color="green" if report.fits else "red",
        variant="light",
        tt="none",
    )


def busy_badge(words: str) -> Any:
    """What goes on while there is no outcome yet."""
    return dmc.Badge(words, color="yellow", variant="light", className="busy")


def chips(outcome: Outcome, validation: Validation | None) -> list[Any]:
    """What to know about the numbers: whose device was measured, and how near such predictions come."""
    shown: list[Any] = []
    if outcome.cluster is not None and (warning := mismatch(outcome.profile, outcome.cluster)):
        shown.append(dmc.Badge(warning, color="orange", variant="light", className="chip"))
    if validation is not None and validation.outcomes:
        errors = [abs(run.error) for run in validation.outcomes]
        text = f"predictions within {sum(errors) / len(errors):.1%} on average, {len(errors)} runs"
        shown.append(dcc.Link(text, href="/validate", className="chip-link"))
    return shown


def verdict(outcome: Outcome) -> Any:
    """Why a configuration cannot run or does not fit into memory; None where it does."""
    reason = outcome.reason or (outcome.run.report.verdict if outcome.run else "")
    if not reason:
        return None
    title = "This configuration cannot run" if outcome.run is None else "This does not fit into memory"
    return dmc.Alert(f"{reason}.", title=title, color="red", variant="light")


def baseline_name(before: Outcome | None, outcome: Outcome) -> str:
    """The pinned baseline in a few words."""
    if before is None:
        return "no baseline pinned"
    now = before.configuration
    if before.configuration == outcome.configuration:
        return "baseline: this configuration"
    same = " (infeasible)" if before.run is None else ""
    return f"baseline: {now.strategy} on {now.devices} × {label(now.cluster)}{same}"


def offered(advice: Advice, outcome: Outcome) -> list[SimulatedMove]:
    """The moves to click on: the best ones of a setting, then the best of the hardware; two where nothing runs yet."""
    settings = [option for option in advice.helpful if not option.move.hardware][:2]
    return settings + ([advice.hardware] if advice.hardware else [])


def advice_line(advice: Advice, outcome: Outcome, offered: list[SimulatedMove]) -> Any:
    """The largest loss of the step, and a button for each change that is offered."""
    if advice.note:
        text = [f"{advice.note}."]
    elif not offered:
        text = [f"None of {advice.settings} single changes makes this step shorter."]
    else:
        text = ["Try: "] if outcome.run else ["What would run: "]
    lost = f"Largest loss: {advice.loss.name}, {advice.loss.ratio:.0%} of device time. " if advice.loss else ""
    buttons = [
        dmc.Button(
            _gain_words(option, outcome), id={"type": "apply", "index": i}, size="compact-sm",
            variant="light" if not option.move.hardware else "outline", className="apply",
        )
        for i, option in enumerate(offered)
    ]  # fmt: skip
    line = dmc.Group([html.Span([html.Strong(lost), *text]), *buttons], gap=8)
    return dmc.Paper(line, withBorder=True, px="sm", py=6, radius="md", className="advice")


def _gain_words(option: SimulatedMove, outcome: Outcome) -> str:
    words = f"{option.move.words}: {format_time(option.step_s)}"
    if outcome.run is None:
        return words
    return f"{words} ({option.step_s / outcome.run.report.step_s - 1:+.0%})" + (
        "" if outcome.run.report.fits else ", fits"
    )


def task_detail(outcome: Outcome, task: int) -> Any:
    """When a task ran, and a button for the task that it waited for."""
    assert outcome.run is not None and outcome.cluster is not None
    description = span_columns.describe_task(outcome.run, outcome.cluster, task)
    facts = " · ".join(f"{label} {value}" for label, value in description["facts"].items())
    waited = description["waited"]
    step = (
        dmc.Button(
            description["waited_title"], id={"type": "waited", "task": waited}, size="compact-xs", variant="light"
        )
        if waited >= 0
        else description["waited_title"]
    )
    return html.Div(
        [html.Strong(description["title"]), html.Span(f" — {facts} — it waited for "), step], className="detail"
    )


def layer_detail(run: Run, layer: int) -> Any:
    """Compute time of a layer, and the bytes that it sends and synchronises."""
    use = run.report.layers[layer]
    seconds = transfer_seconds(run, layer)
    parts = [f"computes {format_time(use.compute_s)}"]
    crossing = use.forward_bytes + use.backward_bytes
    if crossing:
        parts.append(
            f"its output is cut: {format_bytes(use.forward_bytes)} forward, {format_bytes(use.backward_bytes)} back, "
            f"in flight for {format_time(seconds)}"
        )
    if use.synchronisation_bytes:
        parts.append(f"its gradients are synchronised with {format_bytes(use.synchronisation_bytes)}")
    if len(parts) == 1:
        parts.append("nothing of it crosses between devices")
    return html.Div([html.Strong(f"layer {use.name}"), f" — {' · '.join(parts)}"], className="detail")


def device_detail(run: Run, device: int) -> Any:
    """Where a device's step goes, its traffic and its peak memory."""
    use = run.report.devices[device]
    text = (
        f" — computes {format_time(use.compute_s)} ({use.utilisation:.0%}), waits "
        f"{format_time(use.exposed_communication_s)} for transfers and {format_time(use.bubble_s)} in bubbles · sends "
        f"{format_bytes(use.sent_bytes)}, receives {format_bytes(use.received_bytes)} · peak memory "
        f"{format_bytes(use.peak_memory_bytes)}"
    )
    return html.Div([html.Strong(use.name), text], className="detail")
