"""FLOPs and bytes of operators: those of real networks beside torch's own counter, and the rest by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flatout.measure.costly_operators import Attribution, attribute
from flatout.measure.operator_costs import cost, moves_no_data
from flatout.measure.traced_steps import own_time
from flatout.record.kernel_trace import KernelTrace, read_trace
from flatout.record.operator_inputs import read_inputs

torch: Any = pytest.importorskip("torch")
flop_counter: Any = pytest.importorskip("torch.utils.flop_counter")


def traced(folder: Path, step: Callable[[], None]) -> tuple[KernelTrace, Attribution]:
    """The trace of a step, with what each operator belongs to."""
    path = folder / "trace.json.gz"
    with torch.profiler.profile(record_shapes=True) as profiler:
        step()
    profiler.export_chrome_trace(str(path))
    trace = read_trace(path)
    assert isinstance(trace, KernelTrace)
    _, children, parent = own_time(trace.operators)
    return trace, attribute(trace.operators, parent, children, "float32", None)


def flops(found: Attribution) -> int:
    """Of all operators, each counted once."""
    own = np.flatnonzero(found.owner == np.arange(len(found.owner)))
    return sum(one.flops for row in own.tolist() if (one := found.costs[row]) is not None)


def counted(step: Callable[[], None]) -> int:
    with flop_counter.FlopCounterMode(display=False) as counter:
        step()
    return int(counter.get_total_flops())


def training_step(model: Any, *inputs: Any) -> Callable[[], None]:
    def step() -> None:
        model.zero_grad()
        result = model(*inputs)
        (result[0] if isinstance(result, tuple) else result).sum().backward()

    return step


@pytest.mark.slow
def test_a_residual_network_has_the_flops_that_torch_counts(tmp_path: Path) -> None:
    models = pytest.importorskip("torchvision.models")
    step = training_step(models.resnet18(), torch.randn(2, 3, 64, 64))
    assert flops(traced(tmp_path, step)[1]) == counted(step) > 10**8


@pytest.mark.parametrize("fused", [True, False])
def test_a_transformer_has_the_flops_that_torch_counts(tmp_path: Path, fused: bool) -> None:
    """With attention in one operator, and in single products."""
    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
    pixels = torch.randn(2, 24, 64, requires_grad=True)
    backend = torch.nn.attention.SDPBackend.FLASH_ATTENTION if fused else torch.nn.attention.SDPBackend.MATH
    with torch.nn.attention.sdpa_kernel(backend):
        step = training_step(layer, pixels)
        trace, found = traced(tmp_path, step)
        assert flops(found) == counted(step) > 10**6
    assert ("aten::_scaled_dot_product_flash_attention_for_cpu" in trace.operators.name) == fused


def test_a_causal_mask_halves_the_work_of_attention(tmp_path: Path) -> None:
    def attention(causal: bool) -> Callable[[], None]:
        queries = torch.randn(2, 4, 32, 16, requires_grad=True)
        function = torch.nn.functional.scaled_dot_product_attention
        return lambda: function(queries, queries, queries, is_causal=causal).sum().backward()

    whole, half = (flops(traced(tmp_path, attention(causal))[1]) for causal in (False, True))
    assert whole == 2 * half > 0


@contextmanager
def single_products() -> Iterator[None]:
    """Without oneDNN, which computes a recurrent layer in one operator."""
    torch.backends.mkldnn.set_flags(_enabled=False, _allow_tf32=None)
    yield
    torch.backends.mkldnn.set_flags(_enabled=True, _allow_tf32=None)


@pytest.mark.parametrize("bidirectional", [True, False])
def test_a_recurrent_layer_has_the_flops_that_torch_counts_in_single_products(
    tmp_path: Path, bidirectional: bool
) -> None:
    layer = torch.nn.LSTM(24, 32, num_layers=2, bidirectional=bidirectional)
    # The fused layer computes the gradient of the first state whether it is asked for or not.
    state = [torch.zeros(4 if bidirectional else 2, 3, 32, requires_grad=True) for _ in range(2)]
    step = training_step(layer, torch.randn(7, 3, 24, requires_grad=True), state)
    with single_products():
        expected = counted(step)
        assert flops(traced(tmp_path, step)[1]) == expected > 10**6
    trace, found = traced(tmp_path, step)
    if "aten::mkldnn_rnn_layer" not in trace.operators.name:
        pytest.skip("this build of torch has no fused layer")
    assert flops(found) == expected


@pytest.mark.parametrize(
    "layer",
    [
        lambda: torch.nn.Conv1d(4, 6, 3, stride=2, padding=1),
        lambda: torch.nn.Conv2d(4, 6, (3, 5), dilation=2),
        lambda: torch.nn.Conv3d(4, 6, 2),
        lambda: torch.nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1),
    ],
    ids=["strided", "dilated", "of volumes", "transposed"],
)
def test_convolutions_of_all_kinds_have_the_flops_that_torch_counts(tmp_path: Path, layer: Any) -> None:
    convolution = layer()
    images = torch.randn(2, 4, *[11] * (convolution.weight.dim() - 2), requires_grad=True)
    step = training_step(convolution, images)
    trace, found = traced(tmp_path, step)
    assert flops(found) == counted(step) > 0
    (row,) = [row for row, name in enumerate(trace.operators.name) if name == "aten::convolution"]
    cost_of_it = found.costs[row]
    assert cost_of_it is not None and cost_of_it.result is not None
    assert cost_of_it.result.shape == tuple(convolution(images).shape)


def test_groups_divide_the_work_of_both_passes(tmp_path: Path) -> None:
    def of(groups: int) -> int:
        step = training_step(torch.nn.Conv2d(8, 8, 3, groups=groups), torch.randn(2, 8, 9, 9, requires_grad=True))
        return flops(traced(tmp_path, step)[1])

    assert of(1) == 8 * of(8)


def test_frozen_weights_leave_out_their_gradient(tmp_path: Path) -> None:
    convolution = torch.nn.Conv2d(4, 4, 3)
    step = training_step(convolution, torch.randn(2, 4, 9, 9, requires_grad=True))
    trained = flops(traced(tmp_path, step)[1])
    convolution.weight.requires_grad_(False)
    assert 3 * flops(traced(tmp_path, step)[1]) == 2 * trained


def test_all_of_a_common_step_is_known(tmp_path: Path) -> None:
    """What is not known is named, so that a new version of torch with other operators is noticed."""
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(inplace=True), torch.nn.MaxPool2d(2),
        torch.nn.AdaptiveAvgPool2d(2), torch.nn.Flatten(), torch.nn.LayerNorm(32), torch.nn.Linear(32, 10),
        torch.nn.GELU(),
    )  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters())
    images, labels = torch.randn(4, 3, 16, 16), torch.randint(10, (4,))

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    trace, found = traced(tmp_path, step)
    unknown = {name for name, owned in zip(trace.operators.name, found.costs, strict=True) if owned is None}
    covered = {trace.operators.name[row] for row in np.flatnonzero(found.owner != np.arange(len(found.owner)))}
    assert unknown - covered == set()


KIB = 1024


@pytest.mark.parametrize(
    ("name", "inputs", "expected"),
    [
        ("aten::add", [("float", [64, 64]), ("float", [64, 64]), 1], 48 * KIB),
        ("aten::add_", [("float", [64, 64]), ("float", [64, 64]), 1], 48 * KIB),
        ("aten::mul", [("float", [64, 64]), ("float", [64, 1])], 32 * KIB + 256),
        ("aten::mul", [("c10::BFloat16", [64, 64]), ("double", [])], 16 * KIB + 8),
        ("aten::eq", [("float", [64, 64]), ("float", [64, 64])], 36 * KIB),
        ("aten::sum", [("float", [64, 64]), [1]], 16 * KIB),
        ("aten::copy_", [("float", [64, 64]), ("c10::Half", [64, 64])], 24 * KIB),
        ("aten::fill_", [("float", [64, 64]), 0], 16 * KIB),
        ("aten::native_layer_norm", [("float", [64, 64]), [64]], 32 * KIB),
        ("aten::_softmax_backward_data", [("float", [64, 64]), ("float", [64, 64])], 48 * KIB),
        ("aten::embedding", [("float", [1000, 64]), ("long int", [16])], 2 * 4 * KIB + 128),
        ("aten::embedding_dense_backward", [("float", [16, 64]), ("long int", [16]), 1000], 4 * KIB + 128 + 256000),
        ("aten::index_select", [("float", [1000, 64]), 0, ("long int", [16])], 2 * 4 * KIB + 128),
        ("aten::gather", [("float", [16, 64]), 1, ("long int", [16, 1])], 2 * 64 + 128),
        ("aten::cat", [[[64, 64], [64, 64]], 0], 64 * KIB),
        ("aten::_foreach_add_", [[[64, 64]], [[64, 64]]], 48 * KIB),
        ("aten::_fused_adamw_", [[[64, 64]]] * 4, 7 * 16 * KIB),
        ("aten::mm", [("float", [64, 64]), ("float", [64, 64])], 48 * KIB),
        ("aten::addmv", [("float", [64]), ("float", [64, 64]), ("float", [64])], 16 * KIB + 512),
    ],
)
def test_each_tensor_is_read_or_written_once(name: str, inputs: list[Any], expected: int) -> None:
    found = cost(name, read_inputs(arguments(inputs), "float32"))
    assert found is not None
    assert found.bytes == expected


def arguments(inputs: list[Any]) -> dict[str, Any]:
    """The trace's form: tensors are pairs of type and shape, lists of shapes are lists of tensors, the rest values."""
    types, shapes, values = [], [], []
    for one in inputs:
        listed = isinstance(one, list) and all(isinstance(shape, list) for shape in one)
        types.append(one[0] if isinstance(one, tuple) else "TensorList" if listed else "Scalar")
        shapes.append(one[1] if isinstance(one, tuple) else one if listed else [])
        values.append("" if isinstance(one, tuple) or listed else str(one))
    return {"Input Dims": shapes, "Input type": types, "Concrete Inputs": values}


def test_an_expanded_tensor_is_read_once() -> None:
    given = arguments([("float", [64, 64]), ("float", [64, 64])])
    given["Input Strides"] = [[64, 1], [0, 1]]
    found = cost("aten::copy_", read_inputs(given, None))
    assert found is not None and found.bytes == 16 * KIB + 256


@pytest.mark.parametrize("name", ["aten::sort", "aten::bernoulli_", "mine::fused", "CompiledFunction", "aten::mm"])
def test_what_cannot_be_known_is_unknown(name: str) -> None:
    assert cost(name, read_inputs(arguments([("float", [64, 3]), ("float", [64, 3])]), None)) is None
    assert not moves_no_data(name, calls_others=False)


def test_a_product_with_a_sparse_matrix_is_unknown(tmp_path: Path) -> None:
    sparse, full = torch.eye(64).to_sparse_coo(), torch.rand(64, 4)
    _, found = traced(tmp_path, lambda: torch.sparse.mm(sparse, full))
    assert flops(found) == 0
    _, found = traced(tmp_path, lambda: torch.mm(full.T, full))
    assert flops(found) == 2 * 4 * 64 * 4


def test_compiled_code_is_no_dispatch() -> None:
    assert moves_no_data("ConvolutionBackward0", calls_others=True)
    assert moves_no_data("aten::linear", calls_others=True)
    assert not moves_no_data("CompiledFunctionBackward", calls_others=True)
    assert not moves_no_data("mine::layer", calls_others=True)


DAMAGED = """
    mm convolution convolution_backward index_select _scaled_dot_product_flash_attention_for_cpu mkldnn_rnn_layer
    _cudnn_rnn cat add embedding_dense_backward
"""


@pytest.mark.parametrize("name", DAMAGED.split())
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"Input Dims": 3, "Input type": "float"},
        {"Input Dims": [[-1, 2], [1 << 70, 2]], "Input type": ["float", "float"]},
        {"Input Dims": [["a"], [[1]]], "Input type": ["float", "TensorList"]},
        {"Input Dims": [[1 << 45, 1 << 45], [3]], "Input type": ["float", "float"]},
        {"Input Dims": [[]] * 12, "Input type": ["Scalar"] * 12, "Concrete Inputs": ["[" * 40] * 12},
        {"Input Dims": [[2, 3, 4]] * 12, "Input type": ["float"] * 3 + ["Scalar"] * 9, "Concrete Inputs": ["x", 3]},
    ],
)
def test_damaged_inputs_are_unknown(name: str, given: dict[str, Any]) -> None:
    found = cost(f"aten::{name}", read_inputs(given, "float32"))
    assert found is None or found.bytes >= 0
