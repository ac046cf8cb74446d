"""A layer with a fraction of its channels: its parameters, what it reads and makes, and where there is none."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, fx, nn  # noqa: E402

from simulator.workload import Geometry  # noqa: E402
from traces.capture.channel_fractions import Narrowed, narrow  # noqa: E402
from traces.capture.fx_steps import TracedStep, Value, tensors  # noqa: E402
from traces.capture.layer_geometry import describe  # noqa: E402
from traces.zoo.blocks import Attention, Positions, Tokens  # noqa: E402

Shapes = list[tuple[int, ...]]
PLANE, SEQUENCE, VECTOR = (2, 4, 5, 5), (2, 7, 6), (2, 6)


def step_of(call: Any) -> TracedStep:
    """A layer of one input."""
    graph = fx.Graph()
    node = graph.call_function(torch.relu, (graph.placeholder("x"),))
    return TracedStep(node=node, name=getattr(call, "__name__", "layer"), call=call, dies=())


def narrowed(call: Any, value: Tensor, fraction: Fraction, reading: bool = False, axis: int = 2) -> Narrowed | None:
    step, output = step_of(call), call(value)
    geometry = describe(step, (value,), {}, output)[1]
    environment = {step.node.all_input_nodes[0]: Value(tensor=value, layer=0)}
    return narrow(step, geometry, environment, fraction, output, axis, reading)


class Conv1D(nn.Module):
    """GPT-2's linear layer, whose weight is (inputs, outputs)."""

    def __init__(self, nf: int, nx: int) -> None:
        super().__init__()
        self.nf, self.nx = nf, nx
        self.weight, self.bias = nn.Parameter(torch.zeros(nx, nf)), nn.Parameter(torch.zeros(nf))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight + self.bias


@pytest.mark.parametrize(
    ("call", "shape", "parameters", "slices"),
    [
        (nn.Conv2d(4, 8, 3, padding=1), PLANE, [(4, 4, 3, 3), (4,)], False),
        (nn.Conv2d(4, 8, (3, 1), (2, 1), (1, 0), (1, 2), bias=False), PLANE, [(4, 4, 3, 1)], False),
        (nn.Conv2d(4, 8, 3, groups=2), PLANE, [(4, 2, 3, 3), (4,)], True),
        (nn.Conv2d(4, 4, 3, groups=4), PLANE, [(2, 1, 3, 3), (2,)], True),
        (nn.Conv1d(7, 4, 3), SEQUENCE, [(2, 7, 3), (2,)], False),
        (nn.Linear(6, 4), VECTOR, [(2, 6), (2,)], False),
        (nn.Linear(6, 4, bias=False, dtype=torch.float64), VECTOR, [(2, 6)], False),
        (Conv1D(4, 6), SEQUENCE, [(6, 2), (2,)], False),
        (nn.Embedding(11, 6), (2, 7), [(11, 3)], False),
        (nn.BatchNorm2d(4), PLANE, [(2,), (2,)], True),
        (Attention(2, causal=True), (2, 7, 12), [], True),
        (Tokens(4, 25), PLANE, [(1, 1, 2), (1, 26, 2)], True),
        (Positions(6, 7), SEQUENCE, [(7, 3)], True),
        (nn.ReLU(), PLANE, [], True),
        (torch.sigmoid, SEQUENCE, [], True),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_half_of_the_output_channels(call: Any, shape: tuple[int, ...], parameters: Shapes, slices: bool) -> None:
    """Of the type of the layer, with its windows: it makes what is expected of the full output."""
    of_parameters = next(call.parameters(), torch.zeros(0)).dtype if isinstance(call, nn.Module) else torch.float32
    value = torch.ones(shape, dtype=torch.int64 if isinstance(call, nn.Embedding) else of_parameters)
    axis = 1 if isinstance(call, nn.Conv1d) else 2
    half = narrowed(call, value, Fraction(1, 2), axis=axis)
    assert half is not None and (half.slices, half.makes, half.fraction) == (slices, True, Fraction(1, 2))
    made = list(half.step.module.parameters()) if half.step.module is not None else []
    assert [tuple(each.shape) for each in made] == parameters and {each.dtype for each in made} <= {of_parameters}
    output = half.step.call(half.value(Value(tensor=value, layer=0)).tensor)
    assert output.shape == half.gradient(call(value)).shape
    assert narrowed(call, value, Fraction(1, 5), axis=axis) is None


@pytest.mark.parametrize(
    ("call", "shape", "parameters"),
    [
        (nn.Conv2d(4, 8, 3, padding=1), PLANE, [(8, 2, 3, 3)]),
        (nn.Conv2d(4, 8, 3, groups=2), PLANE, None),
        (nn.Linear(6, 4), VECTOR, [(4, 3)]),
        (Conv1D(4, 6), SEQUENCE, [(3, 4), (4,)]),
        (nn.Embedding(11, 6), (2, 7), None),
        (nn.BatchNorm2d(4), PLANE, None),
        (nn.ReLU(), PLANE, None),
        (torch.sigmoid, PLANE, None),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_half_of_the_input_channels(call: Any, shape: tuple[int, ...], parameters: Shapes | None) -> None:
    """A term of the whole output, whose bias another adds; only of what sums over channels."""
    value = torch.ones(shape, dtype=torch.int64 if isinstance(call, nn.Embedding) else torch.float32)
    half = narrowed(call, value, Fraction(1, 2), reading=True)
    assert (half is not None) == (parameters is not None)
    if half is not None and half.step.module is not None:
        assert (half.slices, half.makes) == (True, False)
        assert [tuple(each.shape) for each in half.step.module.parameters()] == parameters
        assert half.step.call(half.value(Value(tensor=value, layer=0)).tensor).shape == call(value).shape
        assert narrowed(call, value, Fraction(1, 5), reading=True) is None


def test_layers_without_such_a_form_have_none() -> None:
    """A softmax over channels, a norm with parameters over them, what is no tensor or has no channels."""
    value = torch.ones(2, 6)
    assert narrowed(nn.Softmax(1), value, Fraction(1, 2)) is None
    assert narrowed(nn.LayerNorm(6), value, Fraction(1, 2)) is None
    assert narrowed(nn.PReLU(), value, Fraction(1, 2)) is None
    environment: dict[fx.Node, Any] = {}
    for output in (torch.ones(6), (value, value), 3):
        assert narrow(step_of(torch.relu), Geometry(), environment, Fraction(1, 2), output, 2, False) is None


@pytest.mark.parametrize(
    ("shape", "axis", "half"),
    [
        ((6,), 2, (6,)),
        ((6, 1), 2, (6, 1)),
        ((6, 4), 2, (6, 2)),
        ((6, 8, 4), 2, (6, 8, 2)),
        ((6, 8, 4), 1, (6, 4, 4)),
        ((6, 8, 4, 3), 2, (6, 4, 4, 3)),
    ],
)
def test_half_a_layer_reads_and_makes_the_first_half_of_the_channels(
    shape: tuple[int, ...], axis: int, half: tuple[int, ...]
) -> None:
    """What has none, or one for all, it has whole."""
    tensor = torch.rand(shape)
    first = tensor[tuple(slice(size) for size in half)]
    for slices, makes in ((True, False), (False, True), (False, False), (True, True)):
        narrowed = Narrowed(step=step_of(torch.relu), fraction=Fraction(1, 2), slices=slices, makes=makes, axis=axis)
        assert torch.equal(narrowed.value(Value(tensor=tensor, layer=0)).tensor, first if slices else tensor)
        assert torch.equal(narrowed.gradient(tensor), first if makes else tensor)


def test_tensors_stand_in_whatever_a_step_yields() -> None:
    """In containers and data classes, but not in the class of one."""

    @dataclass
    class Output:
        first: Tensor
        second: dict[str, Tensor]

    values = [torch.full((1,), float(number)) for number in range(4)]
    result = (values[0], [Output(values[1], {"x": values[2]}), Output], slice(values[3], None), "words", 3)
    assert [float(each) for each in tensors(result)] == [0.0, 1.0, 2.0, 3.0]
    assert not list(tensors(Output))
