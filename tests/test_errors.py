import pickle

import pytest

import flatout
from flatout.errors import CommandError, FlatoutError, RecordError, UsageError


def test_the_package_offers_its_errors_its_version_and_watch_and_nothing_else() -> None:
    assert sorted(flatout.__all__) == [
        "CommandError",
        "FlatoutError",
        "RecordError",
        "UsageError",
        "__version__",
        "watch",
    ]
    assert all(hasattr(flatout, name) for name in flatout.__all__)
    assert flatout.__version__[0].isdigit()


@pytest.mark.parametrize("kind", [UsageError, RecordError, CommandError])
def test_every_error_is_a_flatout_error_with_exit_code_2_unless_told_otherwise(kind: type[FlatoutError]) -> None:
    error = kind("recipe.yaml: training.workers: -1 is not allowed; give 0 or more")
    assert isinstance(error, FlatoutError)
    assert error.exit_code == 2
    assert str(error).startswith("recipe.yaml")


def test_a_command_error_carries_the_exit_code_of_the_command_across_processes() -> None:
    error = pickle.loads(pickle.dumps(CommandError("train.py was killed", exit_code=137)))
    assert (error.exit_code, str(error)) == (137, "train.py was killed")
    assert CommandError.exit_code == 2


@pytest.mark.parametrize("code", [0, -9, 256])
def test_a_command_error_refuses_a_code_that_no_failed_process_has(code: int) -> None:
    with pytest.raises(AssertionError, match=str(code)):
        CommandError("failed", exit_code=code)
