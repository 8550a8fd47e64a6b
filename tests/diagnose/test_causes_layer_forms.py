"""Layers that were timed in another form: when that is a fault, and what it gives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from flatout.diagnose.causes.layer_forms import (
    broadcast_pairs,
    channels_first,
    coo_products,
    gathered_weights,
    spanning_kernels,
    stepwise_products,
    unfused_attention,
    unfused_functions,
    unmerged_layers,
)
from flatout.diagnose.ranking import judge
from flatout.diagnose.verdict import verdict
from flatout.measure.layer_forms import (
    parts,
    read_broadcast_pairs,
    read_coordinate_products,
    read_gathered_weights,
    read_model_layouts,
    read_spanning_kernels,
    read_stepwise_products,
    read_unfused_attention,
    read_unfused_functions,
    read_unmerged_layers,
)
from flatout.predict.context import Context
from flatout.remedies.proposal import NUMERICS
from tests.diagnose import views
from tests.diagnose.test_causes_unneeded_work import found, remedies, run
from tests.diagnose.views import healthy

SEEN = {"operator": "addmm", "layers": 8, "groups": 2, "input": [1280, 512], "lines": [["/code/net.py", 9, "f", 2]]}
TIMES = {"apart_ns": [2_000_000, 2_400_000], "joined_ns": [800_000, 1_200_000]}


class Process:
    def __init__(self, layers: Any) -> None:
        self.info = {"unmerged_layers": layers}


def unmerged(**changes: Any) -> Context:
    return Context.of(views.unmerged(healthy(), **changes))


def test_layers_are_named_with_what_one_would_save() -> None:
    context = unmerged()
    cause = found(unmerged_layers(context))
    assert cause.share == pytest.approx(0.3, abs=0.03)
    assert "2 times a step, 8 linear layers take one input of 1280x512" in cause.evidence[0].text
    assert (
        "both passes take 2.0 ms, and those of one layer in their place 25% of that (20% to 30%)"
        in cause.evidence[0].text
    )
    assert "net.py:9, forward" in cause.evidence[1].text
    causes, _ = judge(context)
    assert causes[0].id == "unmerged_layers"
    assert verdict(context, causes).startswith(
        "8 linear layers of the same input are computed one after the other: one"
    )
    offered = remedies(context)["merge_layers"]
    assert offered.semantic_class == NUMERICS and "nn.Linear(inputs, n * outputs)" in offered.how
    assert 1.2 < offered.gain.low < offered.gain.predicted < offered.gain.high


def test_convolutions_are_called_by_their_name() -> None:
    context = unmerged(operator="convolution")
    assert "8 convolutions" in found(unmerged_layers(context)).title
    assert "nn.Conv2d" in remedies(context)["merge_layers"].how


def test_a_kernel_that_spans_the_input_is_named() -> None:
    context = Context.of(views.spanning(healthy()))
    cause = found(spanning_kernels(context))
    assert cause.share == pytest.approx(0.24, abs=0.03)
    assert (
        "3 times a step, a kernel of 100x1x3x300 spans a dimension of an input of 64x1x50x300" in cause.evidence[0].text
    )
    assert (
        "both passes take 2.0 ms, and those of a convolution in the other one 60% of that (55% to 65%)"
        in cause.evidence[0].text
    )
    offered = remedies(context)["quick_conv"]
    assert offered.settings == {"quick_conv": True} and offered.semantic_class == NUMERICS
    assert spanning_kernels(Context.of(views.spanning(healthy(), part=0.99, low=0.9, high=1.0))) is None
    seen = {"calls": 3, "input": [64, 1, 50, 300], "kernel": [100, 1, 3, 300], "lines": []}
    process: Any = Process([])
    process.info["spanning_kernels"] = [{**seen, "plain_ns": [2_000_000], "joined_ns": [1_200_000]}]
    [read] = read_spanning_kernels(process)
    assert (read.uses, read.kernel, read.seconds, read.part) == (3, (100, 1, 3, 300), 0.002, 0.6)


def test_a_function_that_torch_has_is_named_with_both() -> None:
    norm = replace(views.GELU, name="layer_norm", code="F.layer_norm(x, (512,))", seconds=0.0001)
    context = Context.of(replace(healthy(), unfused_functions=(views.GELU, norm)))
    cause = found(unfused_functions(context))
    assert cause.share == pytest.approx(0.42, abs=0.04)
    assert cause.title == "functions compute by several operators what F.gelu and F.layer_norm give in one"
    assert "3 times a step, GELU.forward gets an input of 64x50x512" in cause.evidence[0].text
    assert "those of F.gelu(x) 30% of that (25% to 35%)" in cause.evidence[0].text
    offered = remedies(context)["fuse_functions"]
    assert offered.settings == {"fused_functions": "code/net.py:GELU.forward"} and offered.semantic_class == NUMERICS
    assert offered.how == "GELU.forward: return F.gelu(x); GELU.forward: return F.layer_norm(x, (512,))"
    seen = {"calls": 3, "input": [64, 50, 512], "name": "gelu", "code": "F.gelu(x)", "lines": []}
    process: Any = Process([])
    process.info["unfused_functions"] = [{**seen, "plain_ns": [2_000_000], "joined_ns": [600_000]}]
    [read] = read_unfused_functions(process)
    assert (read.uses, read.name, read.code, read.seconds, read.part) == (3, "gelu", "F.gelu(x)", 0.002, 0.3)


@pytest.mark.parametrize(
    ("kept", "form"), [(True, "by rows (CSR)"), (False, "by rows (CSR), which are made each time,")]
)
def test_products_in_coordinates_are_named(kept: bool, form: str) -> None:
    context = Context.of(views.in_coordinates(healthy(), kept=kept))
    cause = found(coo_products(context))
    assert cause.share == pytest.approx(0.48, abs=0.04)
    assert "once a step, 3 products of a matrix of 500x500, 9,000 values, with one of 500x64" in cause.evidence[0].text
    assert f"those of products {form} 20% of that (15% to 30%)" in cause.evidence[0].text
    offered = remedies(context)["csr_products"]
    assert offered.settings == {"csr_products": True} and offered.memory_bytes == 2 * 16 * 9_000
    seen = {"calls": 3, "matrix": [500, 500], "values": 9_000, "input": [500, 64], "kept": kept, "lines": []}
    process: Any = Process([])
    process.info["coordinate_products"] = [{**seen, "plain_ns": [6_000_000], "joined_ns": [1_200_000]}]
    [read] = read_coordinate_products(process)
    assert (read.uses, read.products, read.matrix, read.values, read.kept) == (1, 3, (500, 500), 9_000, kept)
    assert (read.seconds, read.part, read.shape) == (0.006, 0.2, (500, 64))


def test_a_matrix_for_each_row_is_named() -> None:
    context = Context.of(views.gathered(healthy()))
    cause = found(gathered_weights(context))
    assert cause.share == pytest.approx(0.48, abs=0.04)
    assert "2 times a step, copies of 474 matrices of 100x100 are multiplied with rows of 15000x100" in (
        cause.evidence[0].text
    )
    assert not remedies(context)["sort_rows"].settings
    seen = {"calls": 2, "input": [15_000, 100], "matrix": [100, 100], "matrices": 474, "lines": []}
    process: Any = Process([])
    process.info["gathered_weights"] = [{**seen, "plain_ns": [3_000_000], "joined_ns": [600_000]}]
    [read] = read_gathered_weights(process)
    assert (read.uses, read.matrix, read.matrices, read.shape) == (2, (100, 100), 474, (15_000, 100))
    assert (read.seconds, read.part) == (0.003, 0.2)


def test_products_in_a_loop_are_named() -> None:
    context = Context.of(views.in_a_loop(healthy()))
    cause = found(stepwise_products(context))
    assert cause.share == pytest.approx(0.48, abs=0.04)
    assert cause.title == "a layer multiplies 100 inputs in turn, none of which needs another's result"
    assert "once a step, 100 products with a weight of 256x50000, each of 8x256" in cause.evidence[0].text
    assert not remedies(context)["product_after_loop"].settings
    assert stepwise_products(Context.of(views.in_a_loop(views.in_turn(healthy())))) is None
    seen = {"calls": 100, "input": [8, 256], "weight": [256, 50_000], "lines": []}
    process: Any = Process([])
    process.info["stepwise_products"] = [{**seen, "plain_ns": [6_000_000], "joined_ns": [1_200_000]}]
    [read] = read_stepwise_products(process)
    assert (read.uses, read.products, read.weight, read.shape) == (1, 100, (256, 50_000), (8, 256))
    assert (read.seconds, read.part) == (0.006, 0.2)


def test_attention_by_hand_is_named() -> None:
    context = Context.of(views.by_hand(healthy()))
    cause = found(unfused_attention(context))
    assert cause.share == pytest.approx(0.48, abs=0.04)
    assert "2 times a step, weights of 32x256x200 are made from queries of 32x256x64" in cause.evidence[0].text
    how = remedies(context)["fuse_attention"].how
    assert "attn_mask=mask, dropout_p=p if self.training else 0.0)" in how and "is_causal" in how
    plain = Context.of(views.by_hand(healthy(), masked=False, dropout=False))
    assert "(q, k, v);" in remedies(plain)["fuse_attention"].how
    seen = {"calls": 2, "input": [32, 256, 64], "keys": 200, "masked": True, "dropout": False, "lines": []}
    process: Any = Process([])
    process.info["unfused_attention"] = [{**seen, "plain_ns": [3_000_000], "joined_ns": [600_000]}]
    [read] = read_unfused_attention(process)
    assert (read.uses, read.keys, read.shape, read.masked, read.dropout) == (2, 200, (32, 256, 64), True, False)
    assert (read.seconds, read.part) == (0.003, 0.2)


@pytest.mark.parametrize(("kind", "how"), [("cosines", "normalize"), ("distances", "cdist"), ("products", "einsum")])
def test_pairs_that_are_broadcast_are_named(kind: str, how: str) -> None:
    context = Context.of(views.in_pairs(healthy(), kind=kind))
    cause = found(broadcast_pairs(context))
    assert cause.share == pytest.approx(0.48, abs=0.04)
    assert cause.title == f"{kind} of all pairs are made by broadcasting"
    assert "what is 256x1x64 and 1x512x64 is broadcast to an array of 256x512x64" in cause.evidence[0].text
    offered = remedies(context)["pairs_by_product"]
    assert how in offered.how
    assert offered.settings == ({"quick_cosine": True} if kind == "cosines" else {})
    seen = {"calls": 3, "input": [256, 512, 64], "left": [256, 1, 64], "right": [1, 512, 64], "lines": []}
    process: Any = Process([])
    process.info["broadcast_pairs"] = [{**seen, "kind": kind, "plain_ns": [3_000_000], "joined_ns": [600_000]}]
    [read] = read_broadcast_pairs(process)
    assert (read.uses, read.kind, read.shape) == (3, kind, (256, 512, 64))
    assert (read.left, read.right) == ((256, 1, 64), (1, 512, 64))


def test_pixels_that_would_better_be_laid_out_channels_last_are_named() -> None:
    context = Context.of(views.of_pixels(healthy()))
    cause = found(channels_first(context))
    assert cause.share == pytest.approx(0.4, abs=0.04)
    assert "once a step, ResNet gets an input of 32x3x32x32; measured after the window" in cause.evidence[0].text
    assert "those of the same in channels_last 50% of that (45% to 55%)" in cause.evidence[0].text
    offered = remedies(context)["channels_last"]
    assert offered.settings == {"channels_last": True} and "in both layouts" in offered.basis
    slower = Context.of(views.of_pixels(healthy(), part=1.0, low=0.99, high=1.0))
    assert channels_first(slower) is None and "channels_last" not in remedies(slower)
    seen = {"calls": 1, "input": [32, 3, 32, 32], "name": "ResNet", "layout": "channels_last", "lines": []}
    process: Any = Process([])
    process.info["model_layouts"] = [{**seen, "plain_ns": [8_000_000], "joined_ns": [4_000_000]}]
    [read] = read_model_layouts(process)
    assert (read.uses, read.name, read.layout, read.seconds, read.part) == (1, "ResNet", "channels_last", 0.008, 0.5)


def test_no_more_than_both_passes_is_saved() -> None:
    assert found(unmerged_layers(unmerged(seconds=0.006))).share < 1.0
    assert "longer than both passes" in str(unmerged_layers(unmerged(seconds=1.0)))


def test_the_rounds_that_are_farthest_apart_do_not_count() -> None:
    plain, joined = [40, 39, 37, 44], [28, 28, 53, 22]  # other programs had the cores in the third
    part, low, high = parts(plain, joined)
    assert part == 22 / 37 and low == 22 / 37 and high == 28 / 39
    assert parts(plain[:3], joined[:3])[2] == 1.0


def test_where_one_is_no_faster_or_was_not_timed_there_is_no_cause() -> None:
    assert unmerged_layers(unmerged(part=0.99, low=0.9, high=1.0)) is None
    assert unmerged_layers(run(healthy())) is None
    assert "too long" in str(unmerged_layers(run(healthy(), repeated_work="a step takes too long")))
    assert "no memory" in str(unmerged_layers(unmerged(seconds=None, skipped="no memory is left")))


def test_the_fastest_rounds_are_compared() -> None:
    process: Any = Process([SEEN, {**SEEN, **TIMES}, {**SEEN, "skipped": "why"}])
    first, *others = read_unmerged_layers(process)
    assert (first.layers, first.uses, first.shape, first.seconds) == (8, 2, (1280, 512), 0.002)
    assert (first.part, first.low, first.high) == (0.4, 0.4, 0.5)
    assert first.saved_s(first.part) == pytest.approx(2 * 0.002 * 0.6)
    assert [(one.seconds, one.skipped) for one in others] == [(None, "they were not timed"), (None, "why")]
    empty: Any = Process(None)
    assert read_unmerged_layers(empty) == ()
    assert read_spanning_kernels(empty) == ()
