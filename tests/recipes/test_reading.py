"""Recipes are read strictly, and errors point to the line or the option."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from flatout.cli import main
from flatout.errors import UsageError
from flatout.recipes.catalogue import shipped
from flatout.recipes.reading import (
    check_key,
    every_key,
    has_no_batch_size,
    read_any_recipe,
    read_recipe,
    save_recipe,
    write_value,
)


@pytest.mark.parametrize("name", list(shipped()))
def test_a_shipped_recipe_is_valid_and_survives_being_saved(name: str, tmp_path: Path) -> None:
    recipe = read_any_recipe(name)
    assert recipe.about
    assert read_any_recipe(str(save_recipe(recipe, tmp_path))) == recipe


def test_the_command_line_wins_over_the_file_and_options_over_set() -> None:
    recipe = read_recipe("demo", ["training.epochs=3", "folds={count: 4}"], {"training.epochs": 9, "data.root": None})
    assert recipe.training.epochs == 9 and recipe.folds is not None and recipe.folds.count == 4


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("training:\n  epochs: 3\n  batch_sise: 8\n", "mine.yaml:3: training.batch_sise: unknown key: did you mean tr"),
        ("epochs: 3\n", "mine.yaml:1: epochs: unknown key: it belongs to training.epochs"),
        ("training:\n  batch_size: many\n", "mine.yaml:2: training.batch_size: .*valid integer.*many"),
        ("model:\n  dropout: 1.5\n", "mine.yaml:2: model.dropout: .*less than or equal to 1.*1.5"),
        ("training:\n  epochs: 1\n  epochs: 2\n", "mine.yaml:3: .*duplicate key"),
        ("training: [1\n", "mine.yaml:2: .*correct the YAML"),
        ("- a\n- b\n", "a recipe is keys and values"),
        ("images:\n  crop_scale: [0.5, 0.2]\n", "crop_scale: 0.5 to 0.2 is no range"),
        ("data:\n  validation: null\ntraining:\n  early_stopping: {patience: 3}\n", "nothing to score"),
    ],
)
def test_a_mistake_is_one_line_that_points_to_it(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=said) as refused:
        read_recipe(str(path))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("training.epoch=3", "--set training.epoch=3: .*did you mean training.epochs"),
        ("training.epochs", "give key=value"),
        ("training.epochs=[", "no YAML value"),
        ("images.crop_scale=[0.5, 2]", "--set images.crop_scale=.*less than or equal to 1"),
    ],
)
def test_a_wrong_set_is_named(override: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read_recipe("demo", [override])


def test_an_unknown_recipe_gets_the_nearest_name() -> None:
    with pytest.raises(UsageError, match="did you mean imagenet-resnet50"):
        read_recipe("imagenet-resnet")


def test_writing_a_value_keeps_comments_and_order(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "# mine\nmodel:\n  name: resnet18 # small\noptimizer:\n  lr: 0.5 # a guess\ntraining:\n  epochs: 2\n"
    )
    write_value(path, "optimizer.lr", 0.02, "range test")
    text = path.read_text()
    assert text.startswith("# mine\n") and "# small" in text and "lr: 0.02" in text and "range test" in text
    assert text.index("model") < text.index("optimizer") < text.index("training")
    assert read_recipe(str(path), ["schedule.warmup_epochs=1"]).optimizer.lr == 0.02


def test_an_automatic_batch_size_is_known_before_the_recipe_is_read() -> None:
    assert not has_no_batch_size("demo")
    assert has_no_batch_size("demo", ["training.batch_size=auto"])
    assert not has_no_batch_size("demo", ["training.batch_size=auto"], {"training.batch_size": 8})
    # Only `flatout train` measures it.
    with pytest.raises(UsageError, match=r"training.batch_size=auto: .*valid integer"):
        read_any_recipe("demo", ["training.batch_size=auto"])


def test_all_keys_of_a_recipe_are_shown_with_their_meanings(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes", "demo", "--keys"]) == 0
    shown = capsys.readouterr().out
    assert shown == every_key(read_any_recipe("demo"))
    assert "  # the global batch that lr was chosen for\n  lr_batch_size: 32\n" in shown and "folds: null" in shown
    assert main(["recipes", "--keys"]) == 2
    assert "--keys: of which recipe?" in capsys.readouterr().err


def test_the_keys_that_the_page_names_exist() -> None:
    page = (Path(__file__).parents[2] / "docs" / "recipes.md").read_text()
    sections = "data|images|model|optimizer|schedule|training|folds|checkpoints|logging"
    named = set(re.findall(rf"`((?:{sections})\.[a-z_]+)(?:[:`= ])", page)) - {"folds.json"}
    assert len(named) > 50
    for key in sorted(named):
        check_key(key, "docs/recipes.md")
