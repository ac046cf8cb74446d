"""What a captured layer's geometry says that a part of its output needs is what the gradients of that part reach."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import laws
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from torch import Tensor, fx, nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from simulator.workload import Geometry  # noqa: E402
from traces.capture.fx_steps import TracedStep  # noqa: E402
from traces.capture.layer_geometry import describe, is_transposed_linear, keeps_axes  # noqa: E402
from traces.zoo.blocks import Add, Attention  # noqa: E402

SIDE, CHANNELS = 7, 4
SMALL = st.integers(1, 3)


def step_of(call: Callable[..., Any], name: str = "layer", functions: tuple[str, ...] = ()) -> TracedStep:
    return TracedStep(node=fx.Graph().placeholder("x"), name=name, call=call, dies=(), functions=functions)


def described(call: Callable[..., Any], *args: Any, name: str = "layer", **kwargs: Any) -> tuple[str, Geometry]:
    return describe(step_of(call, name), args, kwargs, call(*args, **kwargs))


def reached(call: Callable[..., Any], shape: tuple[int, ...], at: tuple[int, ...], tries: int) -> set[tuple[int, ...]]:
    """Where in its input what stands at a place of the output takes something from, of several random inputs."""
    places: set[tuple[int, ...]] = set()
    for number in range(tries):
        generator = torch.Generator().manual_seed(number)
        value = torch.rand(shape, generator=generator, dtype=torch.float64).requires_grad_()
        (gradient,) = torch.autograd.grad(call(value)[(0, *at)], value)
        places |= {tuple(cell) for cell in gradient[0].nonzero().tolist()}
    return places


def said(geometry: Geometry, shape: tuple[int, int, int], channels: int, at: tuple[int, int, int]) -> set[Any]:
    """The same as a geometry says it."""
    planes = []
    for axis in (0, 1):
        every = set(range(shape[1 + axis]))
        if geometry.kernel is not None:
            first = at[1 + axis] * geometry.stride[axis] - geometry.padding[axis]
            every &= {first + geometry.dilation[axis] * k for k in range(geometry.kernel[axis])}
        planes.append(every)
    size = shape[0] // geometry.groups
    group = at[0] * geometry.groups // channels
    own = range(group * size, (group + 1) * size) if geometry.mixes_channels else [at[0]]
    return {(channel, row, column) for channel in own for row in planes[0] for column in planes[1]}


@st.composite
def windows(draw: st.DrawFn) -> tuple[Callable[..., Any], str, int]:
    """A convolution or pooling, as a module or a function, its kind, and how many inputs show all that it reads."""
    kernel, stride, dilation = (draw(st.tuples(SMALL, SMALL)) for _ in range(3))
    padding = tuple(draw(st.integers(0, side // 2)) for side in kernel)
    kind = draw(st.sampled_from(("conv2d", "same", "max", "max side by side", "average", "adaptive")))
    if kind in ("conv2d", "same"):
        groups = draw(st.sampled_from((1, 2, 4)))
        edge: Any = padding if kind == "conv2d" else "same"
        if kind == "same":
            kernel, stride = draw(st.tuples(*[st.sampled_from((1, 3))] * 2)), (1, 1)
        return nn.Conv2d(CHANNELS, 4, kernel, stride, edge, dilation, groups, dtype=torch.float64), "conv2d", 1
    if kind == "adaptive":
        return nn.AdaptiveAvgPool2d(draw(st.tuples(st.sampled_from((1, 3, 7)), st.sampled_from((1, 7))))), "adaptive", 1
    if kind == "average":
        made = (
            nn.AvgPool2d(kernel, stride, padding)
            if draw(st.booleans())
            else partial(functional.avg_pool2d, kernel_size=kernel, stride=stride, padding=padding)
        )
        return made, kind, 1
    if kind == "max":
        return nn.MaxPool2d(kernel, stride, padding, dilation), kind, 40
    return nn.MaxPool2d(kernel), kind, 40


@settings(max_examples=laws.examples(60, 300), deadline=None)
@given(windows(), st.data())
def test_windows_are_what_gradients_reach(window: tuple[Callable[..., Any], str, int], data: st.DataObject) -> None:
    call, kind, tries = window
    shape = (CHANNELS, SIDE, SIDE)
    value = torch.rand(1, *shape, dtype=torch.float64)
    if isinstance(call, partial):
        _, geometry = describe(step_of(functional.avg_pool2d, "avg_pool2d"), (value,), call.keywords, call(value))
    else:
        _, geometry = described(call, value)
    output = call(value)
    at = tuple(data.draw(st.integers(0, size - 1)) for size in output.shape[1:])
    needs, shown = said(geometry, shape, output.shape[1], at), reached(call, (1, *shape), at, tries)
    assert shown <= needs
    if geometry.kernel is not None or (kind == "adaptive" and output.shape[2:] == (1, 1)):
        assert shown == needs


@pytest.mark.parametrize("call", [functional.max_pool2d, functional.avg_pool2d])
def test_functions_take_their_settings_by_place_or_name(call: Callable[..., Any]) -> None:
    value, name = torch.rand(1, CHANNELS, 9, 8), call.__name__
    assert described(call, value, 3, name=name) == (name, Geometry(kernel=(3, 3), stride=(3, 3)))
    assert described(call, value, (3, 2), name=name)[1] == Geometry(kernel=(3, 2), stride=(3, 2))
    apart = Geometry(kernel=(3, 2), stride=(2, 1), padding=(1, 0))
    assert described(call, value, (3, 2), (2, 1), (1, 0), name=name)[1] == apart
    assert described(call, value, kernel_size=(3, 2), stride=(2, 1), padding=(1, 0), name=f"a.{name}#2")[1] == apart


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ((8, 6), (4, 3), Geometry(kernel=(2, 2), stride=(2, 2))),
        ((8, 6), (2, 6), Geometry(kernel=(4, 1), stride=(4, 1))),
        ((8, 6), (3, 3), Geometry(kernel=None)),
        ((8, 6), (4, 4), Geometry(kernel=None)),
        ((8, 6), (1, 1), Geometry(kernel=None)),
        ((8, 6), (1, 2), Geometry(kernel=(8, 3), stride=(8, 3))),
    ],
)
def test_adaptive_poolings_are_windows_where_sides_divide(
    before: tuple[int, int], after: tuple[int, int], expected: Geometry
) -> None:
    value = torch.rand(1, 2, *before)
    assert described(nn.AdaptiveMaxPool2d(after), value)[1] == expected
    assert described(functional.adaptive_avg_pool2d, value, after, name="adaptive_avg_pool2d")[1] == expected


def test_a_sequence_is_a_plane_one_wide() -> None:
    sequence, tokens = torch.rand(1, CHANNELS, 9), torch.rand(1, 9, CHANNELS)
    convolution = nn.Conv1d(CHANNELS, 6, 3, 2, 1, 2, 2)
    expected = Geometry(kernel=(3, 1), stride=(2, 1), padding=(1, 0), dilation=(2, 1), groups=2, mixes_channels=True)
    assert described(convolution, sequence)[1] == expected
    same = Geometry(kernel=(5, 1), padding=(4, 0), dilation=(2, 1), mixes_channels=True)
    assert described(nn.Conv1d(CHANNELS, 6, 5, padding="same", dilation=2), sequence)[1] == same
    assert described(nn.Conv1d(CHANNELS, 6, 3, padding="valid"), sequence)[1].padding == (0, 0)
    for mixing in (nn.Linear(CHANNELS, 5), nn.LayerNorm(CHANNELS), nn.RMSNorm(CHANNELS)):
        assert described(mixing, tokens)[1] == Geometry(mixes_channels=True)
        at_one = reached(mixing.double(), tuple(tokens.shape), (2, 1), 1)
        assert at_one == {(2, channel) for channel in range(CHANNELS)}


class Conv1D(nn.Module):
    """As transformers' own: a linear layer whose weight is (inputs, outputs)."""

    def __init__(self, outputs: int, inputs: int) -> None:
        super().__init__()
        self.nf, self.nx = outputs, inputs
        self.weight = nn.Parameter(torch.rand(inputs, outputs))

    def forward(self, value: Tensor) -> Tensor:
        return value @ self.weight


class Unknown(nn.Module):
    def forward(self, *values: Tensor) -> Tensor:
        return values[0] * 1


def test_modules_that_libraries_write_themselves_are_known_by_name() -> None:
    tokens, everything = torch.rand(2, 5, CHANNELS), Geometry(kernel=None, mixes_channels=True)
    assert described(Conv1D(6, CHANNELS), tokens)[1] == Geometry(mixes_channels=True)
    assert is_transposed_linear(Conv1D(1, 1)) and not is_transposed_linear(nn.Conv1d(1, 1, 1))
    assert described(Unknown(), tokens)[1] == everything
    renamed = type("NewRMSNorm", (Unknown,), {})
    assert described(renamed(), tokens)[1] == Geometry(mixes_channels=True)
    assert described(renamed(), torch.rand(2, CHANNELS))[1] == everything
    assert described(renamed(), tokens, tokens)[1] == everything
    active = type("NewGELUActivation", (Unknown,), {})
    assert described(active(), tokens) == ("newgeluactivation", Geometry())
    assert described(active(), torch.rand(2, CHANNELS))[1] == everything


class Doubled(nn.Module):
    def forward(self, value: Tensor) -> Tensor:
        return torch.cat([value, value], -1)


def test_a_name_is_not_enough_to_be_known() -> None:
    tokens, everything = torch.rand(2, 5, CHANNELS), Geometry(kernel=None, mixes_channels=True)
    for name in ("NewRMSNorm", "NewGELUActivation"):
        assert described(type(name, (Doubled,), {})(), tokens)[1] == everything
    for name, fields in (("Conv1D", ""), ("Conv1D", "nf"), ("Conv1D", "nx"), ("Other", "nf nx")):
        assert not is_transposed_linear(type(name, (nn.Module,), dict.fromkeys(fields.split(), 1))())


def test_windows_of_pools_and_of_even_kernels() -> None:
    plane = torch.rand(2, CHANNELS, 6, 6)
    own = Geometry(kernel=(3, 3), stride=(2, 2), padding=(1, 1))
    assert described(nn.MaxPool2d(3, 2, 1, 2), plane)[1] == replace(own, dilation=(2, 2))
    assert described(nn.AvgPool2d(3, 2, 1), plane)[1] == own
    for stride in (None, []):
        beside = described(functional.avg_pool2d, plane, 3, stride, name="avg_pool2d")
        assert beside == ("avg_pool2d", Geometry(kernel=(3, 3), stride=(3, 3)))
    even = describe(step_of(nn.Conv2d(4, 4, 4, padding="same", dilation=3), "conv"), (plane,), {}, plane)[1]
    assert (even.kernel, even.padding, even.dilation) == ((4, 4), (4, 4), (3, 3))


def test_axes_that_are_joined_flattened_or_averaged() -> None:
    plane, tokens, vector = torch.rand(1, CHANNELS, 3, 3), torch.rand(2, 5, CHANNELS), torch.rand(2, CHANNELS)
    everything = Geometry(kernel=None, mixes_channels=True)
    assert described(torch.cat, [vector, vector], 1, name="cat") == ("concat", Geometry())
    assert described(torch.cat, [vector[0], vector[0]], 0, name="cat") == ("cat", everything)
    for value in (plane, vector):
        assert described(torch.flatten, value, 1, name="flatten") == ("flatten", Geometry())
    assert described(torch.flatten, tokens, 1, name="flatten") == ("flatten", everything)
    assert described(Tensor.view, plane, 1, 9 * CHANNELS, 1, name="view") == ("view", everything)
    assert described(torch.mean, plane, 3, name="mean") == ("mean", Geometry(kernel=None))
    assert described(torch.mean, tokens, 2, True, name="mean") == ("mean", everything)
    name, heads = "scaled_dot_product_attention", torch.rand(2, 4, 5, 8)
    attention = functional.scaled_dot_product_attention
    assert described(attention, heads, heads, heads, name=name) == (name, Geometry(kernel=None))


def test_kinds_by_what_they_do_to_channels() -> None:
    plane, vector = torch.rand(2, CHANNELS, 3, 3), torch.rand(2, CHANNELS)
    everything = Geometry(kernel=None, mixes_channels=True)
    assert described(torch.cat, [plane, plane], 1, name="cat") == ("concat", Geometry())
    assert described(torch.cat, [plane, plane], 2, name="cat") == ("cat", everything)
    assert described(torch.flatten, plane, 1, name="flatten") == ("flatten", Geometry())
    assert described(torch.flatten, plane, 2, name="flatten") == ("flatten", everything)
    assert described(Tensor.view, plane, 4, -1, name="view") == ("view", everything)
    for name in ("relu", "add", "sigmoid"):
        args = (vector, vector) if name == "add" else (vector,)
        assert described(getattr(torch, name), *args, name=f"block.{name}#3") == (name, Geometry())
    assert described(torch.mean, plane, (2, 3), name="mean") == ("mean", Geometry(kernel=None))
    assert described(torch.mean, plane, 1, name="mean") == ("mean", everything)
    assert described(torch.softmax, plane, 1, name="softmax") == ("softmax", everything)
    assert described(functional.linear, vector, torch.rand(5, CHANNELS), name="linear")[1] == Geometry(
        mixes_channels=True
    )
    both = describe(step_of(torch.relu, "joined", ("relu", "mul")), (vector,), {}, vector)
    assert both == ("joined", Geometry())
    assert describe(step_of(torch.relu, "joined", ("relu", "softmax")), (vector,), {}, vector) == ("joined", everything)
    assert described(nn.GroupNorm(2, CHANNELS), plane)[1] == Geometry(kernel=None, groups=2, mixes_channels=True)
    transposed = nn.ConvTranspose2d(CHANNELS, CHANNELS, 2, groups=2)
    assert described(transposed, plane)[1] == Geometry(kernel=None, groups=2, mixes_channels=True)
    assert described(nn.BatchNorm2d(CHANNELS), plane)[1] == described(Add(), plane, plane)[1] == Geometry()
    attention = Attention(2, causal=True)
    assert described(attention, torch.rand(1, 3, 3 * CHANNELS))[1] == Geometry(
        kernel=None, groups=2, mixes_channels=True
    )
    kept = [step_of(call) for call in (nn.ReLU(), nn.Upsample(scale_factor=2), nn.BatchNorm2d(1), nn.Linear(1, 1))]
    assert [keeps_axes(step) for step in kept] == [True, True, True, False]
    assert keeps_axes(step_of(torch.cat, "block.cat#2")) and not keeps_axes(step_of(torch.transpose, "transpose"))
    assert keeps_axes(step_of(torch.relu, "x", ("relu", "add"))) and not keeps_axes(step_of(torch.relu, "x", ("view",)))
