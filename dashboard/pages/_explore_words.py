"""What Explore says: numbers, verdict, advice, the selected task, layer or device. Components, no callbacks."""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import Any

from dash import html

from dashboard.figures import span_columns
from dashboard.frame.cards import marked, tiles
from dashboard.state.advice import Advice, Move
from dashboard.state.flows import between_nodes_bytes
from dashboard.state.measures import mismatch, sequence_length, transfer_seconds, utilisation
from dashboard.state.simulating import Glance, Outcome
from dashboard.state.validations import published_errors
from dashboard.words.comparison import unlike
from dashboard.words.kpis import SAME, Kpi, difference, idle_words, kpis, seconds_range, verdict_of
from dashboard.words.partition import against, moved_words
from dashboard.words.volume import volume_unit
from simulator.cluster import Cluster
from simulator.lowering.costs.typical_scaling import device_class
from simulator.run import Run
from simulator.units import format_bytes, format_time
from traces.results.validations import Validation

_TITLES = {
    "border": "This is at the border of memory: it may not fit", "does not fit": "This does not fit into memory",
    "breaks a rule": "This breaks a rule of its runtime", "cannot run": "This configuration cannot run",
}  # fmt: skip


def kpi_row(outcome: Outcome, before: Outcome | None) -> list[Any]:
    """The key figures, each with its difference to the baseline `before`."""
    if outcome.report is None:
        return []
    baseline = before.report if before is not None else None
    tokens = sequence_length(outcome.profile)
    rows = kpis(outcome.report, baseline, tokens, outcome.interval)
    used = _mfu(outcome) if tokens else None
    if used:  # convolutions need not do the arithmetic that they are counted with
        then = _mfu(before) if before is not None else None
        change, tone = difference(used, then, more=True, points=True) if then else ("", SAME)
        hint = "model FLOP per second over the devices' peak"
        rows.append(Kpi(label="MFU", value=f"{used:.1%}", hint=hint, change=change, tone=tone))
    if before is not None and (other := unlike(outcome, before)):
        rows = [replace(row, change=other, tone=SAME) for row in rows]
    notes = _notes(outcome.run, outcome.cluster) if outcome.run and outcome.cluster else {}
    return tiles([replace(row, note=notes.get(row.label, row.note)) for row in rows])


def _mfu(outcome: Outcome) -> float | None:
    if outcome.report is None or outcome.cluster is None:
        return None
    return utilisation(outcome.profile, outcome.cluster, outcome.report)


def _notes(run: Run, cluster: Cluster) -> dict[str, str]:
    """What stands below the numbers that would mislead alone."""
    nodes = len({device.host for device in cluster.devices[: cluster.workers]})
    total = run.report.communication_bytes.total
    far = volume_unit(total).words(between_nodes_bytes(run, cluster))
    return {
        "Max / mean load": idle_words(run.report, cluster.workers),
        "Sent per step": "" if not total else f"{far} between nodes" if nodes > 1 else "inside one node",
    }


def why(outcome: Outcome, shown: Glance | None = None, data: Glance | None = None, reason: str = "") -> Any:
    """The answer in a sentence: the strategy, what its step is limited by, what it does better than data parallelism.

    shown, data: figures of this plan and of data parallelism, as soon as they are there; reason: where the bytes went.
    """
    report, plan = outcome.report, outcome.plan
    if report is None or plan is None:
        return None
    now = outcome.configuration
    name = now.planner if now.plan else plan.strategy
    ends = seconds_range(outcome.interval_s)
    text = f" takes {format_time(report.step_s)}{f' ({ends})' if ends else ''}, "
    text += f"limited by {report.bottleneck}. "
    if data is not None and not data.fits and data.configuration != now:
        text += f"Data parallelism {data.fit} and is no yardstick. "
        data = None
    if shown is not None and data is not None and data.configuration != now:
        faster = against(shown.step_s, data.step_s)
        text += f"{faster[:1].upper()}{faster[1:]} ({format_time(data.step_s)}). "
    text += moved_words(shown, data) if shown is not None else ""
    return html.Div([html.Strong(name), text, reason])


def badge(outcome: Outcome) -> Any:
    """Whether the plan runs and fits, how many tasks it has and how long its simulation took."""
    said, report = verdict_of(outcome), outcome.report
    text = f" · {report.tasks:,} tasks · simulated in {format_time(outcome.took_s)}" if report else ""
    return html.Span(said.word + text, className=f"badge {said.colour}")


def chips(outcome: Outcome, validation: Validation | None) -> list[Any]:
    """What to know about the numbers: whose device was measured, and how near such predictions come."""
    shown: list[Any] = []
    if outcome.cluster is not None and (warning := mismatch(outcome.profile, outcome.cluster)):
        shown.append(html.Span(warning, className="badge orange chip"))
    if outcome.note:
        shown.append(html.Span(outcome.note, className="badge orange chip"))
    if validation is not None and validation.outcomes:
        errors = [abs(run.error) for run in validation.outcomes]
        text = f"predictions within {sum(errors) / len(errors):.1%} on average, {len(errors)} runs"
        if device_class(outcome.profile.device) == "GPU":
            known = published_errors()
            text += f"; steps that others published of GPUs: {median(known):.1%} at the median of {len(known)}"
        shown.append(html.A(text, href="validate", className="chip-link", **marked(page="/validate")))
    return shown


def verdict(outcome: Outcome) -> Any:
    """Why a configuration cannot run or does not fit, in the badge's word and colour; None where it fits."""
    said = verdict_of(outcome)
    if not said.reason:
        return None
    title = _TITLES[said.word]
    return html.Div([html.Strong(title), html.Div(f"{said.reason}.")], className=f"verdict {said.colour}", role="alert")


def baseline_name(before: Outcome | None, outcome: Outcome) -> str:
    """The pinned baseline in a few words."""
    if before is None:
        return "no baseline pinned"
    now = before.configuration
    if before.configuration == outcome.configuration:
        return "baseline: this configuration"
    said = verdict_of(before).word
    return f"baseline: {now.planner} on {now.machine}{f', {said}' if said != 'fits' else ''}"


def advice_words(advice: Advice | None, outcome: Outcome, done: int, count: int) -> Any:
    """What stands there while single changes are tried: how many are, and below what helps among them.

    advice: of those that are known, None where it is too early for it. done, count: changes tried, and of all.
    """
    left = f"Trying single changes: {done} of {count} simulated …" if done < count else ""
    if left and (advice is None or not advice.offered):
        return html.Div(left, className="advice figure-note")
    assert advice is not None
    return [advice_line(advice, outcome), *([html.Div(left, className="figure-note")] if left else [])]


def later(searching: bool) -> Any:
    """What stands there of the best plan so far of a search, or of a step whose tasks are not there yet."""
    when = "of what a whole search finds" if searching else "once all tasks are simulated"
    return html.Div(f"Single changes are tried {when}.", className="advice figure-note")


def advice_line(advice: Advice, outcome: Outcome) -> Any:
    """The largest loss of the step, and a button for each change that is offered."""
    options = advice.offered
    if advice.note:
        text = f"{advice.note}."
    elif not options:
        text = f"None of {advice.settings} single changes makes this step shorter."
    else:
        text = "Try: " if outcome.report else "What would run: "
    lost = f"Largest loss: {advice.loss.name}, {advice.loss.ratio:.0%} of device time. " if advice.loss else ""
    buttons = [
        html.Button(
            _gain_words(move, glance, outcome), className=f"apply{' hardware' if move.hardware else ''}",
            title=f"90% sure of {ends}" if (ends := seconds_range(glance.interval_s)) else None,
            **marked(load=move.configuration.query()),
        )
        for move, glance in options
    ]  # fmt: skip
    return html.Div([html.Span([html.Strong(lost), text]), *buttons], className="advice")


def _gain_words(move: Move, glance: Glance, outcome: Outcome) -> str:
    words, report = f"{move.words}: {format_time(glance.step_s)}", outcome.report
    if report is None:
        return words
    shorter = f"{words} ({glance.step_s / report.step_s - 1:+.0%})"
    if not glance.fits:
        return f"{shorter}, does not fit either"
    return shorter if report.fits else f"{shorter}, fits"


def task_detail(outcome: Outcome, task: int) -> Any:
    """When a task ran, and a button for the task that it waited for."""
    assert outcome.run is not None and outcome.cluster is not None
    description = span_columns.describe_task(outcome.run, outcome.cluster, task)
    facts = " · ".join(f"{label} {value}" for label, value in description["facts"].items())
    waited = description["waited"]
    name = description["waited_title"]
    step = html.Button(name, className="offer", **marked(task=waited)) if waited >= 0 else name
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
