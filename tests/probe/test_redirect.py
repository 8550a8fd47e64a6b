"""Writes of a trial that go to a scratch folder, where there is no private view of the disks."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from flatout.runner.command import probed_environment
from flatout.runner.folder import new_run

SCRIPT = """
import json, os, pathlib, shutil, sys, tempfile
import torch

def main():
    told = {}
    with open("log.txt", "a") as file:
        file.write("more\\n")
    told["log"] = open("log.txt").read()
    os.makedirs("out/deep", exist_ok=True)
    torch.save({"a": 1}, "out/deep/last.pt")
    told["loaded"] = torch.load("out/deep/last.pt")
    pathlib.Path("out/model.tmp").write_text("x")
    os.replace("out/model.tmp", "out/model.txt")
    told["moved"] = pathlib.Path("out/model.txt").read_text()
    told["exists"] = [os.path.exists("out/model.txt"), os.path.exists("out/model.tmp")]
    os.remove("precious.txt")
    shutil.copy("log.txt", "copy.txt")
    try:
        open("nowhere/file.txt", "w")
    except FileNotFoundError as error:
        told["error"] = error.filename
    print(json.dumps(told))

main()
"""


@pytest.mark.slow
def test_what_a_training_writes_lands_in_the_scratch_folder(tmp_path: Path) -> None:
    project, scratch = tmp_path / "project", tmp_path / "scratch"
    project.mkdir()
    scratch.mkdir()
    (project / "train.py").write_text(textwrap.dedent(SCRIPT))
    (project / "log.txt").write_text("before\n")
    (project / "precious.txt").write_text("kept")
    run = new_run(tmp_path / "runs", ["python"])
    environment = probed_environment(run) | {"FLATOUT_REDIRECT": str(scratch), "PYTHONDONTWRITEBYTECODE": "1"}
    environment["TMPDIR"] = str(tmp_path / "temporary")
    Path(environment["TMPDIR"]).mkdir()
    done = subprocess.run(
        [sys.executable, "train.py"], env=environment, cwd=project, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["log"] == "before\nmore\n" and told["loaded"] == {"a": 1}
    assert told["moved"] == "x" and told["exists"] == [True, False] and told["error"] == "nowhere/file.txt"
    assert sorted(os.listdir(project)) == ["log.txt", "precious.txt", "train.py"]
    assert (project / "log.txt").read_text() == "before\n" and (project / "precious.txt").read_text() == "kept"
    assert (scratch / str(project).lstrip("/") / "out/model.txt").is_file()
    process = json.loads(next((run / "processes").glob("*.json")).read_text())
    assert not process.get("fault")
