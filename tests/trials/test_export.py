"""What a person takes away from a fix: command, config and patch."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from flatout import extras
from flatout.compare.ratio import Ratio
from flatout.report.fix import lines
from flatout.results import Gain, RemedyBundle
from flatout.trials.export import write_kept, write_plans
from flatout.trials.locations import find_locations
from flatout.trials.result import KEPT, FixResult, Trial

GAIN = Gain(2.0, 1.8, 2.2)


def fixed(
    command: tuple[str, ...], settings: dict[str, object], site: str = "", plans: tuple[RemedyBundle, ...] = ()
) -> FixResult:
    tried = Trial("r", "t", "identical", settings, GAIN, KEPT, "", Ratio(2.0, 1.9, 2.1, 2))
    kept = (tried,) if settings else ()
    return FixResult(
        command,
        1.0,
        "samples/s",
        "",
        kept,
        (),
        None,
        "",
        "",
        "",
        1.0,
        loader={"site": site} if site else {},
        plans=plans,
    )


def test_a_patch_of_the_script_is_offered(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch\nloader = DataLoader(data, 8)\nfor x in loader:\n    pass\n")
    command = ("python", str(script))
    kept = write_kept(
        fixed(command, {"num_workers": 4}, f"{script}:3"), find_locations(command, None, []), tmp_path / "fix"
    )
    assert kept is not None and kept.command == f"flatout apply --set num_workers=4 -- python {script}"
    assert "-loader = DataLoader(data, 8)\n+loader = DataLoader(data, 8, num_workers=4)" in kept.diff
    assert "num_workers" not in script.read_text()


@pytest.mark.parametrize("where", [".", "elsewhere"])
@pytest.mark.parametrize("end", ["\n", ""])
def test_the_patch_lies_in_a_file_that_patch_and_git_apply(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, end: str
) -> None:
    (tmp_path / "my project" / where).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "my project" / where)
    real = tmp_path / "my project" / "train it.py"
    script = real if where == "." else tmp_path / "my project" / where / ".." / where / "link.py"
    if where != ".":
        script.symlink_to(real)
    source = f"import torch\nfor x in DataLoader(data, 8):{end or ' pass'}"
    script.write_text(source + ("    pass" if end else ""))
    before = script.read_text()
    command = ("python", str(script))
    kept = write_kept(
        fixed(command, {"num_workers": 4}, f"{script}:2"), find_locations(command, None, []), tmp_path / "fix"
    )
    assert kept is not None and "a/train it.py" in kept.diff if where == "." else str(real) in kept.diff
    subprocess.run(kept.apply, shell=True, check=True)
    after = script.read_text()
    assert after == before.replace("data, 8", "data, 8, num_workers=4")
    if where == ".":
        script.write_text(before)
        (patch,) = tmp_path.glob("fix/proved/*.patch")
        subprocess.run(["git", "apply", str(patch)], check=True)
        assert script.read_text() == after


@pytest.mark.parametrize("tool", ["patch", "git"])
def test_a_patch_keeps_the_ends_of_lines_and_the_mark_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    monkeypatch.chdir(tmp_path)
    before = "\ufeffimport torch\r\n# a\x0cb\u2028c\r\nfor x in DataLoader(data, 8):\r\n\tpass\r\n".encode()
    script = tmp_path / "train.py"
    script.write_bytes(before)
    command = ("python", str(script))
    kept = write_kept(
        fixed(command, {"num_workers": 4}, f"{script}:3"), find_locations(command, None, []), tmp_path / "fix"
    )
    assert kept is not None and "-import" not in kept.diff and "-\ufeffimport" not in kept.diff
    (patch,) = tmp_path.glob("fix/proved/*.patch")
    subprocess.run(kept.apply if tool == "patch" else f"git apply {patch}", shell=True, check=True)
    assert script.read_bytes() == before.replace(b"data, 8", b"data, 8, num_workers=4")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["fix", "train.py"]


def test_a_changed_config_is_written_beside_and_shown(tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text("data:\n  workers: 1  # few\n")
    command = ("python", "train.py", str(config))
    locations = find_locations(command, config, [])
    kept = write_kept(fixed(command, {"num_workers": 4, "tf32": True}), locations, tmp_path / "fix")
    assert kept is not None and kept.config == str(tmp_path / "fix/proved/c.yaml")
    assert Path(kept.config).read_text() == "data:\n  workers: 4  # few\n" and "+  workers: 4" in kept.diff
    assert kept.command == f"flatout apply --set tf32=true -- python train.py {kept.config}"
    assert config.read_text() == "data:\n  workers: 1  # few\n"


def test_without_anything_kept_there_is_nothing_to_take_away(tmp_path: Path) -> None:
    command = ("python", "train.py")
    assert write_kept(fixed(command, {}), find_locations(command, None, []), tmp_path) is None


def test_options_are_changed_in_the_command_and_plans_have_one_each(tmp_path: Path) -> None:
    command = ("python", "train.py", "--workers", "1")
    locations = find_locations(command, None, [])
    plan = RemedyBundle("moderate", {"num_workers": 8, "autocast": "bf16"}, ("a", "b"), GAIN, None, "medium")
    found = fixed(command, {"num_workers": 4}, plans=(plan,))
    kept = write_kept(found, locations, tmp_path / "fix")
    assert kept is not None and kept.command == "python train.py --workers 4"
    ways = write_plans(found, locations, tmp_path / "fix")
    assert ways["moderate"].command == "flatout apply --set autocast=bf16 -- python train.py --workers 8"


def test_where_packages_for_a_patch_are_missing_the_way_to_get_it_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(extras.EXTRAS, "config", ("no_such_package",))
    script = tmp_path / "train.py"
    script.write_text("loader = DataLoader(data, 8)\n")
    command = ("python", str(script))
    found = fixed(command, {"num_workers": 4}, f"{script}:1")
    kept = write_kept(found, find_locations(command, None, []), tmp_path / "fix")
    assert kept is not None and kept.diff == "" and "pip install 'flatout[config]'" in kept.note
    assert "pip install 'flatout[config]'" in " ".join(" ".join(lines(found, kept)).split())
