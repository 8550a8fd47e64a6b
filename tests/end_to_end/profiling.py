"""Running ``flatout profile`` as a person would, and looking for whatever it may have left behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

MARK = "FLATOUT_TEST_MARK"
FLATOUT = (sys.executable, "-m", "flatout")
TIMEOUT_S = 240.0
# Temporary folders that torch and torchrun leave behind in any training, profiled or not.
TORCHS_OWN = ("torchinductor_", "torchelastic_")

# A whole training of a few milliseconds a step: argv[1] steps of argv[2] seconds, argv[3] workers.
TRAIN = """
    import os, sys, time
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    def main():
        steps, pause_s, workers = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
        net = torch.nn.Linear(8, 1)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        loader = DataLoader(TensorDataset(torch.randn(4 * steps, 8)), 4, num_workers=workers)
        for step, (x,) in enumerate(loader):
            loss = net(x).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(pause_s)
        print("trained", step + 1, flush=True)

    if __name__ == "__main__":
        main()
"""


# Waits for its one worker, which waits itself; writes files of its own.
ONE_WORKER = """
    import pathlib
    import time
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Waiting(Dataset):
        def __len__(self):
            return 100_000

        def __getitem__(self, index):
            time.sleep(0.01)
            return torch.full((8,), float(index % 7))

    def main():
        torch.manual_seed(0)
        net = torch.nn.Linear(8, 2)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.001)
        pathlib.Path("log.txt").write_text("written by a trial")
        for x in DataLoader(Waiting(), 8, num_workers=1):
            loss = net(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            torch.save(net.state_dict(), "last.pt")

    if __name__ == "__main__":
        main()
"""


@dataclass(frozen=True)
class Profiled:
    """What came out of one ``flatout profile``.

    Attributes:
        code: Its exit code.
        out: Its standard output.
        err: Its standard error, the command's included.
        run: The run folder; None when none was made.
        left: What was still there afterwards: processes, shared memory, temporary files.
    """

    code: int
    out: str
    err: str
    run: Path | None
    left: tuple[str, ...]

    @property
    def info(self) -> dict[str, Any]:
        """run.json."""
        assert self.run is not None, self.err
        return dict(json.loads((self.run / "run.json").read_text()))

    @property
    def processes(self) -> list[dict[str, Any]]:
        """The Python processes that were recorded."""
        assert self.run is not None, self.err
        return [json.loads(path.read_text()) for path in sorted((self.run / "processes").glob("*.json"))]

    @property
    def complaint(self) -> str:
        """The one line that says what is wrong."""
        lines = [line for line in self.err.splitlines() if line.startswith("flatout: ")]
        assert lines, self.err
        return lines[-1].removeprefix("flatout: ")


class Profiling:
    """``flatout profile`` while it runs, in a process group of its own as in a terminal."""

    def __init__(
        self,
        folder: Path,
        options: Sequence[str],
        command: Sequence[str],
        env: dict[str, str | None] | None = None,
        stdin: str | None = None,
    ) -> None:
        self.folder = folder
        self.mark = uuid.uuid4().hex
        # Short, since sockets are made in it, whose names may have 107 characters in all.
        self.temporary = Path(tempfile.mkdtemp(prefix="f"))
        weakref.finalize(self, shutil.rmtree, self.temporary, ignore_errors=True)
        self._stdin = stdin
        self._read = ""
        environment: dict[str, str | None] = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "TMPDIR": str(self.temporary),
            MARK: self.mark,
            **(env or {}),
        }
        self.process = subprocess.Popen(
            [*FLATOUT, "profile", *options, "--", *command],
            cwd=folder,
            env={name: value for name, value in environment.items() if value is not None},
            stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def wait_until_training(self) -> None:
        """Wait for the line that says that the first step was seen (needs no ``--quiet``)."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._read += line
            if "first training step" in line:
                return
        raise AssertionError(f"it never trained:\n{self._read}")

    def signal(self, number: signal.Signals, *, group: bool = False) -> None:
        """Send a signal to flatout, or to its whole group as Ctrl-C in a terminal does."""
        if group:
            os.killpg(self.process.pid, number)
        else:
            self.process.send_signal(number)

    def wait(self) -> Profiled:
        """Wait for the end and look around."""
        try:
            out, err = self.process.communicate(self._stdin, timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            running = "\n".join(line[:200] for line in marked(self.mark))
            self.process.terminate()
            out, err = self.process.communicate()
            raise AssertionError(f"flatout did not end:\n{err}\n{out}\nstill running:\n{running}") from None
        runs = sorted((self.folder / ".flatout" / "runs").glob("*/run.json"))
        run = runs[-1].parent if runs else None
        temporary = sorted(path.name for path in self.temporary.iterdir() if not path.name.startswith(TORCHS_OWN))
        left = (*marked(self.mark), *_shared_memory(run), *temporary)
        return Profiled(self.process.returncode, out, self._read + err, run, left)


def profile(
    folder: Path,
    *command: str,
    options: Sequence[str] = (),
    env: dict[str, str | None] | None = None,
    stdin: str | None = None,
) -> Profiled:
    """Run ``flatout profile OPTIONS -- COMMAND`` in ``folder`` to its end."""
    return Profiling(folder, options, command, env, stdin).wait()


def script(folder: Path, source: str = TRAIN, name: str = "train.py") -> str:
    """Write a script; gives back its path."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dedent(source), encoding="utf-8")
    return str(path)


def marked(mark: str) -> list[str]:
    """Command lines of the living processes that have inherited ``mark``."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return found


def wait_for(path: Path, seconds: float = 100.0) -> str:
    """The text of a file that a script writes, once it is there."""
    deadline_s = time.monotonic() + seconds
    while time.monotonic() < deadline_s:
        if path.exists() and (text := path.read_text()):
            return text
        time.sleep(0.05)
    raise AssertionError(f"{path} was never written")


def _shared_memory(run: Path | None) -> list[str]:
    """Shared-memory segments of the recorded processes."""
    if run is None:
        return []
    pids = {path.name.split("-")[0] for path in (run / "processes").glob("*.json")}
    return [name for name in os.listdir("/dev/shm") if pids & set(name.split("_"))]
