"""FSDP2, tensor parallelism and recomputation through torch's own interfaces: gradients, bytes, memory, refusals."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed; make test installs it")

import parallel_programs
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.parallel_runtimes.fsdp import FsdpSettings, run_fsdp
from benchmarks.parallel_runtimes.network_blocks import block_names
from benchmarks.parallel_runtimes.recomputation import Kept, recompute
from benchmarks.parallel_runtimes.tensor_parallel import Split, check, run_tensor_parallel, transformer_splits
from simulator.errors import InputError, UnknownNameError
from traces.lab import namespaces
from traces.lab.launch import launch
from traces.lab.shaped_network import Lab
from traces.results.validation_cases import LabNetwork
from traces.runs.torch_runtimes.measured_steps import peak_bytes

pytestmark = pytest.mark.usefixtures("forked_python")

REASON = namespaces.available()
PERCEPTRON, SENTENCES, WIDE = (f"parallel_programs:{name}" for name in ("PERCEPTRON", "SENTENCES", "WIDE"))
BLOCKS = ("blocks.0", "blocks.1")


def splits(sequence: bool) -> dict[str, Split]:
    return transformer_splits(parallel_programs.SENTENCES.build(), sequence=sequence)


RUNS: dict[int, list[dict[str, Any]]] = {
    2: [
        {"model": PERCEPTRON, "settings": {}},
        {"model": PERCEPTRON, "settings": {"reshard_after_forward": False, "direct_reduction": True}},
        {"model": SENTENCES, "settings": {"microbatches": 3}},
        {"model": SENTENCES, "settings": {"microbatches": 2, "reduce_once": True, "recomputed": BLOCKS}},
        {"model": PERCEPTRON, "splits": {"0": "column", "2": "row"}},
        {"model": SENTENCES, "splits": splits(sequence=False), "recomputed": BLOCKS},
        {"model": SENTENCES, "splits": splits(sequence=True), "recomputed": BLOCKS},
    ],
    4: [
        {"model": SENTENCES, "settings": {"shard_group": 2, "direct_reduction": True}},
        {"model": SENTENCES, "splits": splits(sequence=True)},
    ],
}


@pytest.mark.parametrize("ranks", RUNS)
def test_gradients_are_those_of_one_device(ranks: int) -> None:
    arguments = {"batch_size": 13, "runs": RUNS[ranks]}
    for errors in launch("parallel_programs:gradient_errors", ranks, arguments=arguments):
        for run, error in zip(RUNS[ranks], errors, strict=True):
            assert error < 1e-12, run


PARAMETER_BYTES = 4 * (11 * 192**2 + 6 * 192)
INPUT_BYTES = 4 * 512 * 192
BLOCK_BYTES = 4 * 512 * 8 * 16


def zero(ranks: int, multiple: float, **settings: Any) -> tuple[dict[str, Any], float]:
    """A run of FSDP2, and the bytes that all its ranks send: a multiple of the parameters."""
    return {"model": WIDE, "shares": [4] * ranks, "settings": settings}, multiple * PARAMETER_BYTES


def split_run(model: str, splits: dict[str, Split], sent: float, recomputed: Any = ()) -> tuple[dict[str, Any], float]:
    return {"model": model, "batch_size": 512, "splits": splits, "recomputed": recomputed}, sent


VOLUMES = {
    2: [
        zero(2, 4, reshard_after_forward=True),  # gloo's reduce-scatter is an all-reduce
        zero(2, 6, reshard_after_forward=True, direct_reduction=True, microbatches=2),
        zero(2, 5, reshard_after_forward=True, direct_reduction=True, microbatches=2, reduce_once=True),
        # four sums per block of two; recomputation repeats the first, whose value the second half reads
        split_run(SENTENCES, splits(sequence=False), 2 * 4 * 2 * BLOCK_BYTES),
        split_run(SENTENCES, splits(sequence=False), 2 * 5 * 2 * BLOCK_BYTES, BLOCKS),
        # each sum becomes an all-gather and a reduce-scatter, by gloo an all-reduce; and one in and out of the region
        split_run(SENTENCES, splits(sequence=True), (2 * 4 * 3 + 2) * BLOCK_BYTES),
    ],
    4: [
        # 3 and 2 times the parameters: Rajbhandari et al., arXiv 1910.02054, section 7
        zero(4, 3 * 3, reshard_after_forward=True, direct_reduction=True),
        zero(4, 2 * 3, reshard_after_forward=False, direct_reduction=True),
        # parameters travel inside each group of two, gradients there and then across
        zero(4, 2 * 2 * 1 + 3 + 1, reshard_after_forward=True, direct_reduction=True, shard_group=2),
        split_run(WIDE, {"2": "column", "4": "row"}, 2 * 3 * (2 + 1) * INPUT_BYTES),  # of what "2" reads and "4" makes
    ],
}


@pytest.mark.skipif(REASON is not None, reason=f"no network lab: {REASON}")
@pytest.mark.parametrize("ranks", VOLUMES)
def test_ranks_send_what_the_formulas_say(ranks: int) -> None:
    runs, expected = zip(*VOLUMES[ranks], strict=True)
    with Lab(LabNetwork(ranks=ranks, mbit=1000).cluster([0, 1])) as lab:
        by_rank = launch("parallel_programs:volumes", ranks, lab=lab, arguments={"runs": runs})
    for run, sent, bytes_sent in zip(runs, zip(*by_rank, strict=True), expected, strict=True):
        assert sum(sent) == pytest.approx(bytes_sent, rel=0.01), run


def test_runs_over_loopback_count_no_bytes() -> None:
    run = run_fsdp(PERCEPTRON, 2, 5, FsdpSettings(recomputed=["0"]), steps=2)
    assert len(run.steps_s) == 2 and run.step_s > 0 and run.sent_bytes is None


def chain(blocks: int, width: int) -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(*(parallel_programs.Bottleneck(width) for _ in range(blocks)))


def train(model: nn.Module, data: torch.Tensor) -> None:
    model(data).sum().backward()


class Products(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts matrix products."""

    count = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += function is torch.ops.aten.addmm.default
        return function(*args, **(kwargs or {}))


def test_recomputation_changes_no_gradient_and_repeats_the_products_that_it_does_not_keep() -> None:
    gradients, products = [], []
    kinds: tuple[Kept, ...] = ("input", "input", "products")
    for names, keep in zip(((), ("0", "2"), ("0", "2")), kinds, strict=True):
        model = chain(3, 8)
        recompute(model, names, keep)
        with Products() as counted:  # type: ignore[no-untyped-call]
            model(torch.ones(4, 8, requires_grad=True)).square().sum().backward()
        gradients.append([p.grad for p in model.parameters() if p.grad is not None])
        products.append(counted.count)
    assert products == [6, 8, 6]  # a block's second product is not run again: nothing that follows needs its value
    assert all(torch.equal(a, b) for other in gradients[1:] for a, b in zip(gradients[0], other, strict=True))


def test_recomputation_keeps_inputs_only() -> None:
    blocks, width, count = 6, 32, 512
    held = []
    for names in ((), tuple(map(str, range(blocks)))):
        model, data = chain(blocks, width), torch.ones(count, width)
        recompute(model, names)
        held.append(peak_bytes(partial(train, model, data)))
    assert held[0] - held[1] == pytest.approx((blocks - 1) * count * 4 * width * 4, rel=0.03)


def test_blocks_are_what_repeats_else_what_holds_parameters() -> None:
    assert block_names(parallel_programs.SENTENCES.build()) == list(BLOCKS)
    assert block_names(parallel_programs.PERCEPTRON.build()) == ["0", "2", "4"]


@pytest.mark.parametrize(
    ("splits", "ranks", "message"),
    [
        ({"0": "diagonal"}, 2, "split of '0' is diagonal: one of column, row, norm, region"),
        ({"1": "row"}, 2, "split of '1' is row: only linear layers are, not ReLU"),
        ({"0": "column"}, 5, "channels of '0' is 24: a multiple of the 5 ranks"),
    ],
)
def test_splits_that_cannot_be_are_refused(splits: Any, ranks: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check(parallel_programs.PERCEPTRON.build(), splits, ranks)


def test_heads_ranks_and_groups_must_share_evenly() -> None:
    with pytest.raises(InputError, match=r"heads of 'blocks.0.attention' is 4: a multiple of the 8 ranks"):
        check(parallel_programs.SENTENCES.build(), splits(sequence=False), 8)
    with pytest.raises(UnknownNameError, match=r"unknown module 'blocks\.2'"):
        recompute(parallel_programs.SENTENCES.build(), ["blocks.2"])
    with pytest.raises(InputError, match="the network has no transformer blocks"):
        run_tensor_parallel(PERCEPTRON, 2, 8)
    with pytest.raises(InputError, match="shard_group is 2: it divides the 3 ranks"):
        run_fsdp(PERCEPTRON, 3, 12, FsdpSettings(shard_group=2))
    with pytest.raises(InputError, match="batch_size is 5: a sample per rank"):
        run_fsdp(PERCEPTRON, 2, 5, FsdpSettings(microbatches=3))
