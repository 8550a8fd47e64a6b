"""Commands on the GPU, or on the fake one of the tests, each within what is left of its section's time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = Path(__file__).resolve().parent / "scripts"
RESULT = "RESULT "
# What every operation takes on the fake GPU: longer than the host takes for it, so that the device is behind.
FAKE_OP_US = 300


class Failed(Exception):
    """A command failed, or was not done in time; the text says which and why."""


@dataclass
class Bench:
    """Where the commands run.

    Attributes:
        dry: on the fake GPU, at tiny sizes: for the code of the check, not for figures.
        scratch: a folder for data.
        runs: a folder for records.
        until_s: when the section's time is over, monotonic seconds.
    """

    dry: bool
    scratch: Path
    runs: Path
    until_s: float = 0.0

    def script(self, path: Path | str, *arguments: object) -> list[str]:
        """The command line of a script; one of ours by its name."""
        found = path if isinstance(path, Path) else SCRIPTS / path
        fake = [str(ROOT / "tests" / "gpu" / "run_on_fake_gpu.py")] if self.dry else []
        return [sys.executable, *fake, str(found), *map(str, arguments)]

    def flatout(self, *arguments: object) -> list[str]:
        """The command line of flatout."""
        fake = [str(ROOT / "tests" / "gpu" / "run_with_fake_nvml.py")] if self.dry else ["-m", "flatout"]
        return [sys.executable, *fake, *map(str, arguments)]

    def start(self, command: list[str], **environment: str) -> subprocess.Popen[str]:
        """Start a command; its output is kept."""
        fake = {"FLATOUT_DEVICE_HOOKS": "1", "FAKE_GPU_OP_US": str(FAKE_OP_US), "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(
            command,
            cwd=self.scratch,
            env={**os.environ, **(fake if self.dry else {}), **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def ended(self, running: subprocess.Popen[str]) -> tuple[str, str]:
        """What a command wrote to standard output and standard error.

        Raises:
            Failed: it ended with an error, or the section's time is over.
        """
        try:
            out, said = running.communicate(timeout=max(1.0, self.until_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, 9)
            running.communicate()
            raise Failed("not done within the section's time") from None
        except BaseException:
            os.killpg(running.pid, 9)
            running.communicate()
            raise
        if running.returncode:
            lines = [line for text in (out, said) for line in text.splitlines() if line.strip()]
            lines = lines or [f"exit code {running.returncode}"]
            raise Failed(lines[-1].strip()[:200])
        return out, said

    def run(self, command: list[str], **environment: str) -> tuple[str, str]:
        """Start a command and wait for it."""
        return self.ended(self.start(command, **environment))

    def result(self, command: list[str], **environment: str) -> dict[str, Any]:
        """The line of results that our scripts print."""
        out, said = self.run(command, **environment)
        return found_result(out + said)

    def profile(
        self, command: list[str], window: Sequence[object] = ("--full",), **environment: str
    ) -> tuple[dict[str, Any], str]:
        """A command's report, and what the command itself wrote.

        Args:
            command: it ends by itself, or the window does it.
            window: options of ``flatout profile`` that say how long it is.
            environment: of the command, besides this process's.
        """
        out, said = self.run(
            self.flatout("profile", *window, "--json", "--runs-dir", self.runs.absolute(), "--", *command),
            **environment,
        )
        made: dict[str, Any] = json.loads(out[out.index("{") :])
        return made, said


def found_result(text: str) -> dict[str, Any]:
    """The last line of results in a text.

    Raises:
        Failed: there is none.
    """
    lines = [line for line in text.splitlines() if line.startswith(RESULT)]
    if not lines:
        raise Failed("the script printed no result")
    made: dict[str, Any] = json.loads(lines[-1][len(RESULT) :])
    return made
