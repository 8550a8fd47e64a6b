"""However a recording ends, the whole process tree ends with it, and what was measured is told."""

from __future__ import annotations

import json
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.profiling import FLATOUT, TIMEOUT_S, TRAIN, Profiling, profile, script, wait_for

pytestmark = pytest.mark.slow

PYTHON = sys.executable
STEPS = ("--steps", "20", "--no-experiments")
ENDLESS = ("100000", "0.01")
MAIN = 'if __name__ == "__main__":\n'


@pytest.mark.parametrize(
    ("bound", "stop"),
    [
        (["--steps", "20"], "steps"),
        (["--seconds", "1.5", "--no-experiments"], "seconds"),
        (["--steps", "20", "--no-experiments", "--no-trace"], "steps"),
    ],
)
def test_a_bound_ends_the_whole_tree_with_a_report_and_exit_code_0(tmp_path: Path, bound: list[str], stop: str) -> None:
    done = profile(tmp_path, PYTHON, script(tmp_path), *ENDLESS, "2", options=bound)
    assert done.code == 0, done.err
    assert done.info["stop"] == stop
    assert done.info["clean"] is True
    assert done.info["exit_code"] is None
    assert "trained" not in done.out
    assert "What holds it back" in done.out
    assert done.left == ()


def test_a_training_that_ends_before_the_trace_is_said_to_have(tmp_path: Path) -> None:
    done = profile(tmp_path, PYTHON, script(tmp_path), "21", "0.3", "0", options=STEPS)
    assert (done.code, done.info["stop"]) == (0, "steps")
    assert done.info["problems"] == ["no kernel trace: the training ended first"]


def test_a_step_that_takes_long_at_the_end_of_the_window_is_a_part_of_it(tmp_path: Path) -> None:
    stalling = TRAIN.replace(
        "time.sleep(pause_s)",
        "begun = begun if step else time.monotonic()\n"
        "            time.sleep(1.3 if 1.5 < time.monotonic() - begun < 2.7 else pause_s)",
    )
    options = ["--seconds", "2", "--no-experiments", "--no-trace", "--json"]
    done = profile(tmp_path, PYTHON, script(tmp_path, stalling), *ENDLESS, "0", options=options)
    ledger = json.loads(done.out)["ledger"]
    assert ledger["window_s"] > 2.3 and ledger["steps"]["count"] > 1


def test_full_records_until_the_command_ends(tmp_path: Path) -> None:
    done = profile(tmp_path, PYTHON, script(tmp_path), "60", "0.01", "1", options=["--full"])
    assert done.code == 0, done.err
    assert done.info["stop"] == "finished"
    assert done.info["exit_code"] == 0
    assert "trained 60" in done.out
    assert done.left == ()


@pytest.mark.parametrize(
    ("number", "group", "code", "stop"),
    [
        (signal.SIGINT, True, 130, "interrupted"),
        (signal.SIGTERM, False, 143, "terminated"),
        (signal.SIGHUP, False, 129, "terminated"),
    ],
)
def test_ctrl_c_and_sigterm_end_it_earlier_with_a_report(
    tmp_path: Path, number: signal.Signals, group: bool, code: int, stop: str
) -> None:
    running = Profiling(tmp_path, ["--full"], [PYTHON, script(tmp_path), *ENDLESS, "2"])
    running.wait_until_training()
    running.signal(number, group=group)
    done = running.wait()
    assert done.code == code, done.err
    assert done.info["stop"] == stop
    assert done.info["clean"] is True
    assert done.run is not None
    assert "left in /dev/shm" not in " ".join(done.info["problems"])
    assert done.left == ()


@pytest.mark.parametrize("command", ["ceilings", "compare", "fix"])
def test_sigterm_ends_commands_that_train_several_times_with_143(tmp_path: Path, command: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:  # trials of fix have a view of the disks of their own
        server.settimeout(60)
        tell = f"step == 3 and __import__('socket').create_connection(('127.0.0.1', {server.getsockname()[1]}))"
        words = [PYTHON, script(tmp_path, TRAIN.replace("time.sleep(pause_s)", f"{tell}; time.sleep(pause_s)"))]
        words += [*ENDLESS, "0"]
        given = [shlex.join(words), shlex.join(words)] if command == "compare" else ["--", *words]
        running = subprocess.Popen(
            [*FLATOUT, command, *given], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        server.accept()[0].close()
    running.send_signal(signal.SIGTERM)
    out, err = running.communicate(timeout=60)
    assert running.returncode == 143, out + err
    assert "Traceback" not in err


def test_a_training_that_is_killed_is_reported_up_to_there(tmp_path: Path) -> None:
    source = TRAIN.replace("time.sleep(pause_s)", "step == 30 and os.kill(os.getpid(), 9)")
    done = profile(tmp_path, PYTHON, script(tmp_path, source), *ENDLESS, "1")
    assert done.code == 137, done.err
    assert (done.info["stop"], done.info["exit_code"], done.info["signal"]) == ("failed", 137, 9)
    assert "What holds it back" in done.out
    assert done.left == ()


def test_a_training_that_fails_after_some_steps_is_reported_with_its_own_code(tmp_path: Path) -> None:
    source = TRAIN.replace("time.sleep(pause_s)", "if step == 30: raise OSError('disk on fire')")
    done = profile(tmp_path, PYTHON, script(tmp_path, source), *ENDLESS, "0")
    assert done.code == 1
    assert done.info["stop"] == "failed"
    assert "What holds it back" in done.out
    assert "disk on fire" in done.err
    assert done.left == ()


def test_a_script_that_ignores_sigterm_is_ended_all_the_same(tmp_path: Path) -> None:
    source = TRAIN.replace(MAIN, MAIN + "        import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n")
    done = profile(tmp_path, PYTHON, script(tmp_path, source), *ENDLESS, "0", options=STEPS)
    assert done.code == 0, done.err
    assert done.info["clean"] is True
    assert done.left == ()


DAEMON = """        if os.fork(): os._exit(0)
        os.setsid()
        if os.fork(): os._exit(0)
"""


def test_a_training_that_makes_itself_a_daemon_is_recorded_and_ended(tmp_path: Path) -> None:
    source = TRAIN.replace(MAIN, MAIN + DAEMON)
    done = profile(tmp_path, PYTHON, script(tmp_path, source), *ENDLESS, "1", options=STEPS)
    assert done.code == 0, done.err
    assert done.info["stop"] == "steps"
    assert "What holds it back" in done.out
    assert done.left == ()


def test_env_that_sets_another_path_is_recorded(tmp_path: Path) -> None:
    done = profile(tmp_path, "env", "PYTHONPATH=..", PYTHON, script(tmp_path, TRAIN), *ENDLESS, "1", options=STEPS)
    assert done.code == 0 and done.info["stop"] == "steps", done.err


def test_a_daemon_that_never_trains_is_not_waited_for(tmp_path: Path) -> None:
    source = "import os, time\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\ntime.sleep(600)\n"
    patient = (
        "import sys; from flatout import cli; from flatout.runner import session; "
        "session.DETACHED_STEP_WITHIN_S = 2.0; sys.exit(cli.main(sys.argv[1:]))"
    )
    words = [PYTHON, "-c", patient, "profile", "--", PYTHON, script(tmp_path, source)]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 2 and "ended without a training step" in done.stderr, done.stderr


def test_after_a_training_that_ended_its_children_are_not_waited_for(tmp_path: Path) -> None:
    text = script(tmp_path, TRAIN + "    if os.fork() == 0:\n        time.sleep(100)\n")
    done = profile(tmp_path, PYTHON, text, "26", "0.01", "0", options=["--steps", "20"])
    assert done.code == 0 and done.left == ()
    assert not [problem for problem in done.info["problems"] if "within" in problem]


def test_children_that_the_script_forgot_are_ended(tmp_path: Path) -> None:
    source = TRAIN.replace(
        MAIN, MAIN + "        import subprocess; subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
    )
    done = profile(tmp_path, PYTHON, script(tmp_path, source), "30", "0", "0")
    assert done.code == 0, done.err
    assert done.info["stop"] == "finished"
    assert done.left == ()


def test_what_was_there_before_is_left_alone(tmp_path: Path) -> None:
    bystander = subprocess.Popen(["sleep", "600"])
    try:
        done = profile(tmp_path, PYTHON, script(tmp_path), *ENDLESS, "0", options=STEPS)
        assert done.code == 0, done.err
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_descriptors_of_the_shell_reach_the_command(tmp_path: Path) -> None:
    path = script(tmp_path, "import sys\nprint('read', open(sys.argv[1]).read())\n")
    line = f"{shlex.join((*FLATOUT, 'profile', '--', PYTHON, path))} <(echo hello)"
    done = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert "read hello" in done.stdout, done.stderr


def test_a_signal_that_is_ignored_stays_ignored(tmp_path: Path) -> None:
    source = """
        import os, signal
        print("ignored", signal.getsignal(signal.SIGHUP) == signal.SIG_IGN, flush=True)
        os.kill(os.getppid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGHUP)
        print("went on", flush=True)
    """
    line = f"trap '' HUP; {shlex.join((*FLATOUT, 'profile', '--', PYTHON, script(tmp_path, source)))}"
    done = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert "ignored True" in done.stdout and "went on" in done.stdout, done.stderr
    assert "none imported torch" in done.stderr


def test_a_recording_whose_output_nobody_reads_any_more_goes_on(tmp_path: Path) -> None:
    path = script(tmp_path, "import pathlib, time\ntime.sleep(6)\npathlib.Path('done').write_text('x')\n")
    line = f"{shlex.join((*FLATOUT, 'profile', '--', PYTHON, path))} 2>&1 | head -c 1"
    subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert wait_for(tmp_path / "done") == "x"
