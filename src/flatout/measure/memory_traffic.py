"""The tensors that an operator without products has to read and to write, from the shapes of its inputs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from flatout.record.operator_inputs import Input, Tensor


def names(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


# Of each group: names without "aten::", and without the "_" of those that work in place.
_ELEMENTWISE = names("""
    abs acos add addcdiv addcmul asin atan atan2 binary_cross_entropy binary_cross_entropy_with_logits bitwise_and
    bitwise_not bitwise_or bitwise_xor ceil celu clamp clamp_max clamp_min cos cosh div elu eq erf exp exp2 expm1 floor
    floor_divide fmod ge gelu gelu_backward gt hardsigmoid hardsigmoid_backward hardswish hardswish_backward hardtanh
    hardtanh_backward huber_loss isfinite isinf isnan isneginf isposinf le leaky_relu leaky_relu_backward lerp log log10
    log1p log2 log_sigmoid_forward logaddexp logical_and logical_not logical_or logical_xor lt masked_fill maximum
    minimum mish mish_backward mse_loss mul nan_to_num native_dropout_backward ne neg pow reciprocal relu remainder
    round rsqrt rsub sgn sigmoid sigmoid_backward sign silu silu_backward sin sinh smooth_l1_loss softplus
    softplus_backward sqrt square sub tan tanh tanh_backward threshold threshold_backward trunc where
""")
_OF_TRUTH = names("""
    eq ne lt le gt ge isfinite isinf isnan isneginf isposinf logical_and logical_not logical_or logical_xor
""")
_REDUCING = names("""
    all amax amin any argmax argmin count_nonzero linalg_vector_norm logsumexp max mean min norm prod std std_mean sum
    var var_mean
""")
# Name -> places of the inputs that are read, and of the one whose shape the result has; None: a small result.
_SHAPED: dict[str, tuple[tuple[int, ...], int | None]] = {
    **dict.fromkeys(
        (
            "_softmax",
            "_log_softmax",
            "_safe_softmax",
            "native_layer_norm",
            "native_group_norm",
            "native_batch_norm",
            "_native_batch_norm_legit",
            "_batch_norm_with_update",
            "cudnn_batch_norm",
            "miopen_batch_norm",
            "_fused_rms_norm",
            "native_dropout",
            "cumsum",
            "flip",
            "roll",
            "tril",
            "triu",
        ),
        ((0,), 0),
    ),
    **dict.fromkeys(("_softmax_backward_data", "_log_softmax_backward_data", "cudnn_batch_norm_backward"), ((0, 1), 0)),
    **dict.fromkeys(
        (
            "native_layer_norm_backward",
            "native_group_norm_backward",
            "native_batch_norm_backward",
            "batch_norm_backward",
            "_fused_rms_norm_backward",
        ),
        ((0, 1), 1),
    ),
    **dict.fromkeys(("avg_pool2d_backward", "avg_pool3d_backward", "_adaptive_avg_pool2d_backward"), ((0,), 1)),
    **dict.fromkeys(("max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward"), ((0, 7), 1)),
    **dict.fromkeys(
        (
            "max_pool2d_with_indices",
            "max_pool3d_with_indices",
            "avg_pool2d",
            "avg_pool3d",
            "_adaptive_avg_pool2d",
            "upsample_nearest2d",
            "upsample_bilinear2d",
            "upsample_bicubic2d",
            "upsample_nearest2d_backward",
            "upsample_bilinear2d_backward",
            "upsample_bicubic2d_backward",
        ),
        ((0,), None),
    ),
    "nll_loss_forward": ((1,), None),
    "nll_loss_backward": ((2,), 1),
}
# Optimizers in one kernel: the lists that are written too (native_functions.yaml of torch).
_FUSED = {"_fused_adam": (0, 2, 3), "_fused_adamw": (0, 2, 3), "_fused_sgd": (0, 2), "_fused_adagrad": (0, 2)}


class UnknownCostError(Exception):
    """The cost of an operator does not follow from its inputs."""


def traffic(name: str, inputs: Sequence[Input]) -> tuple[list[Tensor], list[Tensor]]:
    """The tensors that an operator reads and those that it writes, at least.

    Args:
        name: without "aten::".
        inputs: of the operator.

    Raises:
        UnknownCostError: the operator is none of these, or its inputs are not known.
    """
    in_place = name.endswith("_") and not name.endswith("__")
    stem = name[:-1] if in_place else name
    if stem in _ELEMENTWISE or stem.startswith("_foreach_"):
        return _elementwise(stem, inputs, in_place)
    if stem in _REDUCING:
        return [tensor_at(inputs, 0)], []
    if stem in _SHAPED:
        reads, shaped = _SHAPED[stem]
        return [tensor_at(inputs, place) for place in reads], [] if shaped is None else [
            _stored(tensor_at(inputs, shaped))
        ]
    if stem in ("fill", "zero"):
        return [], [tensor_at(inputs, 0)]
    if stem == "copy":
        return [tensor_at(inputs, 1)], [tensor_at(inputs, 0)]
    if stem == "cat":
        listed = list_at(inputs, 0)
        return listed, listed
    if stem in _FUSED:
        lists = [one for one in inputs if isinstance(one, tuple)]
        return list(itertools.chain(*lists)), list(itertools.chain(*(list_at(inputs, place) for place in _FUSED[stem])))
    return _rows(stem, inputs)


def _rows(name: str, inputs: Sequence[Input]) -> tuple[list[Tensor], list[Tensor]]:
    """Rows of a table that are picked by their index."""
    if name == "embedding":
        table, index = tensor_at(inputs, 0), tensor_at(inputs, 1)
        picked = Tensor.dense((*index.shape, *table.shape[1:]), table.dtype)
        return [index, picked], [picked]
    if name == "index_select":
        table, index, axis = tensor_at(inputs, 0), tensor_at(inputs, 2), number_at(inputs, 1)
        if not -len(table.shape) <= axis < len(table.shape):
            raise UnknownCostError
        axis %= len(table.shape)
        picked = Tensor.dense((*table.shape[:axis], index.count, *table.shape[axis + 1 :]), table.dtype)
        return [index, picked], [picked]
    if name == "gather":
        index = tensor_at(inputs, 2)
        picked = Tensor.dense(index.shape, tensor_at(inputs, 0).dtype)
        return [index, picked], [picked]
    if name == "embedding_dense_backward":
        gradient, index = tensor_at(inputs, 0), tensor_at(inputs, 1)
        table = Tensor.dense((number_at(inputs, 2), *gradient.shape[-1:]), gradient.dtype)
        return [gradient, index], [table]
    raise UnknownCostError


def _elementwise(stem: str, inputs: Sequence[Input], in_place: bool) -> tuple[list[Tensor], list[Tensor]]:
    lists = [one for one in inputs if isinstance(one, tuple)]
    if lists:
        reads = list(itertools.chain(*lists))
        return reads, [] if stem == "_foreach_norm" else list(lists[0])
    # A tensor without dimensions is a number, and decides no type.
    reads = [one for one in inputs if isinstance(one, Tensor)]
    if not reads:
        raise UnknownCostError
    if in_place:
        return reads, [reads[0]]
    shape = _broadcast([one.shape for one in reads])
    typed = next((one for one in reads if one.shape and one.dtype != "bool"), reads[-1])
    return reads, [Tensor.dense(shape, "bool" if stem in _OF_TRUTH else typed.dtype)]


def _broadcast(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    sizes = itertools.zip_longest(*(reversed(shape) for shape in shapes), fillvalue=1)
    return tuple(reversed([0 if 0 in column else max(column) for column in sizes]))


def _stored(tensor: Tensor) -> Tensor:
    return Tensor.dense(tensor.shape, tensor.dtype)


def tensor_at(inputs: Sequence[Input], place: int) -> Tensor:
    """The tensor at one place of the inputs.

    Raises:
        UnknownCostError: there is none.
    """
    found = inputs[place] if place < len(inputs) else None
    if not isinstance(found, Tensor):
        raise UnknownCostError
    return found


def list_at(inputs: Sequence[Input], place: int) -> list[Tensor]:
    """The tensors of the list at one place of the inputs.

    Raises:
        UnknownCostError: there is none.
    """
    found = inputs[place] if place < len(inputs) else None
    if not isinstance(found, tuple):
        raise UnknownCostError
    return list(found)


def text_at(inputs: Sequence[Input], place: int) -> str:
    """The argument at one place of the inputs that is neither a tensor nor a list of them, as text.

    Raises:
        UnknownCostError: there is none.
    """
    found = inputs[place] if place < len(inputs) else None
    if not isinstance(found, str):
        raise UnknownCostError
    return found


def number_at(inputs: Sequence[Input], place: int) -> int:
    """The whole number at one place of the inputs.

    Raises:
        UnknownCostError: there is none.
    """
    text = text_at(inputs, place)
    if not (text.removeprefix("-").isascii() and text.removeprefix("-").isdigit() and len(text) < 18):
        raise UnknownCostError
    return int(text)
