"""``with flatout.watch():`` records from inside the code what ``flatout profile`` records from outside."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import flatout.probe
from flatout.errors import UsageError
from flatout.probe.contract import RUN_VARIABLE
from flatout.runner.bounds import Bounds
from flatout.runner.command import probed_environment
from flatout.runner.folder import exclusive, free_reserve, new_run, trim, write_run_json
from flatout.runner.session import run_info, write_machine
from flatout.runner.sources import add_sources

_PROBE = "_flatout_probe"


@contextmanager
def watch(runs_dir: Path | str = Path(".flatout/runs"), name: str | None = None) -> Iterator[Path | None]:
    """Record the training inside the ``with`` block into a run folder.

    Below ``flatout profile`` the command is recorded already: then this does nothing.

    Args:
        runs_dir: Folder in which the run folder is made.
        name: Ends the run folder's name; None: the script's.

    Yields:
        The run folder (read it with ``flatout report``), or None when nothing is recorded here.

    Raises:
        UsageError: the folder cannot be written, another recording is on, or this process has been
            watched before (torch is patched once in the life of a process).
    """
    if os.environ.get(RUN_VARIABLE):
        yield None
        return
    _refuse_second_recording()
    folder = Path(runs_dir).absolute()
    command = [sys.executable, *(sys.argv or ["python"])]
    with exclusive(folder):
        run = new_run(folder, [name] if name else command)
        info = run_info(run, command, Bounds(full=True))
        write_run_json(run, info)
        write_machine(run)
        before = {name: os.environ.get(name) for name in ("PYTHONPATH", RUN_VARIABLE)}
        environment = probed_environment(run)
        # Workers that are spawned rather than forked find the probe through the environment.
        os.environ.update({name: environment[name] for name in before})
        sampler = subprocess.Popen(
            [sys.executable, "-m", "flatout.machine.sampling", str(run / "system.jsonl"), str(os.getpid())],
            stdin=subprocess.PIPE,
            env={name: value for name, value in os.environ.items() if name != RUN_VARIABLE},
        )
        _attach(run)
        stop, code = "finished", 0
        try:
            yield run
        except BaseException as error:
            stop, code = _ended_by(error)
            raise
        finally:
            with (run / "control").open("r+b") as control:
                control.write(bytes([1]))  # in place: other processes have the page mapped
            _detach()
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
            # A line, not the end of the file: workers that were forked meanwhile hold its standard input open too.
            sampler.communicate(b"end\n")
            add_sources(run)
            info.update(end_ns=time.monotonic_ns(), stop=stop, exit_code=code, clean=True, problems=trim(run))
            free_reserve(run)
            write_run_json(run, info)


def _refuse_second_recording() -> None:
    """Check that this process was not recorded before.

    Raises:
        UsageError: it was; the run is named.
    """
    recorder = sys.modules.get(_PROBE + ".recorder")
    if recorder is not None and recorder.REC.run is not None:
        raise UsageError(
            f"this process has been recorded already ({recorder.REC.run}): a process can be watched once; "
            "put everything into one `with flatout.watch():`, or start another process"
        )


def _ended_by(error: BaseException) -> tuple[str, int]:
    """The outcome of the code ("finished", "interrupted" or "failed"), and its exit code."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", 130
    if isinstance(error, SystemExit) and error.code in (None, 0):
        return "finished", 0
    code = getattr(error, "exit_code", getattr(error, "code", None))
    return "failed", code if isinstance(code, int) else 1


def _attach(run: Path) -> None:
    spec = importlib.util.spec_from_file_location(
        _PROBE,
        flatout.probe.__file__,
        submodule_search_locations=[str(Path(flatout.probe.__file__).parent)],
    )
    if _PROBE not in sys.modules:
        assert spec is not None and spec.loader is not None
        package = importlib.util.module_from_spec(spec)
        sys.modules[_PROBE] = package
        spec.loader.exec_module(package)
    attach = importlib.import_module(_PROBE + ".attach")
    attach.start(str(run), since_process_start=False)


def _detach() -> None:
    importlib.import_module(_PROBE + ".attach").stop()
