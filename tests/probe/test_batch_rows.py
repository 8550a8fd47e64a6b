"""What a module gives goes into bytes of each sample and back."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from flatout.probe.injections.batch_rows import Form, NotByRows, close  # noqa: E402
from flatout.probe.module_passes import tensors_in  # noqa: E402


def there_and_back(made: Any, count: int = 4) -> Any:
    form = Form(made, count, [])
    return form.joined(list(form.rows(made)))


@pytest.mark.parametrize(
    "made",
    [
        torch.randn(4, 3, 5, 6).contiguous(memory_format=torch.channels_last),
        torch.randn(4, 7).to(torch.bfloat16),
        torch.randn(7, 4).t(),
        torch.arange(4),
        torch.tensor([True, False, True, True]),
        torch.empty(4, 0),
        [torch.randn(4, 2), (torch.randn(4), None)],
        {"a": torch.randn(4, 1, 2), "b": {"c": torch.arange(4)}},
    ],
)
def test_values_types_and_memory_format_stay(made: Any) -> None:
    found = there_and_back(made)
    assert type(found) is type(made)
    for one, other in zip(tensors_in(made), tensors_in(found), strict=True):
        assert torch.equal(one, other) and one.dtype == other.dtype
        if one.dim() == 4:
            assert other.is_contiguous(memory_format=torch.channels_last) and not other.is_contiguous()


@pytest.mark.parametrize("made", [torch.tensor(1.0), torch.randn(3, 2), {1, 2}, torch.randn(4, requires_grad=True)])
def test_what_has_no_row_for_each_sample_is_refused(made: Any) -> None:
    with pytest.raises(NotByRows):
        Form(made, 4, [])


def test_samples_of_different_shapes_are_not_joined() -> None:
    short, long = torch.randn(1, 3), torch.randn(1, 5)
    form = Form(short, 1, [])
    assert form.joined([*form.rows(short), *form.rows(long)]) is None
    assert not close(short, long, half=False)


def test_16_bits_may_differ_by_more() -> None:
    one = torch.tensor([1.0, 2.0])
    assert close(one, one + 1e-5, half=False) and not close(one, one + 1e-2, half=False)
    assert close(one, one + 1e-2, half=True)
    assert not close(torch.tensor([1]), torch.tensor([2]), half=True)
