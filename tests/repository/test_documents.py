"""README, CONTRIBUTING and CHANGELOG name files, targets and commands: each must be there and work as said."""

import re
import subprocess
from pathlib import Path

import pytest

from flatout import cli

ROOT = Path(__file__).parents[2]
DOCUMENTS = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"]
ON_ONE_LINE = re.compile(r"`([^`\n]+)`")


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def code(name: str) -> list[str]:
    """Every piece of code of a document: inline pieces, and the lines of fenced blocks."""
    prose, fenced = [], []
    for index, part in enumerate(text(name).split("```")):
        (fenced if index % 2 else prose).append(part)
    return ON_ONE_LINE.findall("".join(prose)) + "".join(fenced).splitlines()


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_link_into_the_repository_has_its_file(name: str) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", text(name))
    assert [link for link in links if not (ROOT / link).exists()] == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_path_named_in_code_exists(name: str) -> None:
    paths = {
        path
        for piece in code(name)
        for path in re.findall(r"(?:src|docs|scripts|tests|benchmarks|examples|\.ci)/[\w./-]*\w", piece)
    }
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []


def test_the_file_tour_names_every_folder_of_the_package_and_no_other() -> None:
    tour = set(re.findall(r"^  (\w+)/ ", text("README.md"), flags=re.MULTILINE))
    folders = {path.name for path in (ROOT / "src" / "flatout").iterdir() if path.is_dir()}
    assert tour == folders - {"__pycache__"}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_make_target_named_is_in_the_makefile_and_in_its_help(name: str) -> None:
    named = {target for piece in code(name) for target in re.findall(r"\bmake ([a-z-]+)", piece)}
    targets = set(re.findall(r"^([a-z-]+):", text("Makefile"), flags=re.MULTILINE))
    shown = subprocess.run(["make", "-s", "help"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert named <= targets
    assert set(re.findall(r"^make ([a-z-]+)", shown, flags=re.MULTILINE)) == targets - {"help"}


def test_every_flatout_command_and_option_named_in_the_readme_is_in_its_help(
    capsys: pytest.CaptureFixture[str],
) -> None:
    named: dict[str, set[str]] = {}
    for piece in code("README.md"):
        words = piece.partition(" -- ")[0].split()
        if len(words) > 1 and words[0] == "flatout":
            named.setdefault(words[1], set()).update(word for word in words if word.startswith("--"))
    assert {"profile", "report", "runs"} <= set(named)
    for command, options in named.items():
        assert cli.main([command, "--help"]) == 0
        shown = capsys.readouterr().out
        assert [option for option in options if option not in shown] == []
