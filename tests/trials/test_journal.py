"""A killed fix goes on from the trials already made."""

import shlex
from pathlib import Path

import pytest

from flatout.compare.ratio import Ratio
from flatout.errors import UsageError
from flatout.results import Gain
from flatout.trials.journal import begin, remove_unmeasured, resume
from flatout.trials.result import DROPPED, KEPT, Trial

COMMAND = ["python", "train.py"]


def tried(outcome: str, **settings: int) -> Trial:
    return Trial(
        "num_workers", "raise it", "identical", settings, Gain(2.0, 1.5, 2.5), outcome, "", Ratio(1.9, 1.8, 2.0, 2)
    )


def test_trials_are_read_back(tmp_path: Path) -> None:
    journal = begin(tmp_path, COMMAND)
    journal.write("trial", trial=tried(KEPT, num_workers=4).to_dict())
    journal.write("trial", trial=tried(DROPPED, prefetch_factor=8).to_dict())
    with (journal.folder / "journal.jsonl").open("a") as file:
        file.write('{"kind": "trial", "trial": {"reme')  # killed in the middle of a line
    again = resume(tmp_path, COMMAND)
    progress = again.progress()
    assert [trial.outcome for trial in progress.tried] == [KEPT, DROPPED]
    assert progress.settings == {"num_workers": 4}
    assert progress.tried[0].ratio == Ratio(1.9, 1.8, 2.0, 2)
    again.write("trial", trial=tried(KEPT, batch_size=8).to_dict())
    assert again.progress().settings == {"num_workers": 4, "batch_size": 8}


def test_only_an_unfinished_fix_of_this_command_is_resumed(tmp_path: Path) -> None:
    journal = begin(tmp_path, COMMAND)
    with pytest.raises(UsageError, match="no fix of this command") as refused:
        resume(tmp_path, ["python", "other.py"])
    assert str(refused.value).endswith(f"or give the one that was killed: {shlex.join(COMMAND)}")
    journal.write("end", why="done")
    with pytest.raises(UsageError, match="had ended"):
        resume(tmp_path, COMMAND)
    for command in (["python", "other.py"], []):
        with pytest.raises(
            UsageError, match=r"leave out --resume, or name the folder where it began with --fixes-dir$"
        ):
            resume(tmp_path, command)
    later = begin(tmp_path, ["python", "later.py"])
    begin(tmp_path, ["python", "ended.py"]).write("end", why="done")
    assert resume(tmp_path, []).folder == later.folder and later.command == ("python", "later.py")


def test_the_folder_of_a_fix_that_measured_nothing_is_removed(tmp_path: Path) -> None:
    measured, nothing = begin(tmp_path / "fixes", ["a"]), begin(tmp_path / "fixes", ["b"])
    measured.write("look", rate=1.0)
    remove_unmeasured(measured)
    remove_unmeasured(nothing)
    assert list((tmp_path / "fixes").iterdir()) == [measured.folder]
    remove_unmeasured(begin(tmp_path / "others", ["c"]))
    assert not (tmp_path / "others").exists()


def test_a_folder_that_cannot_be_made_is_named_with_its_option() -> None:
    with pytest.raises(UsageError, match=r"--fixes-dir /proc/x: cannot be written .*: name another folder"):
        begin(Path("/proc/x"), ["python", "train.py"])
