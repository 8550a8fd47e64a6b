"""Commands as people write them: each is recorded, and runs as it would alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from tests.end_to_end.profiling import FLATOUT, TIMEOUT_S, TRAIN, profile, script

pytestmark = pytest.mark.slow

PYTHON = sys.executable
SHORT = ("25", "0", "0")
MAIN = 'if __name__ == "__main__":\n'
SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "schema" / "report.schema.json").read_text())


def test_python_dash_m(tmp_path: Path) -> None:
    script(tmp_path, "", "pkg/__init__.py")
    script(tmp_path, TRAIN, "pkg/__main__.py")
    done = profile(tmp_path, PYTHON, "-m", "pkg", *SHORT)
    assert done.code == 0, done.err
    assert "trained 25" in done.out
    assert "What holds it back" in done.out


def test_a_console_script(tmp_path: Path) -> None:
    program = Path(script(tmp_path, "#!" + PYTHON + "\n" + script_text(tmp_path), "train-it"))
    program.chmod(0o755)
    done = profile(tmp_path, "./train-it", *SHORT)
    assert done.code == 0, done.err
    assert "What holds it back" in done.out


def script_text(folder: Path) -> str:
    """The plain training without indentation."""
    return Path(script(folder)).read_text()


def test_a_shell_script_that_starts_several_pythons(tmp_path: Path) -> None:
    path = script(tmp_path)
    shell = Path(
        script(
            tmp_path,
            f"set -e\n{PYTHON} -c 'print(1)'\n{PYTHON} {path} {' '.join(SHORT)}\n{PYTHON} -c 'print(2)'\n",
            "go.sh",
        )
    )
    done = profile(tmp_path, "sh", str(shell))
    assert done.code == 0, done.err
    assert len(done.processes) == 3
    assert [bool(process["torch"]) for process in done.processes].count(True) == 1
    assert "What holds it back" in done.out


def test_the_exit_code_of_a_training_that_ended_by_itself_is_kept(tmp_path: Path) -> None:
    source = TRAIN.replace('print("trained", step + 1, flush=True)', "sys.exit(5)")
    done = profile(tmp_path, PYTHON, script(tmp_path, source), *SHORT)
    assert done.code == 5
    assert done.info["stop"] == "failed"
    assert "What holds it back" in done.out


def test_json_is_alone_on_standard_output_and_keeps_to_its_schema(tmp_path: Path) -> None:
    done = profile(tmp_path, PYTHON, script(tmp_path), *SHORT, options=["--json"])
    assert done.code == 0, done.err
    report = json.loads(done.out)
    Draft202012Validator(SCHEMA).validate(report)
    assert "trained 25" in done.err
    again = subprocess.run([*FLATOUT, "report", "--json", str(done.run)], cwd=tmp_path, capture_output=True, text=True)
    assert json.loads(again.stdout)["ledger"] == report["ledger"]


def test_markdown_goes_to_a_file_and_the_scripts_output_to_where_it_belongs(tmp_path: Path) -> None:
    done = profile(tmp_path, PYTHON, script(tmp_path), *SHORT, options=["--markdown", "-o", "report.md", "--quiet"])
    assert done.code == 0, done.err
    assert done.out.splitlines()[0] == "trained 25"
    assert (tmp_path / "report.md").read_text().startswith("# ")
    assert "recording into" not in done.err


def test_standard_input_reaches_the_script(tmp_path: Path) -> None:
    source = TRAIN.replace(MAIN, MAIN + "        print('read', sys.stdin.read(), flush=True)\n")
    done = profile(tmp_path, PYTHON, script(tmp_path, source), *SHORT, stdin="from the pipe")
    assert done.code == 0, done.err
    assert "read from the pipe" in done.out


def test_a_pythonpath_and_a_sitecustomize_of_the_users_own_are_kept(tmp_path: Path) -> None:
    script(tmp_path, "import builtins\nbuiltins.mine = 'ran'\n", "own/sitecustomize.py")
    script(tmp_path, "value = 7\n", "own/wanted.py")
    source = TRAIN.replace(MAIN, MAIN + "        import wanted; print(mine, wanted.value)\n")
    done = profile(tmp_path, PYTHON, script(tmp_path, source), *SHORT, env={"PYTHONPATH": str(tmp_path / "own")})
    assert done.code == 0, done.err
    assert "ran 7" in done.out


@pytest.mark.parametrize("name", ["my training/träin ✓.py", "-/--steps.py"])
def test_unusual_names_of_folders_and_scripts(tmp_path: Path, name: str) -> None:
    script(tmp_path, TRAIN, name)
    done = profile(tmp_path, PYTHON, f"./{name}", *SHORT, "--json", "ü ü")
    assert done.code == 0, done.err
    assert done.info["command"][-1] == "ü ü"
    assert "trained 25" in done.out
    assert max(map(len, done.out.splitlines())) <= 80


def test_a_very_long_command_line(tmp_path: Path) -> None:
    words = [f"--option-{number}={'x' * 90}" for number in range(1000)]
    done = profile(tmp_path, PYTHON, script(tmp_path), *SHORT, *words)
    assert done.code == 0, done.err
    assert done.info["command"][-1] == words[-1]
    before_next = done.out.split("Next:")[0]
    assert max(map(len, before_next.splitlines())) <= 80


@pytest.mark.parametrize(
    "leaving",
    ["os.chdir('/')", "os.mkdir('gone'); os.chdir('gone'); os.rmdir(os.getcwd())"],
    ids=["changes its folder", "deletes its folder"],
)
def test_a_script_that_leaves_its_folder(tmp_path: Path, leaving: str) -> None:
    # After the optimizer is there: making one imports parts of torch that ask for the current folder.
    source = TRAIN.replace("loader = ", f"{leaving}\n        loader = ")
    done = profile(tmp_path, PYTHON, script(tmp_path, source), *SHORT)
    assert done.code == 0, done.err
    assert "What holds it back" in done.out
    assert list((tmp_path / ".flatout" / "runs").glob("*/processes/*.events"))
    assert done.left == ()


def test_a_script_that_forks_after_it_has_started_threads(tmp_path: Path) -> None:
    forking = """        import threading
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
        torch.set_num_threads(1)
        pid = os.fork()
        if pid == 0:
            time.sleep(1)
            os._exit(0)
"""
    source = TRAIN.replace(MAIN, MAIN + forking) + "        os.waitpid(pid, 0)\n"
    done = profile(tmp_path, PYTHON, script(tmp_path, source), *SHORT)
    assert done.code == 0, done.err
    assert len(done.processes) == 2
    assert not [process["fault"] for process in done.processes if process.get("fault")]
    assert done.left == ()


def test_a_script_whose_reader_has_gone(tmp_path: Path) -> None:
    source = TRAIN.replace("time.sleep(pause_s)", "print(step, flush=True)")
    # As many steps as it takes until head has gone.
    shell = f"{PYTHON} {script(tmp_path, source)} 1000000 0 0 | head -n 1"
    done = profile(tmp_path, "sh", "-c", shell)
    assert done.code == 0, done.err  # the code of head, as in the shell
    assert "BrokenPipeError" in done.err  # the script's own end, passed on
    assert done.left == ()


def test_standard_output_that_nobody_reads_is_no_traceback_of_flatout(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [*FLATOUT, "profile", "--json", "--", PYTHON, script(tmp_path), *SHORT]
    done = subprocess.run(command, cwd=tmp_path, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=TIMEOUT_S)
    os.close(writing)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


RANKS = """
    import torch, torch.distributed as dist
    from torch.utils.data import DataLoader, TensorDataset
    dist.init_process_group("gloo")
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for (x,) in DataLoader(TensorDataset(torch.randn(400, 8)), 4):
        net(x).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    print("rank", dist.get_rank(), "of", dist.get_world_size(), "trained", flush=True)
    dist.destroy_process_group()
"""


@pytest.mark.parametrize("bound", [["--full"], ["--steps", "20"]], ids=["to the end", "bounded"])
def test_torchrun_with_two_ranks(tmp_path: Path, bound: list[str]) -> None:
    path = script(tmp_path, RANKS if bound == ["--full"] else RANKS.replace("400", "4000000"))
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = profile(tmp_path, PYTHON, *launcher, path, options=bound)
    assert done.code == 0, done.err
    assert {process["rank"] for process in done.processes} >= {0, 1}
    assert "What holds it back" in done.out
    assert done.left == ()


def test_accelerate_launch(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    options = ["--cpu", "--num_processes", "1", "--num_machines", "1", "--mixed_precision", "no"]
    launcher = ["-m", "accelerate.commands.launch", *options, "--dynamo_backend", "no"]
    done = profile(tmp_path, PYTHON, *launcher, script(tmp_path), *SHORT)
    assert done.code == 0, done.err
    assert "trained 25" in done.out
    assert "What holds it back" in done.out
    assert done.left == ()
