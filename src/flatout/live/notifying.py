"""A command of the user's that is run when there is something to tell: a mail, a message, a shutdown."""

from __future__ import annotations

import os
import subprocess

from flatout.live.history import BROKEN_OFF
from flatout.live.state import State
from flatout.units import counted

LONGEST_S = 60.0


class Notifier:
    """Runs a shell command at each new warning and at the end.

    The command finds what happened in its environment: FLATOUT_EVENT (the warning's id, "ended", "failed" or
    "broken off"), FLATOUT_TEXT (a sentence) and FLATOUT_RUN_ID (the run's id).
    """

    def __init__(self, command: str) -> None:
        self.command = command
        self._told: set[str] = set()

    def tell(self, state: State) -> str | None:
        """Run the command for each warning that is new; why one of them failed, or None."""
        failed = None
        for warning in state.warnings:
            if warning.id not in self._told:
                self._told.add(warning.id)
                failed = self._run(state.run, warning.id, warning.text) or failed
        return failed

    def end(self, state: State) -> str | None:
        """Run the command for the end of the recording; why it failed, or None."""
        after = f"after {counted(state.steps, 'step')}"
        if state.failure is not None:
            return self._run(state.run, "failed", f"{state.run}: {state.failure} {after}")
        how = BROKEN_OFF if state.stop == BROKEN_OFF else "ended"
        return self._run(state.run, how, f"{state.run} {how} {after}")

    def _run(self, run: str, event: str, text: str) -> str | None:
        environment = {**os.environ, "FLATOUT_EVENT": event, "FLATOUT_TEXT": text, "FLATOUT_RUN_ID": run}
        try:
            done = subprocess.run(
                self.command,
                shell=True,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=LONGEST_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"--notify: the command took longer than {LONGEST_S:.0f} s, and was ended"
        except (OSError, ValueError) as error:
            return f"--notify: {error}"
        if done.returncode == 0:
            return None
        said = done.stderr.decode(errors="replace").strip().splitlines()
        return f"--notify: the command ended with exit code {done.returncode}" + (f": {said[-1]}" if said else "")
