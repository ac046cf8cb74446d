"""Which layer of a network every kernel of a recorded training step belongs to.

    kernel  --correlation-->  the operator that launched it  --the outermost operator around it-->
        forward    its place among the model's operators (longest common subsequence) -> layer
        backward   Sequence number -> the last forward operator with it -> that one's layer
        update     inside Optimizer.step
        apart      collectives, gradients accumulated, copies of DistributedDataParallel, recomputation, data copied

What runs before the first layer's operator copies data and buffers. What runs after the last one is the loss.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from simulator.errors import InputError
from traces.imports._collectives import CollectiveCall, collective_call, is_collective
from traces.imports._recorded_phases import by_step, covered_s, launched_s, step_bounds
from traces.imports._recording import BACKWARD, OPTIMIZER_STEP, PROFILER_STEP, Recording, Span, Work, around
from traces.imports._structure import Call, Structure, kind_of

UPDATE, UNMATCHED = "update", "unmatched"
COPIES, RECOMPUTED, DATA = "copies of DistributedDataParallel", "recomputed", "data copied"
_REDUCER = ("torch.distributed.ddp.reducer", "torch::distributed::reducer", "c10d::", "record_param_comms", "nccl:")
_COMPUTES = {
    *("conv1d", "conv2d", "conv3d", "convolution", "linear", "addmm", "matmul", "mm", "bmm", "baddbmm"),
    *("batch_norm", "layer_norm", "group_norm", "embedding", "scaled_dot_product_attention", "lstm", "gru"),
}
"""Kinds that are part of a network wherever they stand, so that none is taken for copying or for the loss."""

Owner = int | str
"""The position of a layer, or what else something belongs to."""
MOST_EDITS = 1000
"""More insertions and deletions than this mean that the sequences have nothing to do with each other."""


@dataclass(slots=True, kw_only=True)
class RecordedStep:
    """One training step: seconds of every layer by position, of what stands apart, and of what has no layer.

    busy_s: time in which a kernel ran that is no collective; active_s: the same with collectives. end_s: when the
    last kernel ended.
    """

    forward_s: list[float]
    backward_s: list[float]
    start_s: float
    duration_s: float
    end_s: float
    busy_s: float
    active_s: float
    update_s: float = 0.0
    without_operator_s: float = 0.0
    apart_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    unmatched_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    collectives: list[CollectiveCall] = field(default_factory=list)
    backward_operators: int = 0
    paired: int = 0


def attribute(recording: Recording, network: Structure) -> tuple[list[RecordedStep], str]:
    """The steps of a recording that run the whole network, in order, and what is to be said of the others.

    Raises InputError when no step does.
    """
    bounds = step_bounds(recording)
    main = _main_thread(recording)
    spans = by_step(bounds, [(span.start_s, span) for span in recording.spans if not span.launches])
    work = by_step(bounds, [(launched_s(each), each) for each in recording.work])
    steps, errors = [], []
    for limits, inside, items in zip(bounds, spans, work, strict=True):
        try:
            steps.append(_step(limits, items, _Owners(inside, main, network, recording)))
        except InputError as error:
            errors.append(error)
    if not steps:
        raise errors[0]
    return steps, f"{len(errors)} of {len(bounds)} steps left out: {errors[0]}" if errors else ""


def _main_thread(recording: Recording) -> object:
    """The thread of the forward passes: that of the steps' marks, else that of the first operator with a number."""
    for span in recording.spans:
        if span.name.startswith((PROFILER_STEP, OPTIMIZER_STEP)):
            return span.thread
    forward = (s for s in recording.spans if s.sequence is not None and not s.name.startswith(BACKWARD))
    return next(forward, recording.spans[0]).thread


def _step(limits: tuple[float, float], work: Sequence[Work], owners: _Owners) -> RecordedStep:
    start_s, end_s = limits
    count = len(owners.network.layers)
    step = RecordedStep(
        forward_s=[0.0] * count,
        backward_s=[0.0] * count,
        start_s=start_s,
        duration_s=end_s - start_s,
        end_s=max((each.end_s for each in work), default=end_s),
        busy_s=covered_s(each.span_s for each in work if not is_collective(each)),
        active_s=covered_s(each.span_s for each in work),
        backward_operators=owners.backward_operators,
        paired=owners.paired,
    )
    for each in work:
        if is_collective(each):
            step.collectives.append(collective_call(each))
            step.apart_s["collectives"] += each.duration_s
        elif each.origin is None:
            step.without_operator_s += each.duration_s
        else:
            _book(step, each, *owners.of(each))
    return step


def _book(step: RecordedStep, work: Work, owner: Owner, backward: bool) -> None:
    if isinstance(owner, int):
        (step.backward_s if backward else step.forward_s)[owner] += work.duration_s
    elif owner == UPDATE:
        step.update_s += work.duration_s
    elif owner.startswith(UNMATCHED):
        step.unmatched_s[owner.removeprefix(UNMATCHED)] += work.duration_s
    else:
        step.apart_s[owner] += work.duration_s


class _Owners:
    """Whose the operators of one step are."""

    def __init__(self, spans: Sequence[Span], main: object, network: Structure, recording: Recording) -> None:
        self.network = network
        self._main = main
        forward = [span for span in spans if span.thread == main and _is_forward(span)]
        outermost = [span for span in forward if _outermost(span) is span]
        self._layer_of = _matched(outermost, network, recording)
        by_number = {span.sequence: span for span in forward if span.sequence is not None}  # of a number, the last one
        numbered = [span for span in spans if span.name.startswith(BACKWARD) and span.sequence is not None]
        sources = ((span, by_number[span.sequence]) for span in numbered if span.sequence in by_number)
        self._source = {id(span): _outermost(source) for span, source in sources}
        self.backward_operators = len(numbered)
        self.paired = sum(isinstance(self._backward_owner(span), int) for span in numbered)

    def of(self, work: Work) -> tuple[Owner, bool]:
        """The owner of what an operator launched, and whether it is its backward's."""
        chain = list(work.around)
        names = [span.name for span in chain]
        if any(name.startswith(OPTIMIZER_STEP) for name in names):
            return UPDATE, False
        if any(name.startswith("Optimizer.zero_grad") for name in names):
            return "gradients zeroed", False
        if any(name.startswith(_REDUCER) for name in names):
            return COPIES, False
        backward = next((span for span in chain if span.name.startswith(BACKWARD)), None)
        if backward is not None:
            return self._within(backward, chain), True
        outer = _outermost(chain[0])
        if outer.thread != self._main:
            return (DATA if work.name.startswith("Memcpy") else UNMATCHED + outer.name), False
        return self._layer_of.get(id(outer), UNMATCHED + outer.name), False

    def _within(self, backward: Span, chain: Sequence[Span]) -> Owner:
        """An operator that records gradients inside a backward pass is forward work done again."""
        if "AccumulateGrad" in backward.name:
            return "gradients accumulated"
        own = backward.name.removeprefix(BACKWARD)
        inside = chain[: chain.index(backward)]
        if any(span.sequence is not None and span.name != own for span in inside):
            return RECOMPUTED
        return self._backward_owner(backward)

    def _backward_owner(self, backward: Span) -> Owner:
        source = self._source.get(id(backward))
        unmatched = UNMATCHED + backward.name.removeprefix(BACKWARD)
        return unmatched if source is None else self._layer_of.get(id(source), unmatched)


def _outermost(span: Span) -> Span:
    """The outermost operator around a span; annotations are none."""
    operators = [each for each in around(span) if not each.annotation]
    return operators[-1] if operators else span


def _is_forward(span: Span) -> bool:
    if span.annotation:
        return False
    return not any(each.name.startswith((BACKWARD, "Optimizer.", *_REDUCER)) for each in around(span))


def _matched(operators: Sequence[Span], network: Structure, recording: Recording) -> dict[int, Owner]:
    """The owner of every outermost forward operator that has one, by its identity."""
    loss = len(network.layers) - 1
    calls = [call for call in network.calls if call.layer != loss]
    kinds = [kind_of(span.name) for span in operators]
    first = kinds.index(calls[0].kind) if calls and calls[0].kind in kinds else 0
    pairs = align([call.kind for call in calls], kinds[first:])
    if pairs is None:
        raise InputError(
            f"{recording.path}: its operators are not those of the model; name the model that was recorded"
        )
    owners: dict[int, Owner] = {}
    for number, position in pairs:
        span = operators[first + position]
        _check_shapes(recording, calls[number], span, network)
        owners[id(span)] = calls[number].layer
    _check_complete(recording, network, {owner for owner in owners.values() if isinstance(owner, int)})
    last = first + (pairs[-1][1] if pairs else -1)
    for position, (kind, span) in enumerate(zip(kinds, operators, strict=True)):
        if kind not in _COMPUTES and not first <= position <= last:
            owners[id(span)] = DATA if position < first else loss
    return owners


def _check_shapes(recording: Recording, call: Call, span: Span, network: Structure) -> None:
    """Where shapes were recorded, those of the first tensor must agree."""
    dims = span.arguments.get("Input Dims")
    shape = next((s for s in dims if isinstance(s, list) and s), None) if isinstance(dims, list) else None
    if shape and call.shapes and tuple(shape) != call.shapes[0]:
        layer = network.layers[call.layer].name
        raise InputError(
            f"{recording.path}: {span.name[:80]!r} reads {str(tuple(shape))[:80]} where layer {layer!r} of the model "
            f"reads {call.shapes[0]}; name the model and batch size that were recorded"
        )


def _check_complete(recording: Recording, network: Structure, seen: set[int]) -> None:
    for position, layer in enumerate(network.layers):
        if layer.parameter_bytes and position not in seen:
            raise InputError(
                f"{recording.path}: it does not run layer {layer.name!r} ({layer.kind}) of the model, or not in its "
                "place; name the model that was recorded, as it was recorded"
            )


def align(left: Sequence[str], right: Sequence[str]) -> list[tuple[int, int]] | None:
    """Positions (in `left`, in `right`) of a longest common subsequence; None beyond MOST_EDITS edits.

    The greedy algorithm of Myers, "An O(ND) difference algorithm and its variations" (Algorithmica 1, 1986): on the
    grid of both sequences, furthest[k] is how far the best path of d edits gets along the diagonal k = x - y.
    """
    furthest, history = {1: 0}, []
    for edits in range(min(len(left) + len(right), MOST_EDITS) + 1):
        history.append(dict(furthest))
        for k in range(-edits, edits + 1, 2):
            down = k == -edits or (k != edits and furthest[k - 1] < furthest[k + 1])
            x = furthest[k + 1] if down else furthest[k - 1] + 1
            while x < len(left) and 0 <= x - k < len(right) and left[x] == right[x - k]:
                x += 1
            furthest[k] = x
            if x >= len(left) and x - k >= len(right):
                return _path(history, len(left), len(right))
    return None


def _path(history: Sequence[dict[int, int]], x: int, y: int) -> list[tuple[int, int]]:
    """The matches along the best path, from its end back to its beginning."""
    pairs = []
    for edits in range(len(history) - 1, -1, -1):
        furthest, k = history[edits], x - y
        down = k == -edits or (k != edits and furthest[k - 1] < furthest[k + 1])
        start = furthest[k + 1] if down else furthest[k - 1]
        after_edit = (start if down else start + 1) if edits else 0
        while x > after_edit:
            x, y = x - 1, y - 1
            pairs.append((x, y))
        x, y = start, start - (k + 1 if down else k - 1)
    return pairs[::-1]
