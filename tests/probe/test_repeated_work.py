"""Operators of a step that run again with the same inputs, and what only looks like that."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn.utils import parametrizations, parametrize  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from flatout.probe.inspection import repeated_work, value_numbers  # noqa: E402
from flatout.probe.inspection.repeated_work import RepeatedWork  # noqa: E402
from tests.probe.watched_steps import watched  # noqa: E402

WEIGHT = torch.rand(8, 8)


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], dict[str, Any]]:
    saved: dict[str, Any] = {}
    monkeypatch.setattr(repeated_work.REC, "save_process", lambda **found: saved.update(found))
    monkeypatch.setattr(repeated_work.REC, "training_thread", threading.get_ident())
    monkeypatch.setattr(repeated_work, "MOST_LINES", 100)  # a slow first call of another operator crowds none out

    def look(step: Callable[[], Any], steps: int = 1) -> dict[str, Any]:
        """The operators that ran again in the last of these steps, with their calls."""
        mode = RepeatedWork()
        for _ in range(steps):
            mode.begin()
            step()
            mode.end(True)
        found = saved.pop("repeated_work")
        found["again"] = {row[4]: row[6] for row in found["lines"]}
        return dict(found)

    return look


def drawn() -> None:
    for _ in range(4):
        torch.randn(8, 8) @ WEIGHT


def of_numpy() -> None:
    for number in range(4):
        torch.from_numpy(np.full((8, 8), number, "f4")) @ WEIGHT


def written_by_numpy() -> None:
    values = np.zeros((8, 8), "f4")
    tensor = torch.from_numpy(values)
    for _ in range(4):
        values += 1
        tensor @ WEIGHT


def in_place() -> None:
    values = torch.zeros(8, 8)
    for _ in range(4):
        values.add_(1)
        values @ WEIGHT


def scalars() -> None:
    for number in range(4):
        torch.tensor([float(number)] * 8) @ WEIGHT
        WEIGHT * number


def updated() -> None:
    layer = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    for _ in range(3):
        layer(WEIGHT).sum().backward()
        optimizer.step()


def dropped_out() -> None:
    for _ in range(3):
        nn.functional.dropout(WEIGHT, 0.5) @ WEIGHT


@pytest.mark.parametrize("step", [drawn, of_numpy, written_by_numpy, in_place, scalars, dropped_out, updated])
def test_other_values_in_the_same_memory_are_no_repeats(
    looked_at: Callable[..., dict[str, Any]], step: Callable[[], None]
) -> None:
    found = looked_at(step)
    assert not {"mm", "mul", "addmm"} & set(found["again"]) and found["operators"]


def test_a_model_that_is_called_again_for_a_metric(looked_at: Callable[..., dict[str, Any]]) -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2))
    pictures = torch.rand(5, 3, 8, 8)

    def step() -> None:
        net(pictures).sum().backward()
        repeated_work.leave()  # as after each backward pass, with the step not over
        with torch.no_grad():
            net(pictures).argmax(1)

    found = looked_at(step)
    assert {"convolution", "native_batch_norm", "relu", "addmm"} <= set(found["again"])
    assert 0 < found["again_ns"] < found["ns"] and found["behind_ns"] == 0
    file, line, function, reason, *_ = found["lines"][0]
    assert file == __file__ and line == step.__code__.co_firstlineno + 4 and (function, reason) == ("step", "")


EDGES = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])


def normalised() -> torch.Tensor:
    matrix = torch.sparse_coo_tensor(EDGES, torch.ones(4), (8, 8)).coalesce()
    degree = torch.zeros(8).index_add_(0, matrix.indices()[0], matrix.values())
    return torch.sparse_coo_tensor(matrix.indices(), degree.rsqrt()[matrix.indices()[0]], (8, 8))


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
def test_a_sparse_matrix_that_each_layer_makes_anew(looked_at: Callable[..., dict[str, Any]]) -> None:
    found = looked_at(lambda: [torch.sparse.mm(normalised(), torch.randn(8, 8)) for _ in range(3)])
    assert found["again"]["_coalesce"] == found["again"]["rsqrt"] == 2 and "_sparse_mm" not in found["again"]


def test_what_does_not_change_from_step_to_step_counts_as_a_whole(looked_at: Callable[..., dict[str, Any]]) -> None:
    layer = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)

    def step() -> None:
        table = torch.linalg.eigvalsh(WEIGHT)  # of what never changes
        state = torch.zeros(8, 8)
        state += layer(torch.randn(8, 8) * table)
        optimizer.zero_grad()
        (layer(WEIGHT) + state).sum().backward()
        optimizer.step()

    assert not looked_at(step)["again"]
    second = looked_at(step, 2)["again"]
    assert any("eigh" in name for name in second)
    assert not {"addmm", "mul", "zeros", "add_", "fill_"} & set(second)


def changed_as_data() -> Callable[[], Any]:
    weight = nn.Parameter(torch.rand(8, 8))
    nn.init.normal_(weight)  # which counts as a version, and what follows does not

    def step() -> None:
        torch.mm(WEIGHT, weight.detach())
        weight.data.mul_(0.9)

    return step


def changed_behind_torch() -> Callable[[], Any]:
    table = torch.rand(8, 8)

    def step() -> None:
        torch.mm(WEIGHT, table)
        ctypes.memset(table.data_ptr(), 7, 16)

    return step


def averaged() -> Callable[[], Any]:
    student, teacher = nn.Linear(8, 8), nn.Linear(8, 8).requires_grad_(False)

    def step() -> None:
        teacher(WEIGHT)
        for mine, theirs in zip(teacher.parameters(), student.parameters(), strict=True):
            mine.data.mul_(0.9).add_(theirs.data, alpha=0.1)

    return step


@pytest.mark.parametrize("make", [changed_as_data, changed_behind_torch, averaged])
def test_what_changes_without_a_new_version_is_another_value(
    looked_at: Callable[..., dict[str, Any]], make: Callable[[], Callable[[], Any]]
) -> None:
    assert not looked_at(make(), 2)["again"]


def test_a_change_by_an_operator_on_lists_counts_within_a_step(looked_at: Callable[..., dict[str, Any]]) -> None:
    weights = [nn.Parameter(torch.rand(8, 8)) for _ in range(2)]

    def step() -> None:
        for _ in range(3):
            torch.mm(WEIGHT, weights[0].data)
            with torch.no_grad():
                torch._foreach_mul_(weights, 0.9)

    assert "mm" not in looked_at(step)["again"]


def test_digests_are_of_all_bytes() -> None:
    values = torch.arange(12, dtype=torch.uint8)
    assert value_numbers._digest(values) == value_numbers._digest(values.clone())
    for place in (0, 5, 11):
        changed = values.clone()
        changed[place] += 1
        assert value_numbers._digest(values) != value_numbers._digest(changed)
    assert value_numbers._digest(values[[1, 0, *range(2, 12)]]) != value_numbers._digest(values)
    odd = values[1:]  # words cannot begin there
    assert value_numbers._digest(odd) != value_numbers._digest(odd)


def test_a_change_through_data_counts_within_a_step(looked_at: Callable[..., dict[str, Any]]) -> None:
    weight = nn.Parameter(torch.rand(8, 8))
    nn.init.normal_(weight)

    def step() -> None:
        for _ in range(3):
            torch.mm(WEIGHT, weight.detach())
            weight.data.mul_(0.9)

    assert not {"mm", "mul_"} & set(looked_at(step)["again"])


def test_a_parametrized_weight_and_what_caches_it(looked_at: Callable[..., dict[str, Any]]) -> None:
    layer = parametrizations.orthogonal(nn.Linear(8, 8), orthogonal_map="matrix_exp")

    def step() -> None:
        values = WEIGHT
        for _ in range(5):
            values = torch.tanh(layer(values))
        values.sum().backward()

    found = looked_at(step)
    assert found["again"]["linalg_matrix_exp"] == 4 and found["behind_ns"] > 0
    assert {row[3] for row in found["lines"] if row[4] == "linalg_matrix_exp"} == {"parametrization"}

    def cached() -> None:
        with parametrize.cached():
            step()

    assert "linalg_matrix_exp" not in looked_at(cached)["again"]


def test_a_derivative_that_is_asked_for_again(looked_at: Callable[..., dict[str, Any]]) -> None:
    net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
    points = torch.rand(16, 2, requires_grad=True)

    def step() -> None:
        values = net(points)
        for axis in range(2):
            torch.autograd.grad(values.sum(), points, create_graph=True)[0][:, axis]

    found = looked_at(step)
    assert found["again"]["tanh_backward"] == 1
    assert {row[3] for row in found["lines"]} == {"gradient", ""}


def test_a_backward_pass_is_needed_where_the_earlier_call_has_none(looked_at: Callable[..., dict[str, Any]]) -> None:
    layer, graph = nn.Linear(8, 8), torch.rand(64, 64)
    points = torch.rand(64, 8)

    def step(grad: bool, both: bool) -> None:
        with torch.set_grad_enabled(grad):
            evaluated = graph @ layer(points)
        loss = (graph @ layer(points)).sum()
        (loss + evaluated.sum() if both else loss).backward()

    for grad in (True, False):
        found = looked_at(lambda grad=grad: step(grad, False))
        assert {"addmm", "mm"} <= set(found["again"]) and found["behind_ns"] == 0
    assert looked_at(lambda: step(True, True))["behind_ns"] > 0


def test_checkpointing_computes_again_on_purpose(looked_at: Callable[..., dict[str, Any]]) -> None:
    layer, values = nn.Linear(8, 8), torch.rand(4, 8, requires_grad=True)
    found = looked_at(lambda: checkpoint(lambda x: layer(x).tanh(), values, use_reentrant=False).sum().backward())
    assert "addmm" not in found["again"] and found["on_purpose_ns"] > 0


@pytest.mark.parametrize("reentrant", [False, True])
def test_what_checkpointing_computes_again_counts_behind_random_numbers_too(
    looked_at: Callable[..., dict[str, Any]], reentrant: bool
) -> None:
    layer, values = nn.Linear(8, 8), torch.rand(4, 8, requires_grad=True)

    def dropped(x: torch.Tensor) -> torch.Tensor:
        for _ in range(20):
            x = layer(nn.functional.dropout(x)).tanh()
        return x

    found = looked_at(lambda: checkpoint(dropped, values, use_reentrant=reentrant).sum().backward())
    assert "addmm" not in found["again"] and found["again_ns"] == 0
    assert 0 < found["on_purpose_ns"] < found["ns"]
    gradients = looked_at(lambda: torch.autograd.grad(dropped(values).sum(), values, create_graph=True))
    assert gradients["on_purpose_ns"] == 0


def test_a_sparse_tensor_and_a_mode_of_the_users_do_no_harm(looked_at: Callable[..., dict[str, Any]]) -> None:
    class Own(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    own, table = Own(), nn.Embedding(20, 4, sparse=True)

    def step() -> None:
        table(torch.tensor([1, 2])).sum().backward()
        own.__enter__()  # and leaves after this one has

    before = torch._C._len_torch_dispatch_stack()
    assert looked_at(step)["operators"]
    own.__exit__(None, None, None)
    assert torch.equal(WEIGHT @ WEIGHT, WEIGHT.mm(WEIGHT))
    repeated_work.leave()
    assert torch._C._len_torch_dispatch_stack() == before


def test_a_step_that_ends_in_inference_mode_leaves_every_operator_as_it_was(
    looked_at: Callable[..., dict[str, Any]],
) -> None:
    mode = RepeatedWork()
    mode.begin()
    with torch.inference_mode():
        mode.end(False)  # such as at the first batch of a validation
        assert torch.equal(WEIGHT @ WEIGHT, WEIGHT.mm(WEIGHT))
        mode.begin()
    with torch.profiler.record_function("an operator without a tensor"):
        assert torch.equal(WEIGHT @ WEIGHT, WEIGHT.mm(WEIGHT))
    repeated_work.leave()
    assert torch._C._len_torch_dispatch_stack() == 0
    assert looked_at(lambda: WEIGHT @ WEIGHT)["operators"] == 1


def test_a_process_that_is_forked_in_a_step_only_runs_its_operators(looked_at: Callable[..., dict[str, Any]]) -> None:
    mode = RepeatedWork()
    mode.begin()
    child = os.fork()
    if not child:
        WEIGHT @ WEIGHT
        os._exit(len(mode._calls))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    WEIGHT @ WEIGHT
    assert len(mode._calls) == 1
    mode.end(False)


def test_a_step_inside_a_mode_of_the_users_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    saved: list[Any] = []
    monkeypatch.setattr(repeated_work.REC, "save_process", lambda **found: saved.append(found["repeated_work"]))

    class Own(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    mode = RepeatedWork()
    with Own():
        mode.begin()
        WEIGHT @ WEIGHT
    assert torch._C._len_torch_dispatch_stack() == 0
    mode.end(True)
    assert saved == [{"skipped": "a TorchDispatchMode of the program's is on between its steps"}]


def test_nested_tensors_are_values_of_their_own(looked_at: Callable[..., dict[str, Any]]) -> None:
    if not hasattr(torch, "jagged"):
        pytest.skip("this torch has no nested tensors with lengths")
    layer = nn.Linear(8, 4)

    def step() -> None:
        rows = torch.nested.nested_tensor([torch.randn(3, 8), torch.randn(5, 8)], layout=torch.jagged)
        layer(rows).values().pow(2).mean().backward()

    assert looked_at(step)["operators"] and not looked_at(step)["again_ns"]


def test_a_very_long_step_is_seen_in_part(
    looked_at: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repeated_work, "MOST_OPERATORS", 5)
    found = looked_at(lambda: [WEIGHT @ WEIGHT for _ in range(9)])
    assert (found["operators"], found["cut"], found["again"]) == (5, True, {"mm": 4})
    assert looked_at(lambda: WEIGHT @ WEIGHT)["cut"] is False


def test_a_step_that_is_not_whole_counts_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    saved: list[Any] = []
    monkeypatch.setattr(repeated_work.REC, "save_process", lambda **found: saved.append(found["repeated_work"]))
    mode = RepeatedWork()
    for whole in (False, True):
        mode.begin()
        WEIGHT @ WEIGHT
        mode.end(whole)
    (found,) = saved
    assert found["operators"] == 1 and found["again_ns"] == 0


def test_operators_of_a_device_are_timed_by_its_events(
    looked_at: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device's clock is a stand-in: each event is 2 ms after the one before."""
    clock = iter(range(1_000))

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            self.at_ms = 2.0 * next(clock)

        def elapsed_time(self, later: Any) -> float:
            return float(later.at_ms - self.at_ms)

    waits: list[bool] = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waits.append(True))
    found = looked_at(lambda: [WEIGHT @ WEIGHT for _ in range(3)])
    assert (found["ns"], found["again_ns"], waits) == (6_000_000, 4_000_000, [True])


def test_backward_passes_belong_to_what_ran_again(looked_at: Callable[..., dict[str, Any]]) -> None:
    layer, other = nn.Linear(64, 64), nn.Linear(64, 64)
    values = torch.rand(512, 64)

    def step(times: int) -> None:
        calls = [torch.tanh(layer(values)) * number for number in range(times)]
        (sum(calls) + other(values)).sum().backward()

    assert looked_at(lambda: step(1))["behind_ns"] == 0
    found = [looked_at(lambda: step(9)) for _ in range(5)]
    # Eight of nine calls ran again; both passes of each are alike. The best of five are least disturbed.
    again, behind, whole = (min(one[key] for one in found) for key in ("again_ns", "behind_ns", "ns"))
    assert found[0]["again"]["addmm"] == 8 and 0.3 * again < behind < whole


def test_the_targets_of_a_loss_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    saved: dict[str, Any] = {}
    monkeypatch.setattr(repeated_work.REC, "save_process", lambda **found: saved.update(found))
    monkeypatch.setattr(repeated_work.REC, "training_thread", threading.get_ident())
    targets = torch.tensor([3, -100, 7, -100, -100])
    mode = RepeatedWork()
    mode.begin()
    values = nn.Linear(6, 20)(nn.Embedding(20, 6)(torch.tensor([1, 4, 9, 2, 2])))
    nn.functional.cross_entropy(values, targets).backward()
    nn.functional.cross_entropy(values[:, :4], targets.clamp(-100, 3))  # a smaller one beside it
    mode.end(True)
    assert saved["loss_targets"] == {"classes": 20, "positions": 5, "ignored": 3, "highest": 9, "looked_up": 5}


def masked(probabilities: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return -(probabilities.gather(1, targets[:, None])[:, 0] * (targets != 0)).sum()


def smoothed(probabilities: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    wanted = torch.full_like(probabilities, 0.1).scatter(1, targets[:, None], 0.9)
    wanted = wanted.masked_fill((targets == 0)[:, None], 0.0)
    return nn.functional.kl_div(probabilities, wanted, reduction="sum")


def hardest(probabilities: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return -probabilities.gather(1, targets[:, None])[:, 0].topk(2).values.sum()


def sure(probabilities: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    certain = torch.ne(probabilities.detach().exp().amax(1) > 0.2, False)
    return -(probabilities.gather(1, targets[:, None])[:, 0] * certain).sum()


def in_some_steps(probabilities: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return masked(probabilities, targets) + masked(probabilities, targets + 1)


@pytest.mark.parametrize(
    ("loss", "ignored"), [(masked, 3), (smoothed, 3), (hardest, None), (sure, None), (in_some_steps, None)]
)
def test_positions_that_padding_leaves_without_a_gradient_count_as_ignored(
    monkeypatch: pytest.MonkeyPatch, loss: Callable[..., torch.Tensor], ignored: int | None
) -> None:
    saved: dict[str, Any] = {}
    monkeypatch.setattr(repeated_work.REC, "save_process", lambda **found: saved.update(found))
    monkeypatch.setattr(repeated_work.REC, "training_thread", threading.get_ident())
    mode = RepeatedWork()
    mode.begin()
    values = nn.Linear(6, 20)(torch.rand(5, 6))
    loss(values.log_softmax(1), torch.tensor([3, 0, 7, 0, 0])).backward()
    mode.end(True)
    found = saved.get("loss_targets")
    assert found == (ignored and {"classes": 20, "positions": 5, "ignored": ignored, "highest": 19, "looked_up": 0})


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_quantized_tensors_are_let_through(monkeypatch: pytest.MonkeyPatch) -> None:
    quantized = torch.quantize_per_tensor(torch.randn(64, 8), 0.1, 0, torch.quint8)
    weight = torch.randn(8, 2, requires_grad=True)
    assert watched(monkeypatch, lambda: (quantized.dequantize() @ weight).sum())["repeated_work"]["operators"] > 0
