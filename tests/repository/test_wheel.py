"""What a user gets from the package, built as an installer builds it."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    target = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(target)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    with zipfile.ZipFile(next(target.glob("*.whl"))) as opened:
        yield opened


def test_the_wheel_holds_every_file_of_the_package_and_no_other(wheel: zipfile.ZipFile) -> None:
    source = ROOT / "src"
    wanted = {
        str(path.relative_to(source))
        for path in (source / "flatout").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in wheel.namelist() if ".dist-info/" not in name} == wanted
    assert {"flatout/py.typed", "flatout/probe/on_pythonpath/sitecustomize.py"} <= wanted


def test_the_wheel_brings_the_command_the_licence_and_no_torch(wheel: zipfile.ZipFile) -> None:
    names = {name.partition(".dist-info/")[2]: name for name in wheel.namelist() if ".dist-info/" in name}
    assert "licenses/LICENSE" in names
    assert b"flatout = flatout.cli:main" in wheel.read(names["entry_points.txt"])
    metadata = wheel.read(names["METADATA"]).decode()
    core = [line for line in metadata.splitlines() if line.startswith("Requires-Dist:") and "extra ==" not in line]
    assert core
    assert not [line for line in core if "torch" in line]
