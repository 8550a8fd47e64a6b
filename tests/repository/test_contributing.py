"""CONTRIBUTING's "Add a cause" and "Add a remedy", followed to the letter in a copy of the source."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
DIAGNOSE = """
import json
from flatout.diagnose.ranking import judge
from flatout.diagnose.verdict import verdict
from flatout.predict.context import Context
from flatout.remedies import propose
from tests.diagnose.views import COMPUTE, healthy

context = Context.of(healthy(busy=COMPUTE | {"loss": 0.010}, cpu=0.008))
causes, _ = judge(context)
remedies, _ = propose(context, causes)
print(json.dumps([[cause.id for cause in causes], [remedy.id for remedy in remedies], verdict(context, causes)]))
"""


def section(title: str) -> str:
    return TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def code(title: str) -> str:
    """The section's example."""
    (block,) = re.findall(r"```python\n(.*?)```", section(title), flags=re.DOTALL)
    return textwrap.dedent("   " + block.lstrip())


def files(title: str) -> list[str]:
    """Paths that the section names."""
    return re.findall(r"`((?:src|tests)/[\w./]+)`", section(title))


def add_to_list(path: Path, name: str, listed_as: str, module: str) -> None:
    """What "add it to the flat list" means: an import and a line."""
    text = path.read_text("utf-8")
    begin = text.index(f"\n{listed_as}: ")
    end = text.index("\n)\n", begin)
    imports = text.index("\nfrom flatout")
    path.write_text(
        f"{text[:imports]}\nfrom {module} import {name}{text[imports:end]}\n    {name},{text[end:]}", "utf-8"
    )


@pytest.mark.parametrize("title", ["Add an event kind", "Add a cause", "Add a remedy"])
def test_every_file_that_it_names_is_there(title: str) -> None:
    named = files(title)
    assert len(named) >= 2
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_a_cause_and_its_remedy_added_as_it_says_appear_in_a_diagnosis(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for title, listed_as, name in (
        ("Add a cause", "CAUSES", "slow_loss"),
        ("Add a remedy", "REMEDIES", "compiled_loss"),
    ):
        example = code(title)
        assert f"\ndef {name}(" in example
        where = next(path for path in files(title) if path.endswith("device.py"))
        with open(tmp_path / where, "a", encoding="utf-8") as module:
            module.write("\n\n" + example)
        listed = next(path for path in files(title) if path.endswith("__init__.py"))
        dotted = where.removeprefix("src/").removesuffix(".py").replace("/", ".")
        add_to_list(tmp_path / listed, name, listed_as, dotted)
    (page,) = (path for path in files("Add a cause") if path.endswith(".md"))
    with open(tmp_path / page, "a", encoding="utf-8") as explained:
        explained.write("\n## slow_loss\nThe loss takes long.\n\nHow it is found: its account.\n\nWhat to do: less.\n")

    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path / "src"), str(ROOT)))}
    run = [sys.executable, "-c", DIAGNOSE]
    shown = subprocess.run(run, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True).stdout
    causes, remedies, verdict = json.loads(shown)
    assert causes[0] == "slow_loss" and "compiled_loss" in remedies
    assert verdict == "The loss takes long to compute: 49% of the time."
    explain = [sys.executable, "-m", "flatout", "explain", "slow_loss"]
    shown = subprocess.run(explain, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True).stdout
    assert "The loss takes long." in shown
