"""Mixtures of experts of a model card: what their profile has, and where megatron places the experts."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from counted_volume import communication_volume
from test_closed_forms import star
from test_megatron import CARD, STACK, settings

from partitioners import plan_of as make_plan
from simulator.engine import simulate
from simulator.errors import InputError
from simulator.expert_routing import Routing
from simulator.language_models.accelerators import accelerator
from simulator.language_models.block import BlockOperator, ProductShape, block_operators, head_operator
from simulator.language_models.card_files import read_card
from simulator.language_models.device_model import DeviceModel, operator_seconds
from simulator.language_models.kernels import EXPERT_CALL_S
from simulator.language_models.model_card import ModelCard
from simulator.language_models.modelled_profile import MOST_MICROBATCH, modelled_profile
from simulator.language_models.training_stack import TrainingStack
from simulator.lowering.costs.shard_costs import shard_seconds
from simulator.lowering.sharded_model import ShardedModel
from simulator.lowering.step import lower
from simulator.parameter_states import ParameterStates
from simulator.plan import Plan, StepSettings
from simulator.run import run, step_seconds

MIXTURE = replace(CARD, experts=8, experts_per_token=2, layers=2)
PROFILE = modelled_profile(MIXTURE, STACK, batch_size=2)
MOVED = ("router", "dispatch", "combine")
ROUTED = ("dispatch", "gate", "up", "activation", "down", "combine")


@pytest.mark.parametrize("card", [MIXTURE, CARD, read_card("mixtral-8x7b"), read_card("gpt2")])
def test_a_profile_adds_up_to_its_card(card: ModelCard) -> None:
    """Parameters, flops of a token, seconds and saved bytes: those of the card and of the operators of its blocks."""
    profile = modelled_profile(card, STACK)
    tokens, layers = card.sequence, profile.layers
    assert profile.parameter_bytes == 2 * card.parameters
    assert profile.flops_per_sample / tokens == pytest.approx(card.flops_per_token, rel=1e-9)
    operators = list(block_operators(card, tokens, fused_activation=STACK.fused_activation))
    block = [layer for layer in layers if layer.name.startswith("blocks.1.") and layer.name[9:] not in MOVED]
    assert sum(layer.saved_bytes for layer in block) == pytest.approx(sum(each.saved_bytes for each in operators))
    gpu = accelerator(STACK.accelerator)
    plain = [operator_seconds(replace(each, parameters=0), gpu, STACK.device) for each in operators]
    for name, index in (("forward_s", 0), ("backward_s", 1)):
        assert sum(getattr(layer, name) for layer in block) == pytest.approx(sum(s[index] for s in plain), rel=1e-4)
    assert layers[-4].saved_bytes == pytest.approx(operators[0].saved_bytes + head_operator(card, tokens).saved_bytes)


FILLED = replace(STACK, device=replace(STACK.device, precision="mxfp8"), keeps_8_bits=True)
"""Products of 8 bits whose operands are kept so, in blocks of rows."""
FUSED = replace(FILLED, device=replace(FILLED.device, fused_experts=True))


@pytest.mark.parametrize(
    ("stack", "times"),
    [(STACK, 2), (replace(STACK, once_per_host=True), 1), (FILLED, 3), (replace(FILLED, once_per_host=True), 2),
     (FUSED, 2), (replace(FUSED, once_per_host=True), 1)],
)  # fmt: skip
def test_rows_of_experts_are_sorted_and_filled_up(stack: TrainingStack, times: int) -> None:
    """On both sides of an exchange they change their order, but where they cross once to a host, and blocks of 8-bit
    products are filled up: 2 bytes per channel, read and written, both ways, for every expert that a token visits."""
    profile = modelled_profile(MIXTURE, stack, batch_size=3)
    rows, rate = 3 * MIXTURE.sequence * 2, stack.device.memory_bytes_per_s(accelerator(stack.accelerator))
    moved_s = times * 8 * rows * MIXTURE.hidden * stack.device.traffic_factor / rate
    for name in ("dispatch", "combine"):
        layer = profile.layers[profile.index["blocks.0." + name]]
        assert layer.forward_s + layer.backward_s == pytest.approx(moved_s, rel=1e-5)


def of_block(plan: Plan, name: str) -> tuple[tuple[int, ...], int, int]:
    sharding = plan.placements["blocks.1." + name]
    return sharding.degrees, sharding.reduce, sharding.copy


def test_experts_are_shared_out_among_replicas() -> None:
    """Four replicas of two tensor ranks: in each half of the replicas every device has four experts."""
    plan = make_plan("megatron", PROFILE, star(8), settings(8), tensor=2, expert=2)
    assert of_block(plan, "router") == of_block(plan, "norm_ffn") == ((4, 1, 2, 1), 1, 1)
    assert of_block(plan, "dispatch") == of_block(plan, "combine") == ((2, 1, 2, 2), 1, 1)
    assert of_block(plan, "gate") == of_block(plan, "activation") == ((2, 2, 1, 2), 1, 1)
    assert of_block(plan, "down") == ((2, 1, 1, 2), 2, 1)
    assert of_block(plan, "add_ffn") == ((4, 1, 2, 1), 1, 1)
    assert plan.placements["blocks.1.gate"].array[0, 1, 0, 1, 0, 0] == 3  # experts 4 to 7 are the second replica's
    copied = make_plan("megatron", PROFILE, star(8), settings(8), tensor=2, expert=2, sequence_parallel=False)
    assert of_block(copied, "dispatch") == of_block(copied, "combine") == ((2, 1, 1, 2), 1, 2)
    alone = make_plan("megatron", PROFILE, star(8), settings(8), tensor=2)
    assert of_block(alone, "gate") == ((4, 2, 1, 1), 1, 1)


@pytest.mark.parametrize(
    ("options", "degrees"),
    [({"expert": 8}, (1, 1, 1, 8)), ({"expert": 4}, (2, 1, 1, 4)), ({"expert": 4, "context": 2}, (2, 1, 1, 4)),
     ({"expert": 2, "context": 2}, (2, 1, 2, 2))],
)  # fmt: skip
def test_tensor_ranks_have_whole_experts_of_their_own(
    options: dict[str, int], degrees: tuple[int, int, int, int]
) -> None:
    """Devices in a row share the experts, whatever their tensor rank; nothing is gathered in a tensor group."""
    plan = make_plan("megatron", PROFILE, star(8), settings(8), tensor=2, expert_tensor=1, **options)
    assert {of_block(plan, name) for name in ROUTED} == {(degrees, 1, 1)}
    members = plan.placements["blocks.1.gate"].array
    group = members[0, 0, 0].ravel()  # (sample, channel, part, expert, reduce, copy)
    assert group.tolist() == list(range(options["expert"]))
    assert of_block(plan, "q")[0][1] == 2
    model = ShardedModel(PROFILE, plan)
    gate = [piece for piece in model.replicas if PROFILE.layers[piece.layer].name == "blocks.0.gate"]
    assert {piece.devices for piece in gate} == {
        tuple(range(n, 8, options["expert"])) for n in range(options["expert"])
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [({"expert_tensor": 3}, "it is 1, or the tensor degree, 2"), ({"sequence_parallel": False}, "tokens of their own"),
     ({"expert": 16}, "replicas x parts of a sequence, 4 x 2")],
)  # fmt: skip
def test_whole_experts_that_cannot_be_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_plan(
            "megatron", PROFILE, star(8), settings(8), **{"tensor": 2, "expert": 2, "expert_tensor": 1, **options}
        )


def test_tokens_go_to_the_same_tensor_rank_and_are_gathered_there() -> None:
    plan = make_plan("megatron", PROFILE, star(8), settings(8), tensor=2, expert=4)
    model = ShardedModel(PROFILE, plan)

    def moves(layer: str, backward: bool = False) -> set[tuple[str, tuple[int, ...]]]:
        exchanges = model.exchanges(PROFILE.index["blocks.0." + layer])
        direction = exchanges.backward if backward else exchanges.forward
        return {(each.pattern, tuple(exchanges.devices[list(each.devices)].tolist())) for each in direction.transfers}

    ranks = {("all-to-all", (0, 2, 4, 6)), ("all-to-all", (1, 3, 5, 7))}
    assert moves("norm_ffn") == moves("norm_ffn", backward=True) == ranks
    assert moves("combine") == moves("combine", backward=True) == ranks
    pairs = [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert moves("dispatch") == moves("down", backward=True) == {("all-gather", pair) for pair in pairs}
    assert moves("down") == moves("dispatch", backward=True) == {("reduce-scatter", pair) for pair in pairs}
    gate = [piece for piece in model.replicas if PROFILE.layers[piece.layer].name == "blocks.0.gate"]
    assert sorted(piece.devices for piece in gate) == [(device,) for device in range(8)]


@pytest.mark.parametrize(
    ("data", "context", "tensor", "expert", "sequence_parallel", "expert_tensor"),
    [
        (4, 1, 1, 2, True, 0), (2, 1, 2, 2, True, 0), (4, 1, 2, 4, True, 0), (2, 2, 1, 2, True, 0),
        (2, 2, 2, 4, True, 0), (1, 4, 2, 2, True, 0), (2, 1, 2, 2, False, 0), (2, 2, 2, 4, False, 0),
        (2, 1, 2, 4, True, 1), (4, 1, 2, 2, True, 1), (1, 2, 4, 8, True, 1), (2, 2, 2, 2, True, 1),
    ],
)  # fmt: skip
def test_bytes_of_tokens_are_those_of_the_closed_form(
    data: int, context: int, tensor: int, expert: int, sequence_parallel: bool, expert_tensor: int
) -> None:
    """(n - 1) / n of k copies of every token there, each with its weight, and as many back; in the tensor group t - 1
    of each gathered and scattered, or twice that summed by all where they are copies, or nothing where experts are
    whole."""
    devices = data * context * tensor
    plan = make_plan(
        "megatron", PROFILE, star(devices), settings(8),
        tensor=tensor, context=context, expert=expert, sequence_parallel=sequence_parallel, expert_tensor=expert_tensor,
    )  # fmt: skip
    volume = communication_volume(ShardedModel(PROFILE, plan), star(devices))
    routed = 8 * MIXTURE.sequence * MIXTURE.experts_per_token * MIXTURE.hidden * 2
    weights = 8 * MIXTURE.sequence * MIXTURE.experts_per_token * 2
    copies = 1 if sequence_parallel else tensor
    travelling = copies * (expert - 1) / expert
    inside = 0 if expert_tensor else 2 * (tensor - 1) * routed
    dense = modelled_profile(replace(MIXTURE, experts=0, experts_per_token=0), STACK, batch_size=2)
    other = make_plan(
        "megatron", dense, star(devices), settings(8),
        tensor=tensor, context=context, sequence_parallel=sequence_parallel,
    )  # fmt: skip
    without = communication_volume(ShardedModel(dense, other), star(devices))
    of_ffn = 2 * (tensor - 1) * 8 * MIXTURE.sequence * MIXTURE.hidden * 2
    expected = 2 * travelling * routed + travelling * weights + inside - of_ffn
    assert volume.forward - without.forward == pytest.approx(2 * expected)
    assert volume.backward - without.backward == pytest.approx(2 * expected)


@pytest.mark.parametrize("expert_tensor", [0, 1])
def test_tokens_stay_at_experts_where_shared_ones_gather_theirs_again(expert_tensor: int) -> None:
    """Of what norms hand on, column-parallel layers receive t - 1 parts again, and experts nothing."""
    card = replace(MIXTURE, shared_ffn=64)
    profile, volumes = modelled_profile(card, STACK, batch_size=2), []
    for again in (True, False):
        options = {"tensor": 2, "expert": 2, "expert_tensor": expert_tensor, "gather_again": again}
        plan = make_plan("megatron", profile, star(4), settings(8), **options)
        volumes.append(communication_volume(ShardedModel(profile, plan), star(4)))
    norms = 2 * card.layers + 1
    assert volumes[0].forward - volumes[1].forward == pytest.approx(norms * 8 * card.sequence * card.hidden * 2)
    assert volumes[0].backward == volumes[1].backward


def test_experts_have_the_tokens_of_all_that_share_them() -> None:
    """Four devices with two of eight experts each: their products are those of four times the tokens, for each expert,
    not those of all experts with the tokens of one device."""
    plan = make_plan("megatron", PROFILE, star(4), settings(8), expert=4)
    model, position = ShardedModel(PROFILE, plan), PROFILE.index["blocks.0.gate"]
    each = [seconds / 4 for seconds in shard_seconds(PROFILE, PROFILE.layers[position], 8)]
    assert model.pass_seconds(position) == pytest.approx(np.repeat(each, 4).reshape(2, 4))
    assert sum(each) < sum(shard_seconds(PROFILE, PROFILE.layers[position], 2))


@pytest.mark.parametrize("sequences", [4, 32, MOST_MICROBATCH * MIXTURE.experts])
def test_experts_have_points_for_as_many_sequences_as_share_them(sequences: int) -> None:
    """A group of one device for each expert has the micro-batches of all: nothing is extrapolated from a device's."""
    of = {layer.name[9:]: layer for layer in PROFILE.layers if layer.name.startswith("blocks.0.")}
    *_, activation, down, _ = block_operators(MIXTURE, sequences * MIXTURE.sequence, fused_activation=True)
    for name, operator in (("activation", activation), ("down", down)):
        alone = operator_seconds(operator, accelerator(STACK.accelerator), STACK.device)
        assert shard_seconds(PROFILE, of[name], sequences) == pytest.approx(alone, rel=1e-5)
    assert max(point.batch_size for point in of["down"].scaling) == MOST_MICROBATCH * MIXTURE.experts
    assert max(point.batch_size for point in of["output"].scaling) == MOST_MICROBATCH


def test_dropped_tokens_move_nowhere() -> None:
    """Half of the pairs ask for the first of 8 experts, which takes 1.5 times its share: 11/16 as much moves."""
    routing = Routing(experts=8, top_k=2, loads=(0.5, *[0.5 / 7] * 7), capacity=1.5)
    assert sum(routing.loads_of(8)) / 8 == pytest.approx(11 / 16)
    layers = tuple(replace(layer, routing=layer.routing and routing) for layer in PROFILE.layers)
    moved = []
    for profile in (PROFILE, replace(PROFILE, layers=layers)):
        plan = make_plan("megatron", profile, star(16), settings(8), tensor=2, expert=8)
        model = ShardedModel(profile, plan)
        moved.append(
            {
                name: sum(
                    transfer.elements * (7 / 8 if transfer.pattern == "all-to-all" else 1)  # the rest stays at home
                    for transfer in model.exchanges(profile.index["blocks.1." + name]).forward.transfers
                )
                for name in ("norm_ffn", "dispatch", "down", "combine")
            }
        )
    assert moved[1] == pytest.approx({name: elements * 11 / 16 for name, elements in moved[0].items()})


@pytest.mark.parametrize(("expert", "context"), [(1, 1), (2, 1), (4, 1), (4, 2), (2, 2)])
def test_gradients_of_experts_are_summed_over_those_that_hold_them(expert: int, context: int) -> None:
    plan = make_plan("megatron", PROFILE, star(16), settings(16), tensor=2, context=context, pipeline=2, expert=expert)
    for piece in ShardedModel(PROFILE, plan).replicas:
        layer = PROFILE.layers[piece.layer]
        if layer.routing:
            assert len(piece.devices) == 4 // expert
            assert piece.parameter_bytes == layer.parameter_bytes // 2 // expert
        elif "router" in layer.name or "norm" in layer.name:
            assert len(piece.devices) == 8


@pytest.mark.parametrize(("tensor", "pipeline", "context"), [*product((1, 2), repeat=3)])
def test_equal_replicas_and_ranks_are_simulated_once(tensor: int, pipeline: int, context: int) -> None:
    cluster = star(tensor * pipeline * context * 4)
    plan = make_plan(
        "megatron", PROFILE, cluster, settings(16, 2), tensor=tensor, pipeline=pipeline, context=context, expert=2
    )
    whole = simulate(lower(ShardedModel(PROFILE, plan), cluster), cluster).step_s
    assert step_seconds(PROFILE, cluster, plan) == pytest.approx(whole, rel=1e-9)


@pytest.mark.parametrize(("stage", "recomputation"), [*product((0, 1, 2, 3), ("none", "selective", "full"))])
def test_every_zero_stage_and_recomputation_runs(stage: int, recomputation: str) -> None:
    cluster, states = star(16), ParameterStates(stage=stage)
    step = StepSettings(batch_size=16, microbatches=4, states=states, optimizer_state=6.0)
    degrees = {"tensor": 2, "pipeline": 2, "context": 2, "expert": 4}
    plan = make_plan("megatron", PROFILE, cluster, step, recomputation=recomputation, **degrees)
    report = run(PROFILE, cluster, plan).report
    plain = run(PROFILE, cluster, replace(plan, states=ParameterStates(), recomputed=())).report
    assert report.step_s >= plain.step_s * (1 - 1e-9)
    assert (report.peak_memory_bytes < plain.peak_memory_bytes) == (stage > 0 or recomputation != "none")


def test_activations_of_experts_alone_are_made_again() -> None:
    """What `down` reads of each expert, in 2 bytes a channel: of all tokens twice, once for each that they visit."""
    step = StepSettings(batch_size=2)
    kept, again = (make_plan("megatron", PROFILE, star(1), step, recomputation=kind) for kind in ("none", "moe_act"))
    assert again.recomputed == tuple((f"blocks.{number}.activation",) for number in range(MIXTURE.layers))
    peaks = [run(PROFILE, star(1), plan).report.peak_memory_bytes for plan in (kept, again)]
    dropped = 2 * 2 * MIXTURE.sequence * 2 * MIXTURE.ffn  # the last block's is there again when its peak is
    assert peaks[0] - peaks[1] == pytest.approx((MIXTURE.layers - 1) * dropped, rel=1e-6)


def test_wrong_degrees_of_experts_are_named() -> None:
    for profile, options, complaint in (
        (PROFILE, {"expert": 3}, "expert is 3: it divides replicas x parts of a sequence, 8 x 1"),
        (PROFILE, {"expert": 0}, "expert is 0: it is at least 1"),
        (modelled_profile(replace(MIXTURE, experts=6), STACK), {"expert": 4}, "expert is 4: it divides the 6 experts"),
        (modelled_profile(CARD, STACK), {"expert": 2}, "expert is 2: 'small' has no experts"),
        (PROFILE, {"expert": 6, "context": 4}, "expert is 6: it divides the 4 parts of a sequence or is a multiple"),
    ):
        workers = 12 if "context" in options else 8
        with pytest.raises(InputError, match=complaint):
            make_plan("megatron", profile, star(workers), settings(24), **options)


def test_biases_of_experts_are_scaled_for_each_token_that_they_get() -> None:
    """A product, a sum, joined rows and a cast, in fp32; backward two casts, for bias and scales a product and a sum,
    joined rows: bytes of a row's channel, where bf16 has 2."""
    forward, backward = (4, 2 + 4 + 4, 4 + 4, 4 + 2), (2 + 4, 4 + 2, 4 + 4 + 4, 4 + 4 + 4, 2 + 2)
    tokens, biased = 100.0, replace(MIXTURE, biases=True)
    down = {
        card: next(each for each in block_operators(card, tokens) if each.name == "down") for card in (MIXTURE, biased)
    }
    channels = tokens * MIXTURE.experts_per_token * MIXTURE.hidden
    assert down[MIXTURE].traffic_bytes == 0
    assert down[biased].traffic_bytes == (sum(forward) + sum(backward)) * channels
    fused = next(each for each in block_operators(biased, tokens, fused_experts=True) if each.name == "down")
    assert fused.traffic_bytes == 2 * channels  # the gradient's sum over rows


def test_a_host_calls_fused_experts_at_once() -> None:
    """Of one token for each of many experts the calls decide, fused the bytes of their weights."""
    shape, gpu = ProductShape(rows=1, inputs=64, outputs=64, groups=128), accelerator("h100")
    apart, fused = (operator_seconds(BlockOperator(name="up", kind="linear", shape=shape), gpu, device)
                    for device in (DeviceModel(), DeviceModel(fused_experts=True)))  # fmt: skip
    assert apart == (128 * EXPERT_CALL_S, 2 * 128 * EXPERT_CALL_S) and max(fused) < apart[0] / 10
