"""``flatout lr-find`` says what it does and how it ended; ``flatout recipes`` fits the terminal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from flatout.cli import main
from flatout.commands.lr_find import _progress
from flatout.recipes import lr_range
from tests.recipes.small_training import TINY


@pytest.mark.slow
def test_an_interrupted_range_test_says_so_and_writes_nothing(
    photographs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def pressed(losses: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(lr_range, "smooth", pressed)  # is asked once enough steps are made
    monkeypatch.chdir(tmp_path)
    settings = [word for setting in TINY for word in ("--set", setting)]
    assert main(["lr-find", "demo", "--data", str(photographs), *settings, "--num-training", "30"]) == 130
    said = capsys.readouterr().err.splitlines()
    assert said[-1] == "stopped; nothing was written"
    assert any(line.startswith("range test: 30 steps of 16 images") for line in said)
    assert list(tmp_path.iterdir()) == []


def test_after_some_steps_the_time_of_the_rest_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    now = iter([10.0, 20.0])
    watch = _progress(36, lambda: next(now))
    for step in range(36):
        watch(step, 0.1, 1.0)
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("about")]
    assert said == ["about 1 min for the other 30 steps"]


def test_the_list_of_recipes_fits_in_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


@pytest.mark.slow
def test_a_range_test_suggests_a_rate_within_its_range_and_writes_it_where_asked(
    photographs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    recipe = tmp_path / "mine.yaml"
    assert main(["recipes", "demo"]) == 0
    recipe.write_text("# my own notes\n" + capsys.readouterr().out)
    settings = [word for setting in TINY for word in ("--set", setting)]
    words = ["lr-find", "mine.yaml", "--data", str(photographs), *settings, "--num-training", "60", "--json", "--write"]
    assert main(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert (tmp_path / found["plot"]).read_bytes().startswith(b"\x89PNG")
    written = YAML(typ="safe").load(recipe.read_text())["optimizer"]
    if found["suggestion"] is None:
        assert found["reason"]
    else:
        assert 1e-5 <= found["suggestion"] <= 10.0
        assert written["lr"] == float(f"{found['suggestion']:.3g}")
        assert written["lr_batch_size"] == 16
    assert recipe.read_text().startswith("# my own notes\n")


def test_a_shipped_recipe_is_not_written_into(photographs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lr-find", "demo", "--data", str(photographs), "--write"]) == 2
    assert "--write: demo is shipped: copy it first" in capsys.readouterr().err
