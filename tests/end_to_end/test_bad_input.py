"""What cannot be profiled is refused in one line, with the right exit code, and nothing stays behind."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.profiling import FLATOUT, TIMEOUT_S, TRAIN, Profiled, Profiling, profile, script, wait_for

PYTHON = sys.executable


def refused(done: Profiled, code: int, *said: str) -> None:
    """Check the one line, the exit code and that the folder is as before."""
    assert done.code == code, done.err
    for part in said:
        assert part in done.complaint
    assert "Traceback" not in done.complaint
    assert done.out == ""
    assert done.left == ()
    assert done.run is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--steps", "0"], ("--steps is 0", "above 0")),
        (["--seconds", "-3"], ("--seconds is -3", "above 0")),
        (["--seconds", "nonsense"], ("--seconds", "nonsense", "90s")),
        (["--seconds", "nan"], ("--seconds", "nan")),
        (["--seconds", "inf"], ("--seconds", "inf", "--full")),
        (["--first-step-within", "0s"], ("--first-step-within", "0s")),
        (["--full", "--steps", "3"], ("--full", "--steps", "leave out")),
        (["--full", "--seconds", "3"], ("--full", "--seconds", "leave out")),
        (["--json", "--markdown"], ("--json", "--markdown")),
        (["--stepz", "3"], ("--stepz", "--steps")),
    ],
)
def test_a_wrong_option_is_refused_before_anything_starts(
    tmp_path: Path, options: list[str], said: tuple[str, ...]
) -> None:
    done = profile(tmp_path, "touch", "started", options=options)
    refused(done, 2, *said)
    assert len(done.err.splitlines()) == 1
    assert not (tmp_path / "started").exists()


def test_no_command_says_where_to_write_one(tmp_path: Path) -> None:
    refused(profile(tmp_path), 2, "no training command", "flatout profile -- python train.py")


def test_a_command_that_is_not_found_ends_as_in_a_shell(tmp_path: Path) -> None:
    refused(profile(tmp_path, "no-such-command", "train.py"), 127, "no-such-command")


@pytest.mark.parametrize("name", ["train.py", "./train.py"])
def test_a_script_without_its_interpreter_is_told_how_to_start(tmp_path: Path, name: str) -> None:
    script(tmp_path)
    refused(profile(tmp_path, name), 126, f"python {name}")


@pytest.mark.slow
def test_a_script_that_fails_before_its_first_step_ends_with_its_own_code_and_says_where(tmp_path: Path) -> None:
    path = script(tmp_path, "import torch\ndef load():\n    raise ValueError('no pictures')\nload()\n")
    done = profile(tmp_path, PYTHON, path)
    refused(done, 1, "before its first training step", "ValueError: no pictures", f"{path}:3")
    assert 'File "' in done.err  # its own traceback is on the screen


def test_a_syntax_error_is_shown_with_its_line(tmp_path: Path) -> None:
    path = script(tmp_path, "x = 1\ndef f(:\n")
    refused(profile(tmp_path, PYTHON, path), 1, "SyntaxError", f"{path}:2")


def test_the_exit_code_of_a_script_is_kept(tmp_path: Path) -> None:
    refused(profile(tmp_path, PYTHON, "-c", "import sys; sys.exit(7)"), 7, "exit code 7")


def test_a_script_that_is_killed_before_its_first_step_ends_as_shells_count(tmp_path: Path) -> None:
    refused(profile(tmp_path, PYTHON, "-c", "import os; os.kill(os.getpid(), 9)"), 137, "signal 9")


@pytest.mark.slow
def test_a_failed_command_is_not_waited_for_because_of_what_it_left_running(tmp_path: Path) -> None:
    source = f"""
        import subprocess, sys
        subprocess.Popen([{PYTHON!r}, "-c", "import time; time.sleep(600)"])
        sys.exit(3)
    """
    refused(profile(tmp_path, PYTHON, script(tmp_path, source)), 3, "exit code 3")


@pytest.mark.slow
def test_an_interpreter_without_torch_is_named(tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", str(bare)], check=True)
    done = profile(tmp_path, str(bare / "bin" / "python"), script(tmp_path), "10", "0", "0")
    refused(done, 1, "no torch in", str(bare / "bin" / "python"), "install")


@pytest.mark.slow
def test_no_step_in_time_says_what_the_main_thread_did_instead(tmp_path: Path) -> None:
    path = script(tmp_path, "import torch, time\ndef download():\n    time.sleep(600)\ndownload()\n")
    for within_s in (5, 20, 80):  # in which torch has to be imported, and a stack sampled
        done = profile(tmp_path, PYTHON, path, options=["--first-step-within", f"{within_s}s"])
        if f"{path}:3" in done.complaint:
            break
    refused(done, 2, "torch was imported", "no backward pass", f"{path}:3", "time.sleep(600)", "--first-step-within")


@pytest.mark.slow
def test_a_probe_that_failed_before_the_first_step_is_not_waited_for(tmp_path: Path) -> None:
    source = """
        import sys, time, torch
        from _flatout_probe.recorder import report_fault
        try:
            raise KeyError("planted")
        except KeyError:
            report_fault("batch")
        net = torch.nn.Linear(2, 1)
        while True:
            net(torch.ones(1, 2)).sum().backward()
            time.sleep(0.01)
    """
    done = profile(tmp_path, PYTHON, script(tmp_path, source))
    refused(done, 2, "no training step could be recorded", "KeyError: 'planted'", "please report it")
    assert "--first-step-within" not in done.complaint


@pytest.mark.slow
def test_a_loop_that_only_loads_says_how_far_it_came(tmp_path: Path) -> None:
    source = """
        import torch
        for batch in torch.utils.data.DataLoader(torch.arange(20), 4):
            pass
    """
    refused(profile(tmp_path, PYTHON, script(tmp_path, source)), 2, "5 batches were loaded", "no backward pass")


def test_a_command_without_any_python_says_so(tmp_path: Path) -> None:
    refused(profile(tmp_path, "sleep", "0.1"), 2, "no Python process")


def test_python_without_torch_says_so(tmp_path: Path) -> None:
    refused(profile(tmp_path, PYTHON, "-c", "pass"), 2, "1 Python process ran", "none imported torch")


@pytest.mark.parametrize("folder", ["/sys/runs", "/proc/runs"])
def test_a_runs_folder_that_cannot_be_written_is_refused(tmp_path: Path, folder: str) -> None:
    done = profile(tmp_path, "touch", "started", options=["--runs-dir", folder])
    refused(done, 2, "cannot write", folder, "--runs-dir")
    assert not (tmp_path / "started").exists()


def test_a_file_in_place_of_the_runs_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("mine")
    refused(profile(tmp_path, "sleep", "1", options=["--runs-dir", "runs"]), 2, "cannot write", "--runs-dir")
    assert (tmp_path / "runs").read_text() == "mine"


def test_an_output_file_that_exists_is_refused_before_anything_is_recorded(tmp_path: Path) -> None:
    (tmp_path / "report.md").write_text("mine")
    done = profile(tmp_path, "touch", "started", options=["--markdown", "-o", "report.md"])
    refused(done, 2, "report.md", "--force")
    assert not (tmp_path / "started").exists()


@pytest.mark.slow
def test_two_recordings_into_one_folder_are_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    source = "import pathlib, time\npathlib.Path('on').write_text('1')\ntime.sleep(600)\n"
    first = Profiling(tmp_path, [], [PYTHON, script(tmp_path, source)])
    try:
        wait_for(tmp_path / "on")
        second = profile(tmp_path, "sleep", "1")
        assert second.code == 2
        assert f"process {first.process.pid}" in second.complaint
        assert first.process.poll() is None
    finally:
        first.process.terminate()
        ended = first.wait()
    refused(ended, 143, "before the first training step")


@pytest.mark.slow
def test_a_profile_within_a_profile_is_refused(tmp_path: Path) -> None:
    done = profile(tmp_path, *FLATOUT, "profile", "--runs-dir", "other", "--", "sleep", "1")
    assert done.code == 2
    assert "this command is itself being recorded" in done.err and "leave out the flatout inside it" in done.err
    assert not (tmp_path / "other").exists()


def on_a_small_disk(folder: Path, megabytes: int, *command: str) -> subprocess.CompletedProcess[str]:
    """Profile ``command`` into ``small/runs`` on a disk of its own; lists that folder afterwards."""
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode:
        pytest.skip("no user namespace to mount a small disk in")
    (folder / "small").mkdir()
    inner = f"mount -t tmpfs -o size={megabytes}m none small && {shlex.join(FLATOUT)} profile --runs-dir small/runs"
    inner += f" -- {shlex.join(command)}; code=$?; ls small/runs; exit $code"
    shell = ["unshare", "-rm", "sh", "-c", inner]
    return subprocess.run(shell, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S)


FILL = """
    def fill():
        try:
            with open("small/ballast", "wb", buffering=0) as file:
                while True:
                    file.write(bytes(1 << 12))
        except OSError:
            pass
"""


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before torch is there", "while it trains"])
def test_a_disk_that_fills_up_ends_the_record_but_not_the_training(tmp_path: Path, when: str) -> None:
    at = "import torch\n" if when.startswith("before") else "time.sleep(pause_s)\n"
    call = "fill()" if when.startswith("before") else "step == 5 and fill()"
    # A line of its own before the import, the place of the sleep within the loop.
    training = TRAIN.replace(at, f"{call}\n    {at}" if when.startswith("before") else f"{call}\n")
    done = on_a_small_disk(tmp_path, 80, PYTHON, script(tmp_path, FILL + training), "20000", "0", "0")
    assert "trained 20000" in done.stdout, done.stderr
    assert "Traceback" not in done.stderr
    if when.startswith("before"):
        assert done.returncode == 2
        assert "is full, so nothing could be recorded" in done.stderr
    else:
        assert done.returncode == 0
        assert "events could not be written" in done.stdout


@pytest.mark.slow
def test_a_disk_that_is_nearly_full_is_refused(tmp_path: Path) -> None:
    done = on_a_small_disk(tmp_path, 8, "touch", "started")
    assert done.returncode == 2
    assert "MiB are free" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""
    assert not (tmp_path / "started").exists()


@pytest.mark.slow
def test_the_lock_of_a_recording_that_was_killed_does_not_keep_the_next_one_out(tmp_path: Path) -> None:
    runs = tmp_path / ".flatout" / "runs"
    runs.mkdir(parents=True)
    (runs / ".lock").write_text(str(os.getpid()))
    refused(profile(tmp_path, "sleep", "0.1"), 2, "no Python process")
