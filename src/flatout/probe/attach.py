"""Starting the probe in one process: announce it, wait for torch, patch, and note how it ends."""

import atexit
import importlib
import os
import sys
import tempfile
import traceback

from . import events, in_place, injections, open_files, redirect, scheduling, seeding, stacks
from .after_import import AfterImport
from .contract import REDIRECT_VARIABLE
from .control import Control
from .injections import summary
from .live.plan import read_plan
from .recorder import REC, now, quietly, report_fault
from .unbound import before_exit

# Imports slow enough for a separate line in the start-up account.
TIMED_IMPORTS = (
    "torch",
    "torchvision",
    "torchaudio",
    "transformers",
    "datasets",
    "pytorch_lightning",
    "lightning",
    "timm",
    "monai",
    "pandas",
    "sklearn",
    "scipy",
    "matplotlib.pyplot",
    "wandb",
    "tensorflow",
)


def start(run, since_process_start=True):
    """Record this process into the run folder ``run``.

    Args:
        run: path of the run folder.
        since_process_start: False when the recording begins in the middle of the process's life.
    """
    if REC.run is not None:
        raise RuntimeError("this process is recorded already: %s" % REC.run)
    REC.attach(run, Control(os.path.join(run, "control")))
    if os.environ.get(REDIRECT_VARIABLE):
        # Other programs, compilers among them, share temporary files with this one: they see the real ones.
        kept = (run, os.environ.get("TORCHINDUCTOR_CACHE_DIR", run), tempfile.gettempdir())
        redirect.install(os.environ[REDIRECT_VARIABLE], kept)
    if not since_process_start:
        REC.save_process(start_ns=now())
    watcher = AfterImport(_import_timed, _not_patched)
    for name in TIMED_IMPORTS:
        watcher.watch(name)
    seeding.begin(watcher.watch)
    watcher.watch("torch", lambda torch: _torch_imported(watcher))
    injections.install_at_start(watcher.watch)
    watcher.install()
    _note_exceptions()
    before_exit(REC.flush_quietly)
    atexit.register(_ended)
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_child)


@quietly
def _import_timed(name, start_ns, end_ns):
    if REC.file is not None:
        REC.emit(events.IMPORT, start_ns, end_ns, REC.names.text(name))
    else:
        REC.pending_imports.append((name, start_ns, end_ns))


@quietly
# untested: only where a library's internals are not those that the probe knows
def _not_patched(name, error):
    missing = REC.process.setdefault("not_patched", {})
    missing[name] = "%s: %s" % (type(error).__name__, error)
    REC.save_process()


@quietly
def _torch_imported(watcher):
    REC.open()
    import torch  # it was imported just now

    redirect.torch_imported(torch)
    plan = read_plan(REC.run)
    if injections.INJECTED.wanted or plan is not None:
        injections.INJECTED.changed = _injected_changed
        # Before patching: the probe times the training with its settings applied.
        injections.install(watcher.watch, plan)
        if injections.INJECTED.applied or injections.INJECTED.refused:  # before torch was imported
            _injected_changed()
    patches = importlib.import_module(__package__ + ".install")
    missing = patches.install(watcher.watch)
    sys.addaudithook(open_files.OPENED.audit)
    REC.save_process(
        torch=str(torch.__version__),
        cuda=torch.version.cuda,
        threads=torch.get_num_threads(),
        schedstat=scheduling.thread_times() is not None,
        io=scheduling.process_io() is not None,
        not_patched={**(REC.process.get("not_patched") or {}), **(missing or {})},
    )
    stacks.start()


@quietly
def _injected_changed():
    REC.save_process(applied=injections.INJECTED.applied, refused=injections.INJECTED.refused)


def inject():
    """Apply the requested settings to this process without recording it; what became of them is said at exit."""
    said = summary.Summary(injections.INJECTED)
    watcher = AfterImport(lambda *_: None, injections.INJECTED.refuse)
    watcher.watch("torch", lambda torch: injections.install(watcher.watch))
    watcher.watch("torch.optim.optimizer", said.watch_optimizers)
    watcher.watch("torch.autograd", said.watch_backward)
    injections.install_at_start(watcher.watch)
    watcher.install()


def _note_exceptions():
    previous = sys.excepthook

    def excepthook(kind, value, trace):
        try:
            lines = traceback.format_exception(kind, value, trace)
            text = "".join(lines).rstrip().splitlines()
            REC.failure = {"exception": text[-1] if text else kind.__name__, "traceback": text[-12:]}
        except Exception:
            pass
        previous(kind, value, trace)

    sys.excepthook = excepthook


@quietly
def _ended():
    in_place.restore_all()  # calls from here on find modules that are being torn down
    if REC.process.get("pid") != os.getpid() or REC.process["end_ns"]:  # noted already: a spawned worker's end
        return
    stacks.stop()
    held_memory = sys.modules.get(__package__ + ".held_memory")
    if held_memory is not None:  # torch was imported
        held_memory.save()
    REC.close({"code": None, **REC.failure})


def stop():
    """End the recording of this process; what was patched stays, and does nothing."""
    stacks.stop()
    REC.close()


class _State:
    __slots__ = ("sampling",)

    def __init__(self):
        self.sampling = False  # stacks were sampled when the process forked


_state = _State()


def _before_fork():
    # A thread that holds a lock while the process forks leaves it locked in the child.
    try:
        _state.sampling = stacks.running()
        if _state.sampling:
            stacks.stop()
    except Exception:
        report_fault("fork")


def _after_fork():
    try:
        if _state.sampling:
            stacks.start()
    except Exception:
        report_fault("fork")


def _in_child():
    try:
        stacks.forget()
        open_files.OPENED.forget()
        scheduling.reset_after_fork()
        REC.after_fork_in_child()
    except Exception:
        report_fault("fork")
