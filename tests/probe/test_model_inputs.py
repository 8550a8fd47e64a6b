"""How many samples a model is given where no DataLoader says it."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from flatout.probe import events  # noqa: E402
from flatout.probe.hooks import modules  # noqa: E402
from flatout.probe.hooks.modules import _has_batch, _mode, _samples  # noqa: E402


@pytest.mark.parametrize(
    ("shape", "dtype", "samples"),
    [((4,), "float32", 1), ((32,), "int64", 32), ((16, 4), "float32", 16), ((), "float32", 1)],
)
def test_a_vector_of_features_is_one_sample_and_one_of_indices_a_batch(
    shape: tuple[int, ...], dtype: str, samples: int
) -> None:
    given = (torch.zeros(shape, dtype=getattr(torch, dtype)),)
    net = torch.nn.Linear(4, 2)
    assert _samples(net, given) == samples
    assert _samples(net.eval(), given) is None


def test_a_batch_of_a_loader_feeds_the_steps_until_the_next_backward_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modules, "_latest", [0, 0])
    fed = []
    for batches, backwards in ((0, 0), (0, 5), (1, 5), (1, 5), (1, 6), (30, 6), (30, 7), (31, 7)):
        monkeypatch.setattr(modules.REC, "iterations", batches)
        monkeypatch.setattr(modules.REC, "backwards", backwards)
        fed.append(bool(_has_batch()))
    assert fed == [False, False, True, True, False, True, False, True]


def test_a_model_that_evaluates_after_it_was_trained_is_not_another_one_of_its_class() -> None:
    student, teacher = torch.nn.Linear(4, 2), torch.nn.Linear(4, 2)
    assert _mode(student, True) == events.TRAINS
    assert [_mode(model.eval(), False) for model in (student, teacher)] == [events.HAS_TRAINED, events.EVALUATES]
    assert _mode(teacher.train(), False) == events.TRAINS
    assert _mode(teacher.eval(), True) == events.EVALUATES  # without gradients it was not trained
