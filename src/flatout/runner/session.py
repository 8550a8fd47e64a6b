"""One recording, from starting the command to a closed run folder."""

from __future__ import annotations

import datetime
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import psutil

from flatout.errors import SIGNAL_CODE, CommandError
from flatout.machine.sampler import SystemSampler
from flatout.machine.shm import left_in_shm, remove_left, shm_names
from flatout.machine.snapshot import take_snapshot
from flatout.machine.tree import become_subreaper, descendants, end_tree, is_running
from flatout.probe.contract import LIVE_PLAN
from flatout.probe.events import FORMAT_VERSION
from flatout.probe.recorder import COMMAND_EXPERIMENT, COMMAND_REPLAY, COMMAND_STOP, COMMAND_TRACE
from flatout.runner.bounds import Bounds
from flatout.runner.command import check_command, inherited_descriptors, probed_environment, with_probe
from flatout.runner.folder import exclusive, free_reserve, new_run, trim, write_run_json
from flatout.runner.guardian import Guardian
from flatout.runner.leftovers import remove, stop_and_find
from flatout.runner.live import Live, LiveReader
from flatout.runner.progress import Progress
from flatout.runner.signals import EndingSignals
from flatout.runner.sources import add_sources
from flatout.units import duration
from flatout.version import __version__

LOOK_EVERY_S = 0.05
GRACE_S = 5.0
REAPED_WITHIN_S = 10.0
# A step that is not over when this part of the window has passed since the one before may still end, so long.
STALL_SHARE = 0.1
STALL_WITHIN_S = 30.0
TRACE_WITHIN_S = 30.0
EXPERIMENTS_WITHIN_S = 30.0  # ten seconds of them, after what the training does at the end of the window
# Processes that a command leaves running after its end (a tracker's service, say) get this long.
LEFTOVER_GRACE_S = 2.0
# A process that a command leaves behind on purpose may be its training: this long, it may take its first step.
DETACHED_STEP_WITHIN_S = 60.0


@dataclass(frozen=True)
class Outcome:
    """The outcome of a recording.

    Attributes:
        run: The run folder.
        stop: As in run.json: finished, steps, seconds, blocks, interrupted, terminated, failed, guarded or no_steps.
        exit_code: Of the command when it ended by itself; 128 + n for signal n; None when flatout ended it.
        live: The last counters.
        guarded: Why a guard ended it; None when none did.
        signal: That ended flatout, if ``stop`` is interrupted or terminated; else 0.
        waited_s: How long it waited for a first step before it gave up; None when it did not.
        late_signal: As ``signal``, whenever it came: the command may have been at its end already.
    """

    run: Path
    stop: str
    exit_code: int | None
    live: Live
    guarded: str | None = None
    signal: int = 0
    waited_s: float | None = None
    late_signal: int = 0

    @property
    def ended_with(self) -> int | None:
        """Exit code of a command that was ended by a signal to flatout; None: it was not."""
        return SIGNAL_CODE + self.signal if self.signal else None


def record(
    command: Sequence[str],
    runs_folder: Path,
    bounds: Bounds,
    *,
    quiet: bool = False,
    stdout_to_stderr: bool = False,
    trace: bool = True,
    experiments: bool = False,
    environment: dict[str, str] | None = None,
    guard: Callable[[], str | None] | None = None,
    shown: Sequence[str] | None = None,
    output: IO[bytes] | None = None,
    plan: Mapping[str, Any] | None = None,
    started: Callable[[Path], int | None] = lambda run: None,
) -> Outcome:
    """Run ``command`` under the probe until it ends or a bound is reached, then end its whole tree.

    Args:
        command: Program and arguments; it runs in the current folder with the current environment.
        runs_folder: Where the run folder is made.
        bounds: When to end.
        quiet: No progress lines.
        stdout_to_stderr: Keep the command's output off standard output (for ``--json``).
        trace: Take a kernel-level trace of a few steps after the measured window.
        experiments: Measure, after the window, what debugging settings, hooks and the number of threads cost.
        environment: Variables that the command gets in addition to the current environment.
        guard: Polled; a text that it returns ends the recording.
        shown: The command to record, if not ``command`` itself.
        output: An open file for the command's output; None: this process's own.
        plan: Of a live trial, which the probe finds in the run folder; the recording ends when its blocks are over.
        started: Called with the run folder before the command is started; returns the pid of a process that it
            started, if any, which is not the command's.

    Raises:
        UsageError: no command, the folder cannot be used, another recording is on.
        CommandError: the command cannot be started.
    """
    check_command(command)
    runs_folder = runs_folder.absolute()
    with exclusive(runs_folder):
        run = new_run(runs_folder, shown or command)
        session = _Session(command, run, bounds, quiet, stdout_to_stderr, trace, environment or {})
        session.experiments = experiments and not bounds.full
        session.info["command"] = list(shown or command)
        session.guard, session.output = guard, output
        if plan is not None:
            (run / LIVE_PLAN).write_text(json.dumps(dict(plan)))
        session.beside = {pid for pid in [started(run)] if pid is not None}
        return session.run_to_end()


def run_info(run: Path, command: list[str], bounds: Bounds) -> dict[str, Any]:
    """The content of run.json for a recording that begins now."""
    return {
        "format": FORMAT_VERSION,
        "id": run.name,
        "flatout": __version__,
        "command": command,
        "cwd": str(Path.cwd()),
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "start_ns": time.monotonic_ns(),
        "end_ns": None,
        "window_end_ns": None,
        "bounds": bounds.to_dict(),
        "stop": None,
        "exit_code": None,
        "signal": None,
        "problems": [],
        "clean": None,
    }


def write_machine(run: Path) -> None:
    """Write machine.json."""
    (run / "machine.json").write_text(json.dumps(take_snapshot().to_dict(), indent=1) + "\n")


class _Session:
    def __init__(
        self,
        command: Sequence[str],
        run: Path,
        bounds: Bounds,
        quiet: bool,
        stdout_to_stderr: bool,
        trace: bool,
        environment: dict[str, str],
    ) -> None:
        self.environment = environment
        self.guard: Callable[[], str | None] | None = None
        self.beside: set[int] = set()  # processes that are not the command's
        self.guarded: str | None = None
        self._trained_pid: int | None = None  # of the process that trained as the window ended; None: not visible here
        self.ended: set[int] = set()  # pids of what was ended
        self.output: IO[bytes] | None = None
        self.command = list(command)
        self.run = run
        self.bounds = bounds
        self.trace = trace and not bounds.full
        self.experiments = False
        self.stdout_to_stderr = stdout_to_stderr
        self.progress = Progress(bounds, quiet)
        self.live = Live()
        self.reader = LiveReader(run)
        self.info = run_info(run, self.command, bounds)
        self.shm_before = shm_names()
        self.signals = EndingSignals()
        self.descriptors = inherited_descriptors()

    def run_to_end(self) -> Outcome:
        with self.signals:
            write_run_json(self.run, self.info)
            write_machine(self.run)
            if self.signals.stop:
                shutil.rmtree(self.run, ignore_errors=True)
                raise CommandError("ended before the command was started", SIGNAL_CODE + self.signals.number)
            if not become_subreaper():
                self.info["problems"].append("a process that makes itself a daemon could escape: no subreaper here")
            self.guardian = Guardian(str(self.run))
            try:
                outcome = self._record()
            finally:
                self.guardian.release()
            return replace(outcome, late_signal=self.signals.number)

    def _record(self) -> Outcome:
        child = self._start()
        sampler = SystemSampler(self.run / "system.jsonl", child.pid, adopter_pid=os.getpid())
        try:
            sampler.start()
            stop = self._watch(child)
        except BaseException:
            # Whatever fails here, nothing is left running.
            self._end(child, "failed")
            raise
        finally:
            sampler.stop()
        survivors = self._end(child, stop)
        self.live = self.reader.read()
        return self._close(child, stop, survivors, sampler.problem)

    def _tree(self) -> list[psutil.Process]:
        """The command's processes that are still alive."""
        return [process for process in descendants(os.getpid()) if process.pid not in self._spared]

    @property
    def _spared(self) -> set[int]:
        """Processes of flatout's own."""
        return {*self.guardian.pids, *self.beside}

    def _start(self) -> subprocess.Popen[bytes]:
        try:
            child = subprocess.Popen(
                with_probe(self.command),
                env=probed_environment(self.run) | self.environment,
                stdout=self.output or (sys.stderr.fileno() if self.stdout_to_stderr else None),
                stderr=self.output,
                pass_fds=self.descriptors,
            )
        except OSError as error:
            shutil.rmtree(self.run, ignore_errors=True)
            raise CommandError(f"cannot start {self.command[0]!r}: {error.strerror}", 126) from None
        self.progress.say(f"recording into {self.run}")
        return child

    def _watch(self, child: subprocess.Popen[bytes]) -> str:
        """Wait for the end; return the reason, as ``stop`` in run.json."""
        started_s = time.monotonic()
        ended_s: float | None = None
        while True:
            time.sleep(LOOK_EVERY_S)
            self.live = live = self.reader.read()
            self.progress.look(live)
            if self.signals.stop:
                return self.signals.stop
            self.guarded = self.guard() if self.guard is not None else None
            if self.guarded:
                return "guarded"
            ended = child.poll() is not None
            reached = self._reached(live) if not ended or self._training_goes_on(live, child.returncode) else None
            if reached:
                self._close_window(live)
                return self.signals.stop or reached
            if not live.first_step_ns and time.monotonic() - started_s > self.bounds.first_step_within_s:
                return "no_steps"
            if self._blind(live) and any(process.pid in live.failed for process in self._tree()):
                return "no_steps"
            if ended:
                ended_s = ended_s or time.monotonic()
                idle = not live.first_step_ns and time.monotonic() - ended_s > DETACHED_STEP_WITHIN_S
                if (idle or not self._training_goes_on(live, child.returncode)) and (
                    time.monotonic() - ended_s > LEFTOVER_GRACE_S or not self._tree()
                ):
                    break
        if child.returncode:
            return "failed"
        return "finished" if live.first_step_ns else "no_steps"

    def _blind(self, live: Live) -> bool:
        """True if the probe failed, before the first step, in all Python processes that there have been."""
        return 0 < live.processes == len(live.failed) and not live.first_step_ns and not self.bounds.full

    def _reached(self, live: Live) -> str | None:
        if not live.first_step_ns:
            return None
        if live.switched:
            return "blocks"
        return self.bounds.reached(live.steps - 1, (time.monotonic_ns() - live.first_step_ns) / 1e9)

    def _training_goes_on(self, live: Live, code: int) -> bool:
        """True if a process that trains, or may yet train, has detached itself from the command that has ended."""
        # After a failure, remaining processes are leftovers; a daemon's parent ends with 0.
        untrained = self.reader.pids() if code == 0 else set()
        awaited = {live.training_pid} if live.first_step_ns else untrained
        return any(process.pid in awaited for process in self._tree())

    def _close_window(self, live: Live) -> None:
        """End the measured window; then experiments and a trace, when wanted and the training still steps."""
        self._end_step(live)
        self.info["window_end_ns"] = time.monotonic_ns()
        if live.training_pid is not None and is_running(live.training_pid):
            self._trained_pid = live.training_pid
        step_s = max((live.last_step_ns - live.first_step_ns) / 1e9 / max(live.steps - 1, 1), 0.0)
        measurable = 5 * step_s <= EXPERIMENTS_WITHIN_S  # where not, the report says that nothing was tried
        if self.experiments:
            self._command(COMMAND_EXPERIMENT)
            measurable = measurable and self._experiment()
        self._command(COMMAND_TRACE if self.trace else COMMAND_STOP)
        traced = self._take_trace(step_s) if self.trace else True
        if self.experiments and measurable and traced and not self.signals.stop:
            # The last of all: the training learns from wrong batches in it, and never goes on.
            self.progress.say("measured; last, steps with batches that are handed out again, then the training ends")
            self._command(COMMAND_REPLAY)
            self._wait_for(lambda live: live.replayed, EXPERIMENTS_WITHIN_S)

    def _end_step(self, live: Live) -> None:
        """Let a step that takes long end: the window holds whole steps, and would leave out the longest of all."""
        seconds = self.bounds.seconds
        if seconds is None or (time.monotonic_ns() - live.last_step_ns) / 1e9 < STALL_SHARE * seconds:
            return
        within_s = min(seconds, STALL_WITHIN_S)
        self.progress.say(f"no step has ended for a while: up to {duration(within_s)} more for the end of what goes on")
        self._wait_for(lambda later: later.steps > live.steps, within_s)

    def _take_trace(self, step_s: float) -> bool:
        """Have the kernel trace taken; False if the steps for it came too late."""
        if 5 * step_s > TRACE_WITHIN_S:
            self.info["problems"].append(f"no kernel trace: a step takes {duration(step_s)}, three would take too long")
            return True
        self.progress.say("measured; three more steps for the kernel trace")
        return self._after_window("no kernel trace", lambda live: live.traced, TRACE_WITHIN_S)

    def _experiment(self) -> bool:
        """Have changes tried; False if the steps for them came too late."""
        self.progress.say("measured; up to ten seconds more to try what slows the steps down")
        without = "nothing was tried after the window"
        return self._after_window(without, lambda live: live.experimented, EXPERIMENTS_WITHIN_S)

    def _after_window(self, without: str, reached: Callable[[Live], bool], seconds: float) -> bool:
        """Wait for what follows the window, or say why the report goes without it; False if it came too late."""
        late = self._wait_for(reached, seconds)
        if late:
            self.info["problems"].append(f"{without} within {duration(seconds)}")
        elif not self.signals.stop and not reached(self.reader.read()):
            self.info["problems"].append(f"{without}: the training ended first")
        return not late

    def _wait_for(self, reached: Callable[[Live], bool], seconds: float) -> bool:
        """Wait until the training says so; True if it still trains and has not when the time is up."""
        deadline_s = time.monotonic() + seconds
        trained = self._trained_pid
        while time.monotonic() < deadline_s and not reached(live := self.reader.read()):
            over = trained is not None and live.training_pid == trained and not is_running(trained)
            if self.signals.stop or over or not self._tree():
                return False
            time.sleep(LOOK_EVERY_S)
        return not reached(self.reader.read())

    def _command(self, byte: int) -> None:
        with (self.run / "control").open("r+b") as file:
            file.write(bytes([byte]))

    def _end(self, child: subprocess.Popen[bytes], stop: str) -> list[int]:
        """End all that is left of the tree; the command's own pid is reaped by ``child``."""
        if stop == "interrupted":
            # The terminal sent Ctrl-C to the command too: let it shut down.
            _wait(child, GRACE_S)
        folders = stop_and_find(self._tree, child.pid)
        tree = self._tree()
        if tree and stop not in ("finished", "failed"):
            self.progress.say("ending the training; what it prints about that is no fault of its own")
        self.ended = {process.pid for process in tree} | {child.pid}
        survivors = end_tree([child.pid, os.getpid()], GRACE_S, spared=self._spared)
        # A process can be waited for once its last thread has ended, which may be some time after the first one.
        _wait(child, 1.0 if survivors else REAPED_WITHIN_S)
        if not survivors:
            remove(folders)
            remove_left(self.shm_before, self.ended)
        return survivors

    def _close(
        self, child: subprocess.Popen[bytes], stop: str, survivors: list[int], sampling_problem: str | None
    ) -> Outcome:
        code = child.returncode
        by_itself = stop in ("finished", "failed") or (stop == "no_steps" and code == 0)
        exit_code = (code if code >= 0 else 128 - code) if by_itself and code is not None else None
        by_signal = self.signals.number if stop in ("interrupted", "terminated") else 0
        problems = self.info["problems"] + trim(self.run)
        add_sources(self.run)
        if sampling_problem:
            problems.append(sampling_problem)
        if survivors:
            problems.append(f"processes that could not be ended: {', '.join(map(str, survivors))}")
        left = self._left()
        if left:  # another process's tracker may be about to clean up: check twice
            time.sleep(0.5)
            left = self._left()
        if left:
            problems.append(f"new in /dev/shm and used by no process, of this run or of another: {', '.join(left)}")
        if self.live.lost:
            problems.append(f"{self.live.lost} events could not be written: the disk was full")
        self.info.update(
            end_ns=time.monotonic_ns(),
            stop=stop,
            exit_code=exit_code,
            signal=by_signal or (-code if code is not None and code < 0 and by_itself else None),
            clean=not survivors,
            problems=problems,
        )
        free_reserve(self.run)
        write_run_json(self.run, self.info)
        gave_up = stop == "no_steps" and exit_code is None and not self._blind(self.live)
        waited_s = self.bounds.first_step_within_s if gave_up else None
        return Outcome(self.run, stop, exit_code, self.live, self.guarded, by_signal, waited_s)

    def _left(self) -> list[str]:
        """Shared memory that may be this run's; names with the pid of a process that was not in it are not."""
        return left_in_shm(self.shm_before, of=self.ended | self.reader.pids())


def _wait(child: subprocess.Popen[bytes], seconds: float) -> None:
    try:
        child.wait(seconds)
    except subprocess.TimeoutExpired:
        return
