"""``flatout try`` from the command line: verdicts on real trainings, and the files as they were."""

from __future__ import annotations

import difflib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.end_to_end.profiling import FLATOUT, ONE_WORKER, script

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "docs/schema/try.schema.json").read_text("utf-8"))


def tries(folder: Path, *options: str, command: list[str], text: bytes | None = None) -> tuple[int, Any, str]:
    """Exit code, the JSON (None: there is none) and standard error."""
    shm = set(os.listdir("/dev/shm"))
    done = subprocess.run(
        [*FLATOUT, "try", "--json", *options, "--", *command], cwd=folder, input=text, capture_output=True, timeout=900
    )
    assert set(os.listdir("/dev/shm")) <= shm
    found = json.loads(done.stdout) if done.stdout else None
    if found is not None:
        jsonschema.Draft202012Validator(SCHEMA).validate(found)
        if found["log"] is None:
            assert not (folder / ".flatout/try").exists()
    return done.returncode, found, done.stderr.decode()


def patch(name: str, before: str, after: str) -> bytes:
    lines = difflib.unified_diff(before.splitlines(True), after.splitlines(True), f"a/{name}", f"b/{name}")
    return "".join(lines).encode()


@pytest.mark.serial
def test_the_correction_of_the_demo_is_proved(tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "examples/photographs.py", "--data", tmp_path / "data"], check=True)
    before, after = ((ROOT / "examples" / name).read_text() for name in ("train.py", "train_fixed.py"))
    (tmp_path / "train.py").write_text(before)
    (tmp_path / "change.diff").write_bytes(patch("train.py", before, after))
    command = [sys.executable, "train.py", "--data", "data", "--out", "out"]
    options = ("--patch", "change.diff", "--steps", "24", "--budget", "20m", "--allow", "data")
    code, found, err = tries(tmp_path, *options, command=command)
    assert code == 0 and found["proved"], (found, err)
    best = found["candidates"][0]
    assert best["outcome"] == "proved" and best["same_training"] and best["ratio"]["low"] > 1.03
    assert best["files"] == ["train.py"]
    assert best["accounts"][0]["id"] == "batch_wait"
    assert best["accounts"][0]["with_s_per_1000"] < best["accounts"][0]["without_s_per_1000"]
    # Shared memory of each process is read every few seconds: a short run may not show all of them.
    memory = best["memory"]["host_bytes_with"]
    assert memory is None or memory > 100 << 20
    assert (tmp_path / "train.py").read_text() == before and not (tmp_path / "out").exists()


def test_patches_that_break_or_help_share_the_runs_without_them(tmp_path: Path) -> None:
    path = Path(script(tmp_path, ONE_WORKER))
    before = path.read_text()
    changes = {
        "broken": before.replace("net.parameters()", "net.no_parameters()"),
        "nan": before.replace("loss = net(x)", "loss = float('nan') * net(x)"),
        "faster": before.replace("time.sleep(0.01)", "time.sleep(0.002)"),
    }
    options = []
    for name, after in changes.items():
        (tmp_path / f"{name}.diff").write_bytes(patch(path.name, before, after))
        options += ["--patch", f"{name}.diff"]
    command = [sys.executable, str(path)]
    code, found, err = tries(tmp_path, *options, "--seconds", "3", "--budget", "10m", command=command)
    outcomes = {one["title"]: one["outcome"] for one in found["candidates"]}
    assert outcomes == {
        "--patch faster.diff": "proved", "--patch nan.diff": "diverged", "--patch broken.diff": "failed",
    }, (found, err)  # fmt: skip
    assert code == 0 and any("no_parameters" in line for line in found["candidates"][2]["printed"])
    assert path.read_text() == before and Path(tmp_path / found["log"]).is_file()


def test_an_edit_in_the_working_tree_is_judged_against_the_files_without_it(tmp_path: Path) -> None:
    path = Path(script(tmp_path, ONE_WORKER))
    before = path.read_text()
    after = before.replace("time.sleep(0.01)", "time.sleep(0.03)")
    path.write_text(after)
    code, found, err = tries(
        tmp_path, "--patch", "-", "--seconds", "3", "--budget", "10m",
        command=[sys.executable, str(path)], text=patch(path.name, before, after),
    )  # fmt: skip
    assert code == 1 and found["taken_out"] and found["candidates"][0]["outcome"] == "slower", (found, err)
    assert path.read_text() == after


def test_a_config_key_a_command_and_a_variable_reach_the_training(tmp_path: Path) -> None:
    pause = """import json, os, sys
    PAUSE_S = json.load(open(sys.argv[1]))["data"]["pause_s"] * float(os.environ.get("SHARE", 1))

    class Waiting"""
    path = Path(script(tmp_path, ONE_WORKER.replace("class Waiting", pause).replace("0.01", "PAUSE_S")))
    for name, pause_s in (("a.json", 0.01), ("b.json", 0.002)):
        (tmp_path / name).write_text(json.dumps({"data": {"pause_s": pause_s}}))
    command = [sys.executable, str(path), "a.json"]
    # fmt: off
    options = ("--config-key", "pause_s=0.002", "--env", "SHARE=0.2", "--command", f"{sys.executable} {path} b.json",
               "--seconds", "2", "--budget", "10m")
    # fmt: on
    code, found, err = tries(tmp_path, *options, command=command)
    assert code == 0 and len(found["candidates"]) == 3, (found, err)
    for candidate in found["candidates"]:
        assert candidate["same_bits"] and candidate["ratio"]["factor"] > 1.5, (candidate, err)
    assert json.loads((tmp_path / "a.json").read_text()) == {"data": {"pause_s": 0.01}}
