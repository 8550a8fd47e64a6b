"""Going on: from a whole checkpoint of the same recipe and the same images, to what it would have become."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from flatout.commands.train import resume_command
from flatout.errors import UsageError
from flatout.recipes import fitting, image_pipeline
from flatout.recipes.checkpoints import read_checkpoint
from flatout.recipes.datasets import open_data, open_test, save_classes
from flatout.recipes.fitting import fit
from flatout.recipes.folds import train_folds
from flatout.recipes.output_folder import check_output, remove_unfinished
from flatout.recipes.predicting import find_trained, predict
from flatout.recipes.resuming import _checked
from flatout.recipes.training import train_recipe
from tests.loader.photographs import make_class_folders
from tests.recipes.small_training import losses, quiet, recipe

SETTINGS = ("training.epochs=3", "checkpoints.keep=3", "checkpoints.metric=val/loss", "training.ema_decay=0.5")


@pytest.fixture(scope="module")
def trained(photographs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    wanted = recipe(photographs, *SETTINGS)
    folder = tmp_path_factory.mktemp("trained") / "run"
    fit(wanted, open_data(wanted), folder, report=quiet, show_progress=False)
    return folder


@pytest.fixture
def folder(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


@pytest.fixture
def no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> None:
        raise AssertionError("a model is made")

    monkeypatch.setattr(image_pipeline, "build_model", refuse)


def test_a_damaged_last_checkpoint_falls_back_to_the_whole_one_before_it(
    photographs: Path, folder: Path, trained: Path
) -> None:
    last = folder / "last.ckpt"
    last.write_bytes(last.read_bytes()[:1000])
    (folder / "best-002.ckpt").write_bytes(b"")
    said: list[str] = []
    wanted = recipe(photographs, *SETTINGS)
    done = fit(wanted, open_data(wanted), folder, resume=True, report=said.append, show_progress=False)
    (line,) = (line for line in said if "last.ckpt: is no whole checkpoint" in line)
    assert "resumes from " in line and "best-001.ckpt: " in line
    assert len(done.records) == 3 and losses(folder) == losses(trained)


def test_keys_that_are_newer_than_a_checkpoint_had_their_defaults(photographs: Path, folder: Path) -> None:
    path = folder / "last.ckpt"
    checkpoint = read_checkpoint(path)
    for section, key in (("training", "clip_mode"), ("training", "splits"), ("schedule", "cycles")):
        del checkpoint["flatout"]["recipe"][section][key]
    wanted = recipe(photographs, *SETTINGS)
    assert len(_checked(path, checkpoint, wanted, open_data(wanted), ()).records) == 3
    other = recipe(photographs, *SETTINGS, "schedule.cycles=2")
    with pytest.raises(UsageError, match=r"schedule\.cycles was 1 and is 2 now"):
        _checked(path, checkpoint, other, open_data(other), ())


def test_where_no_checkpoint_is_whole_a_resume_is_one_line(photographs: Path, folder: Path) -> None:
    for path in folder.glob("*.ckpt"):
        path.write_bytes(b"")
    wanted = recipe(photographs, *SETTINGS)
    with pytest.raises(UsageError, match=r"--resume: .*last\.ckpt: is empty, and no other is whole: start anew"):
        fit(wanted, open_data(wanted), folder, resume=True, report=quiet, show_progress=False)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("training.batch_size=8", r"training\.batch_size was 16 and is 8 now.*--allow-change training\.batch_size"),
        ("images.size=48", r"images\.size was 32 and is 48 now"),
        ("training.seed=7", r"training\.seed was 0 and is 7 now"),
        ("training.epochs=9", r"training\.epochs was 3 and is 9 now"),
        ("training.early_stopping={patience: 2}", r"early_stopping was null and is .*allow-change training\.early_st"),
        ("optimizer.name=sgd", r'optimizer\.name was "adamw" and is "sgd" now: this cannot change'),
        ("model.in_chans=1", r"model\.in_chans was 3 and is 1 now: this cannot change"),
        ("data.classes=2", "a checkpoint of other classes"),
    ],
)
def test_a_resume_by_another_recipe_is_refused_with_what_differs(
    photographs: Path, trained: Path, more: str, said: str, no_training: None
) -> None:
    other = recipe(photographs, *SETTINGS, more)
    with pytest.raises(UsageError, match=said):
        fit(other, open_data(other), trained, resume=True, report=quiet, show_progress=False)


def test_a_resume_on_other_images_is_refused(trained: Path, tmp_path: Path, no_training: None) -> None:
    other = recipe(make_class_folders(tmp_path / "more", 3, 27, 64), *SETTINGS)
    with pytest.raises(UsageError, match=r"trained on other images .* give the same --data, or allow it: .* data"):
        fit(other, open_data(other), trained, resume=True, report=quiet, show_progress=False)


def test_what_changes_no_result_may_differ_and_a_finished_training_is_not_trained_on(
    photographs: Path, folder: Path, tmp_path: Path, no_training: None
) -> None:
    copy = Path(shutil.copytree(photographs, tmp_path / "staged"))
    other = recipe(copy, *SETTINGS, "logging.every_steps=3", "images.prefetch_batches=2", "training.max_time=2h")
    said: list[str] = []
    done = fit(other, open_data(other), folder, resume=True, report=said.append, show_progress=False)
    assert len(done.records) == 3 and done.best is not None
    assert any("trained already: all 3 epochs" in line for line in said)


def test_a_training_killed_before_it_removed_a_surpassed_checkpoint_keeps_no_more_of_them(
    photographs: Path, folder: Path, no_training: None
) -> None:
    assert len(list(folder.glob("best-*.ckpt"))) == 3
    wanted = recipe(photographs, *SETTINGS, "checkpoints.keep=2")
    done = fit(wanted, open_data(wanted), folder, resume=True, report=quiet, show_progress=False)
    kept = {path.name for path in folder.glob("best-*.ckpt")}
    assert len(kept) == 2 and done.best is not None and done.best.name in kept


def test_an_allowed_change_goes_on(photographs: Path, folder: Path) -> None:
    longer = recipe(photographs, *SETTINGS, "training.epochs=4")
    allowed = ["training.epochs"]
    done = fit(longer, open_data(longer), folder, resume=True, allowed=allowed, report=quiet, show_progress=False)
    assert len(done.records) == 4


def test_early_stopping_stops_a_resumed_training_where_it_would_have_stopped(
    photographs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient = ("training.epochs=9", "training.early_stopping={patience: 1, min_delta: 1000}", *SETTINGS[1:])
    wanted = recipe(photographs, *patient)
    data = open_data(wanted)
    done = fit(wanted, data, tmp_path / "run", report=quiet, show_progress=False)
    assert len(done.records) == 2 and done.stopped is not None
    again = fit(wanted, data, tmp_path / "run", resume=True, report=quiet, show_progress=False)
    assert len(again.records) == 2 and again.stopped == done.stopped
    # Interrupted before the epoch that stops it.
    shutil.copy(tmp_path / "run/best-000.ckpt", tmp_path / "run/last.ckpt")
    later = fit(wanted, data, tmp_path / "run", resume=True, report=quiet, show_progress=False)
    assert len(later.records) == 2 and later.stopped == done.stopped


def test_finished_folds_are_not_trained_on(photographs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = recipe(photographs, "data.validation=null", "folds={count: 2}", "training.epochs=1")
    data = open_data(wanted)
    done = train_recipe(wanted, data, tmp_path / "run", report=quiet, show_progress=False)
    table = (tmp_path / "run/out_of_fold.csv").read_bytes()
    monkeypatch.setattr(fitting, "build_trainer", None)
    again = train_folds(wanted, data, tmp_path / "run", resume=True, report=quiet, show_progress=False)
    assert again.metrics == done.metrics and again.stopped is None
    assert (tmp_path / "run/out_of_fold.csv").read_bytes() == table


def test_checkpoints_of_two_folds_that_were_exchanged_are_refused(photographs: Path, tmp_path: Path) -> None:
    wanted = recipe(photographs, "folds={count: 2}", "data.validation=null", "training.epochs=1")
    data, run = open_data(wanted), tmp_path / "run"
    train_folds(wanted, data, run, report=quiet, show_progress=False)
    for name in ("last.ckpt", "best-000.ckpt"):
        (run / "fold-0" / name).rename(tmp_path / name)
        (run / "fold-1" / name).rename(run / "fold-0" / name)
        (tmp_path / name).rename(run / "fold-1" / name)
    with pytest.raises(UsageError, match="trained on other images"):
        train_folds(wanted, data, run, resume=True, report=quiet, show_progress=False)


def test_a_checkpoint_does_not_predict_for_the_classes_of_another(
    photographs: Path, folder: Path, tmp_path: Path
) -> None:
    save_classes(folder, ("x", "y", "z"))
    with pytest.raises(UsageError, match=r"was trained on other classes than classes\.json"):
        predict(find_trained(folder), open_test(str(photographs / "val")))


@pytest.mark.slow
def test_a_training_is_not_begun_over_another_or_over_somebodys_files(
    photographs: Path, trained: Path, tmp_path: Path, no_training: None
) -> None:
    wanted = recipe(photographs, *SETTINGS)
    with pytest.raises(UsageError, match="holds a training already: go on with --resume"):
        fit(wanted, open_data(wanted), trained, report=quiet, show_progress=False)
    with pytest.raises(UsageError, match="holds a training already"):
        check_output(trained, resume=False)
    check_output(trained, resume=True)
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"--output .*mine: is not empty: it holds notes\.txt: give a new folder"):
        check_output(mine, resume=False)
    with pytest.raises(UsageError, match=r"--output .*: Not a directory: give another folder"):
        check_output(mine / "notes.txt" / "run", resume=False)
    for name in (".last.ckpt.0123456789ab.tmp", ".steps.csv.0123456789ab.tmp", ".mine.tmp", "a.tmp"):
        (mine / name).write_text("")
    remove_unfinished(mine)
    assert sorted(os.listdir(mine)) == [".mine.tmp", "a.tmp", "notes.txt"]
    begun = tmp_path / "begun"  # ended before its first checkpoint
    begun.mkdir()
    (begun / "recipe.yaml").write_text("")
    check_output(begun, resume=False)
    check_output(tmp_path / "new/run", resume=False)
    assert (tmp_path / "new/run").is_dir()


def test_the_advice_after_an_interruption_holds_the_whole_command() -> None:
    options = {"--data": "/data/my images", "--epochs": 9, "--set": ["a.b=[1, 2]", "c.d=x"], "--json": True}
    said = resume_command("demo", Path("out"), {**options, "--max-time": None, "--quiet": False})
    assert said == (
        "flatout train demo --data '/data/my images' --epochs 9 --set 'a.b=[1, 2]' --set c.d=x --json "
        "--output out --resume"
    )


KILLS = max(int(os.environ.get("FLATOUT_TEST_KILLS", "100")), 30)
# Forks a warmed-up interpreter, since starting one takes longer than the training.
KILLED = """
import os, random, signal, sys, time
from pathlib import Path
import pytorch_lightning, timm.data, timm.optim, timm.scheduler, torch
import flatout.recipes.checkpoints as checkpoints
from flatout.recipes.datasets import open_data, open_test, save_classes
from flatout.recipes.output_folder import remove_unfinished
from flatout.recipes.predicting import find_trained, predict
from flatout.recipes.resuming import _checked
from flatout.recipes.training import train_recipe
from tests.recipes.small_training import losses, quiet, recipe

torch.set_num_threads(1)
photographs, root, kills = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
wanted = recipe(photographs, "training.epochs=10", "model.dropout=0.3", "training.mixup=0.2", "images.erasing=0.5",
                "training.ema_decay=0.9", "checkpoints.every_steps=1", "checkpoints.keep=2", "logging.every_steps=3")
data = open_data(wanted)
draw = random.Random(0)

def train(folder):
    child = os.fork()
    if child:
        return child
    try:
        resume = bool(checkpoints.kept_checkpoints(folder))
        train_recipe(wanted, data, folder, resume=resume, report=quiet, show_progress=False)
        os._exit(0)
    except BaseException:
        import traceback
        traceback.print_exc()
    os._exit(1)

def written(folder):
    last = folder / "last.ckpt"
    return last.stat().st_mtime_ns if last.exists() else None

def ended(child):
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

ended(train(root / "whole"))
killed = runs = 0
while killed < kills:
    runs += 1
    folder = root / f"killed-{runs}"
    while True:
        before = written(folder)
        child = train(folder)
        if draw.random() < 0.5:  # anywhere in its start; else once it trains, however slow the machine is
            time.sleep(draw.uniform(0, 0.8))
        else:
            lives = lambda: os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
            while written(folder) == before and lives():
                time.sleep(0.005)
            time.sleep(draw.uniform(0, 0.3))
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            assert os.waitstatus_to_exitcode(status) == 0
            break
        if killed >= kills:
            ended(child)
            break
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        killed += 1
    assert losses(folder) == losses(root / "whole"), folder
    kept = sorted(path.name for path in folder.glob("*.ckpt"))
    assert kept == sorted(path.name for path in (root / "whole").glob("*.ckpt")), kept
    remove_unfinished(folder)
    assert not list(folder.glob(".*")), list(folder.glob(".*"))
print(f"{killed} kills in {runs} trainings")
"""


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_killed_at_any_moment_and_resumed_a_training_has_the_same_losses(photographs: Path, tmp_path: Path) -> None:
    words = [sys.executable, "-W", "ignore", "-c", KILLED, str(photographs), str(tmp_path), str(KILLS)]
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert f"{KILLS} kills" in done.stdout
    print(done.stdout)
