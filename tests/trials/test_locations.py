"""Settings are found and changed where the user keeps them: in a config file or in the command's options."""

import json
import re
from pathlib import Path

import pytest

from flatout.errors import UsageError
from flatout.trials.configs import read_config
from flatout.trials.locations import find_locations

YAML = """\
# the run of Tuesday
training:
  train_batch_size: 1   # 77 of 80 GB
  workers: 1
  accumulate_steps: 4
optimizer: {lr: 0.01, name: "adam"}
validation:
  workers: 3
paths: [a, b]
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "cfg.yaml"
    path.write_text(YAML)
    return path


def test_keys_are_found_by_name_and_comments_stay(config: Path, tmp_path: Path) -> None:
    locations = find_locations(["python", "train.py", "--config", str(config)], config, [])
    assert locations.keys["num_workers"] == "training.workers"
    words = locations.command_with(
        {"num_workers": 4, "batch_size": 2, "lr_factor": 2.0, "autocast": "bf16"}, tmp_path / "."
    )
    assert words[:3] == ["python", "train.py", "--config"]
    changed = (tmp_path / "cfg.yaml").read_text() if words[3] == str(config) else Path(words[3]).read_text()
    expected = YAML.replace("  workers: 1", "  workers: 4").replace("size: 1 ", "size: 2 ").replace("0.01", "0.02")
    assert changed == expected
    assert locations.located({"num_workers": 4, "autocast": "bf16"}) == {"num_workers"}


def test_json_and_toml(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text('{\n  "lr": 0.1,\n  "data": {\n    "num_workers": 2\n  }\n}\n')
    assert '"num_workers": 5\n' in read_config(tmp_path / "c.json").edited({"data.num_workers": 5})
    (tmp_path / "c.toml").write_text("# mine\n[data]\nnum_workers = 2 # few\n")
    edited = read_config(tmp_path / "c.toml").edited({"data.num_workers": 5})
    assert edited == "# mine\n[data]\nnum_workers = 5 # few\n"


def test_options_of_the_command_come_first(config: Path, tmp_path: Path) -> None:
    command = ["python", "train.py", f"--cfg={config}", "--num-workers", "2", "--batch-size=8"]
    locations = find_locations(command, config, [])
    words = locations.command_with({"num_workers": 6, "batch_size": 16}, tmp_path)
    assert words == ["python", "train.py", f"--cfg={config}", "--num-workers", "6", "--batch-size=16"]


def test_an_ambiguous_key_is_refused_and_a_knob_settles_it(tmp_path: Path) -> None:
    path = tmp_path / "two.json"
    path.write_text(json.dumps({"data": {"workers": 1}, "loader": {"workers": 2}}))
    command = ["python", "train.py", str(path)]
    with pytest.raises(
        UsageError, match=re.escape("could be data.workers or loader.workers: say which with --setting")
    ):
        find_locations(command, path, [])
    assert find_locations(command, path, ["num_workers=loader.workers"]).keys == {"num_workers": "loader.workers"}


@pytest.mark.parametrize(
    ("knob", "message"),
    [
        ("workers=x", "write SETTING=KEY"),
        ("num_workers=nowhere", "there is no such key; there are training.train_batch_size"),
        ("num_workers=--jobs", "the command has no option --jobs with a value"),
    ],
)
def test_a_knob_that_names_nothing(config: Path, knob: str, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        find_locations(["python", "train.py", str(config)], config, [knob])


def test_files_that_cannot_be_used(tmp_path: Path, config: Path) -> None:
    with pytest.raises(UsageError, match="the command does not name this file"):
        find_locations(["python", "train.py"], config, [])
    (tmp_path / "bad.yaml").write_text("a: [1\n")
    with pytest.raises(UsageError, match="cannot be parsed"):
        read_config(tmp_path / "bad.yaml")
    with pytest.raises(UsageError, match=re.escape("a .yaml, .yml, .json or .toml file is needed")):
        read_config(tmp_path / "train.ini")
    with pytest.raises(UsageError, match="cannot be read"):
        read_config(tmp_path / "none.json")


def test_what_is_done_less_often_is_so_many_times_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"check_val_every_n_epoch": 2, "log_every_n_steps": 50, "accumulate_grad_batches": 4}))
    locations = find_locations(["python", "train.py", str(path)], path, [])
    words = locations.command_with({"validation_factor": 2.0, "log_every": 10, "accumulate": 2}, tmp_path / ".")
    changed = json.loads(Path(words[-1]).read_text())
    assert changed == {"check_val_every_n_epoch": 4, "log_every_n_steps": 500, "accumulate_grad_batches": 8}
