"""The floating-point operations and the bytes that an operator cannot do without, from the shapes of its inputs.

The formulas of products, convolutions and attention are those of ``torch.utils.flop_counter``: a multiplication and
an addition are two operations, and additions of biases are not counted. What differs is said where it stands.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from flatout.measure.memory_traffic import UnknownCostError, list_at, names, tensor_at, text_at, traffic
from flatout.record.operator_inputs import Input, Tensor

_NUMBERS = re.compile(r"-?[0-9]{1,15}")


@dataclass(frozen=True)
class Cost:
    """The least that an operator has to do.

    Attributes:
        flops: floating-point operations of its products; 0: it has none.
        bytes: read and written, each tensor once.
        dtype: in which its products are computed, or which it reads or writes first.
        convolution: its products are those of a convolution.
        reads: shapes of the tensors that it reads.
        result: the tensor that it writes first; None: it is small, or there is none.
    """

    flops: int
    bytes: int
    dtype: str
    convolution: bool = False
    reads: tuple[tuple[int, ...], ...] = ()
    result: Tensor | None = None


# An operator that neither computes nor touches what its tensors hold.
NOTHING = Cost(0, 0, "")
_WITHOUT_DATA = names("""
    view _unsafe_view reshape _reshape_alias view_as flatten unflatten t transpose permute movedim as_strided expand
    expand_as slice select narrow split split_with_sizes chunk unbind unsqueeze squeeze diagonal unfold alias detach
    empty empty_like empty_strided new_empty new_empty_strided resize set lift_fresh resolve_conj resolve_neg to
    contiguous item _local_scalar_dense is_nonzero result_type scalar_tensor zeros_like zeros ones ones_like
""")
_DISPATCHING = re.compile(r"^(aten::|autograd::engine::|torch::autograd::)|Backward\d*$|^detach_?$")
# Their own time is that of fused code, of which the trace shows nothing.
_COMPILED = re.compile("Compiled|Inductor|triton")


def cost(name: str, inputs: Sequence[Input]) -> Cost | None:
    """The cost of an operator with all that it calls; None: it is not known."""
    base = name.removeprefix("aten::")
    if base == name:
        return None
    try:
        formula = _PRODUCTS.get(base)
        return formula(inputs) if formula is not None else _of_traffic(*traffic(base, inputs))
    except UnknownCostError:
        return None


def moves_no_data(name: str, calls_others: bool) -> bool:
    """True if an operator does nothing by itself: it makes a view, allocates, or only calls other operators."""
    if _COMPILED.search(name):
        return False
    base = name.removeprefix("aten::")
    if base.rstrip("_") in _WITHOUT_DATA or name == "torch::autograd::AccumulateGrad":
        return True
    return calls_others and bool(_DISPATCHING.search(name))


def _of_traffic(reads: Sequence[Tensor], writes: Sequence[Tensor]) -> Cost:
    return _cost(0, reads, writes, (*reads, *writes)[0].dtype if reads or writes else "")


def _cost(flops: int, reads: Sequence[Tensor], writes: Sequence[Tensor], dtype: str, convolution: bool = False) -> Cost:
    size = sum(tensor.bytes for tensor in (*reads, *writes))
    return Cost(flops, size, dtype, convolution, tuple(one.shape for one in reads), writes[0] if writes else None)


def _product(first: int) -> Callable[[Sequence[Input]], Cost]:
    """A product of two matrices, or of as many pairs of them; ``first`` is the place of the first one."""

    def formula(inputs: Sequence[Input]) -> Cost:
        one, other = tensor_at(inputs, first), tensor_at(inputs, first + 1)
        if not 2 <= len(one.shape) == len(other.shape) <= 3 or one.shape[-1] != other.shape[-2]:
            raise UnknownCostError
        result = Tensor.dense((*one.shape[:-1], other.shape[-1]), one.dtype)
        reads = [tensor for tensor in inputs[: first + 2] if isinstance(tensor, Tensor)]
        return _cost(2 * one.count * other.shape[-1], reads, [result], one.dtype)

    return formula


def _matrix_with_vector(first: int) -> Callable[[Sequence[Input]], Cost]:
    def formula(inputs: Sequence[Input]) -> Cost:
        matrix, vector = tensor_at(inputs, first), tensor_at(inputs, first + 1)
        result = Tensor.dense(matrix.shape[:-1], matrix.dtype)
        return _cost(2 * matrix.count, [matrix, vector], [result], matrix.dtype)

    return formula


def _convolution(inputs: Sequence[Input]) -> Cost:
    images, weight = tensor_at(inputs, 0), tensor_at(inputs, 1)
    result = Tensor.dense(_convolved(images, weight, inputs), images.dtype)
    positions = images if text_at(inputs, 6) == "True" else result
    flops = 2 * images.shape[0] * math.prod(positions.shape[2:]) * weight.count
    return _cost(flops, [images, weight], [result], images.dtype, convolution=True)


def _convolved(images: Tensor, weight: Tensor, inputs: Sequence[Input]) -> tuple[int, ...]:
    """Shape of a convolution's result (documentation of torch.nn.Conv2d and ConvTranspose2d, "Shape")."""
    axes = len(images.shape) - 2
    stride, padding, dilation, more = (_numbers(inputs, place, axes) for place in (3, 4, 5, 7))
    if axes < 1 or len(weight.shape) != axes + 2 or min(stride) < 1:
        raise UnknownCostError
    (groups,) = _numbers(inputs, 8, 1)
    sizes = []
    for axis, size in enumerate(images.shape[2:]):
        reach = dilation[axis] * (weight.shape[2 + axis] - 1)
        if text_at(inputs, 6) == "True":
            sizes.append((size - 1) * stride[axis] - 2 * padding[axis] + reach + more[axis] + 1)
        else:
            sizes.append((size + 2 * padding[axis] - reach - 1) // stride[axis] + 1)
    channels = weight.shape[1] * groups if text_at(inputs, 6) == "True" else weight.shape[0]
    if min(sizes) < 0:
        raise UnknownCostError
    return (images.shape[0], channels, *sizes)


def _convolution_backward(inputs: Sequence[Input]) -> Cost:
    """As many operations as forward for each of the two gradients that are asked for.

    ``torch.utils.flop_counter`` counts those of the weights' gradient ``groups`` times.
    """
    gradient, images, weight = (tensor_at(inputs, place) for place in range(3))
    if len(images.shape) < 3 or len(gradient.shape) != len(images.shape):
        raise UnknownCostError
    of_images, of_weight, *_ = (*re.findall("True|False", text_at(inputs, 10)), "False", "False")
    positions = images if text_at(inputs, 7) == "True" else gradient
    each = 2 * images.shape[0] * math.prod(positions.shape[2:]) * weight.count
    reads, writes = [gradient], []
    if of_images == "True":
        reads.append(weight)
        writes.append(Tensor.dense(images.shape, images.dtype))
    if of_weight == "True":
        reads.append(images)
        writes.append(Tensor.dense(weight.shape, weight.dtype))
    return _cost(each * len(writes), reads, writes, gradient.dtype, convolution=True)


def _numbers(inputs: Sequence[Input], place: int, count: int) -> list[int]:
    """The numbers of a list in the inputs, such as "[1, 1]"; a single one stands for all."""
    found = [int(one) for one in _NUMBERS.findall(text_at(inputs, place))]
    if len(found) == 1:
        found *= count
    if len(found) != count:
        raise UnknownCostError
    return found


def _attention(causal: int) -> Callable[[Sequence[Input]], Cost]:
    """Scores, and their product with the values. With a causal mask half of it: fused kernels skip the other half.

    ``torch.utils.flop_counter`` counts all of it. ``causal`` is the place of the argument.
    """

    def formula(inputs: Sequence[Input]) -> Cost:
        query, key, value = (tensor_at(inputs, place) for place in range(3))
        result = Tensor.dense((*query.shape[:-1], *value.shape[-1:]), query.dtype)
        flops = 2 * _scores(query, key) * (query.shape[-1] + value.shape[-1])
        return _cost(_unmasked(flops, inputs, causal), [query, key, value], [result], query.dtype)

    return formula


def _attention_backward(causal: int) -> Callable[[Sequence[Input]], Cost]:
    """Five products: the scores again, and the gradients of scores, values, queries and keys; masked as forward."""

    def formula(inputs: Sequence[Input]) -> Cost:
        gradient, query, key, value = (tensor_at(inputs, place) for place in range(4))
        flops = 2 * _scores(query, key) * (3 * query.shape[-1] + 2 * value.shape[-1])
        reads, writes = [gradient, query, key, value], [query, key, value]
        return _cost(_unmasked(flops, inputs, causal), reads, writes, query.dtype)

    return formula


def _scores(query: Tensor, key: Tensor) -> int:
    if len(query.shape) != 4 or len(key.shape) != 4:
        raise UnknownCostError
    return math.prod(query.shape[:3]) * key.shape[2]


def _unmasked(flops: int, inputs: Sequence[Input], causal: int) -> int:
    return flops // 2 if text_at(inputs, causal) == "True" else flops


def _recurrent(weights: Callable[[Sequence[Input]], Sequence[Tensor]], times: int) -> Callable[[Sequence[Input]], Cost]:
    """A recurrent layer: each sample of each time step meets each weight matrix once.

    ``torch.utils.flop_counter`` has no formula for it; it counts as much where the layer is computed by single
    products. ``times`` is 2 for the backward pass, which has two gradients.
    """

    def formula(inputs: Sequence[Input]) -> Cost:
        sequence, matrices = tensor_at(inputs, 0), weights(inputs)
        if len(sequence.shape) != 3 or not matrices:
            raise UnknownCostError
        flops = 2 * math.prod(sequence.shape[:2]) * sum(one.count for one in matrices)
        result = Tensor.dense((*sequence.shape[:2], matrices[-1].shape[-1]), sequence.dtype)
        return _cost(times * flops, [sequence, *matrices], [result], sequence.dtype)

    return formula


def _two_matrices(inputs: Sequence[Input]) -> Sequence[Tensor]:
    return [tensor_at(inputs, 1), tensor_at(inputs, 2)]


def _listed_matrices(inputs: Sequence[Input]) -> Sequence[Tensor]:
    return [one for one in list_at(inputs, 1) if len(one.shape) == 2]


# By name without "aten::"; places of arguments as in native_functions.yaml of torch.
_PRODUCTS: dict[str, Callable[[Sequence[Input]], Cost]] = {
    **dict.fromkeys(("mm", "bmm"), _product(0)),
    **dict.fromkeys(("addmm", "addmm_", "baddbmm", "baddbmm_", "addbmm", "_addmm_activation"), _product(1)),
    "mv": _matrix_with_vector(0),
    "addmv": _matrix_with_vector(1),
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    "_scaled_dot_product_flash_attention": _attention(4),
    "_scaled_dot_product_flash_attention_for_cpu": _attention(4),
    "_scaled_dot_product_efficient_attention": _attention(6),
    "_scaled_dot_product_cudnn_attention": _attention(6),
    "_scaled_dot_product_flash_attention_backward": _attention_backward(11),
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward(7),
    "_scaled_dot_product_efficient_attention_backward": _attention_backward(11),
    "_scaled_dot_product_cudnn_attention_backward": _attention_backward(14),
    "mkldnn_rnn_layer": _recurrent(_two_matrices, 1),
    "mkldnn_rnn_layer_backward": _recurrent(_two_matrices, 2),
    "_cudnn_rnn": _recurrent(_listed_matrices, 1),
    "_cudnn_rnn_backward": _recurrent(_listed_matrices, 2),
}
