"""The section of CONTRIBUTING on settings is followed to the letter, in a copy of the source."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DECLARED = """    "timeout": Setting(
        int, "seconds that a worker may take for a batch", "loader", keyword=True, recorded=True, aliases=("patience",)
    ),
"""
TRAINING = """
import json, torch
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.zeros(8, 2)), 4)
for _ in loader:
    pass
print(loader.timeout)
"""
# What reads the registry, asked about the new setting.
ASK = """
import json
from pathlib import Path
from flatout.trials.locations import find_locations
from flatout.trials.settings import keep_command, list_settings, read_settings
from flatout.trials.source_patch import patched

print(json.dumps({
    "listed": [line for line in list_settings() if line.startswith("timeout ")],
    "read": read_settings(["timeout=30"]),
    "kept": keep_command(["python"], {"timeout": 30}),
    "located": find_locations(["python", "--patience", "10"], None, []).command_with({"timeout": 30}, Path(".")),
    "patched": patched("a = DataLoader(data)", {"timeout": 30}),
}))
"""


def section() -> str:
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    return text.partition("## Add a setting that can be injected\n")[2].partition("\n## ")[0]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the source with one more setting, declared in the file that the section names and nowhere else."""
    source = tmp_path / "src"
    shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
    named = re.search(r"`SETTINGS` of `(src/\S+)`", section())
    assert named is not None
    registry = tmp_path / named[1]
    text = registry.read_text("utf-8")
    before = '    "worker_threads": Setting('
    assert text.count(before) == 1
    registry.write_text(text.replace(before, DECLARED + before), "utf-8")
    return source


def run(command: list[str], source: Path, **variables: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1", **variables}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "could not be set" not in done.stderr
    return done.stdout


def test_a_declared_keyword_of_the_dataloader_is_known_everywhere(copy: Path) -> None:
    assert json.loads(run([sys.executable, "-c", ASK], copy)) == {
        "listed": ["timeout                 int    seconds that a worker may take for a batch"],
        "read": {"timeout": 30},
        "kept": "flatout apply --set timeout=30 -- python",
        "located": ["python", "--patience", "30"],
        "patched": "a = DataLoader(data, timeout=30)",
    }


@pytest.mark.slow
def test_a_declared_keyword_of_the_dataloader_reaches_the_training(copy: Path, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(TRAINING)
    start = copy / "flatout/probe/on_pythonpath"
    assert run([sys.executable, str(script)], start, FLATOUT_SETTINGS='{"timeout": 0, "batch_size": 2}').strip() == "0"
    changed = run([sys.executable, str(script)], start, FLATOUT_SETTINGS='{"timeout": 30, "num_workers": 1}')
    assert changed.strip() == "30"


def test_the_files_and_names_of_the_section_exist() -> None:
    paths = re.findall(r"`((?:src|tests)/[^`]+)`", section())
    assert len(paths) >= 5 and all((ROOT / path).exists() for path in paths)
    loader = (ROOT / "src/flatout/probe/injections/loader.py").read_text("utf-8")
    proposal = (ROOT / "src/flatout/remedies/proposal.py").read_text("utf-8")
    assert "_SETTERS" in loader and "    mechanics: " in proposal
