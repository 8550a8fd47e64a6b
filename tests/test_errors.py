"""The errors that flatout raises on purpose: one tree, one file, one exit code each."""

import ast
import pickle
from pathlib import Path

import pytest

import flatout
from flatout import cli, errors
from flatout.errors import CommandError, FlatoutError, RecordError, UnreadableImage, UsageError

SOURCES = Path(flatout.__file__).parent
EXIT_CODES = {
    "FlatoutError": 2,
    "UsageError": 2,
    "DiskFull": 2,
    "UnpackableName": 2,
    "RecordingElsewhere": 2,
    "RecordError": 2,
    "AmbiguousRun": 2,
    "DamagedCheckpoint": 2,
    "CommandError": 2,  # unless it carries that of the command
    "StagingFailed": 1,
    "TrainingFailed": 1,
    "UnreadableImage": 1,
}


def test_every_error_has_its_exit_code() -> None:
    kinds = {
        name: kind
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.FlatoutError)
    }
    assert {name: kind.exit_code for name, kind in kinds.items()} == EXIT_CODES


@pytest.mark.parametrize("name", EXIT_CODES)
def test_the_command_line_ends_with_the_exit_code_of_the_error(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kind = getattr(errors, name)
    error = kind("here", "broken") if kind is UnreadableImage else kind("here: broken")

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("flatout.record.list_runs", fail)
    assert cli.main(["runs"]) == EXIT_CODES[name]
    assert capsys.readouterr().err.startswith("flatout: here: broken")


def test_no_error_of_the_tree_stands_in_another_file() -> None:
    elsewhere = [
        f"{path.relative_to(SOURCES)}: {node.name}"
        for path in sorted(SOURCES.rglob("*.py"))
        if path.name != "errors.py"
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ClassDef)
        and any(isinstance(base, ast.Name) and base.id in EXIT_CODES for base in node.bases)
    ]
    assert not elsewhere


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


def test_an_unreadable_image_crosses_processes_with_its_parts() -> None:
    error = pickle.loads(pickle.dumps(UnreadableImage("a.jpg", "cut off")))
    assert (error.where, error.reason) == ("a.jpg", "cut off")
