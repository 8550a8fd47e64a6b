"""Objects that the probe puts in the place of a library's own behave like them."""

import copy
import pickle
import types
from pathlib import Path
from typing import Any

import pytest

from flatout.probe import after_import, wrap
from flatout.probe.experiments.step_timers import Timed
from flatout.probe.hooks import fetching, workers
from flatout.probe.injections import c_readers


class Real:
    kept = 5

    def dumps(self, value: object) -> bytes:
        return pickle.dumps(value)


@pytest.mark.parametrize(
    "made",
    [
        lambda real: after_import._Loader(real, None),
        lambda real: workers._IndexQueue(real),
        lambda real: workers._DataQueue(real),
        lambda real: workers._TimedPickler(real, 0),
    ],
    ids=["module loader", "index queue", "data queue", "pickler"],
)
def test_what_a_stand_in_lacks_is_asked_of_the_real_object(made: Any) -> None:
    stand_in = made(Real())
    assert stand_in.kept == 5
    with pytest.raises(AttributeError):
        stand_in.gone  # noqa: B018


def test_timed_indices_are_as_many_as_the_indices() -> None:
    assert len(fetching._TimedIndices([3, 1, 2])) == 3


def test_a_timed_hook_has_the_attributes_of_the_hook_and_pickles_as_it() -> None:
    timed = Timed(len, types.SimpleNamespace(ns=0, calls=0))
    assert timed.__name__ == "len"
    assert pickle.loads(pickle.dumps(timed)) is len and copy.copy(timed) is len


def test_torch_2_1_is_told_to_fold_the_test_for_compilation() -> None:
    allowed = types.SimpleNamespace(_allowed_function_ids=set())
    wrap.let_compiler_fold(allowed)
    assert allowed._allowed_function_ids == {id(wrap.is_compiling)}


def test_several_files_are_there_if_each_is(tmp_path: Path) -> None:
    there = tmp_path / "a"
    there.write_text("")
    assert c_readers._exist(str(there)) and c_readers._exist([str(there), str(there)])
    assert not c_readers._exist([str(there), str(tmp_path / "b")])
