"""Ends the processes of a recording if flatout itself was killed. Standard library only; runs as a script.

``python -I -S guardian.py RUN``: waits until standard input closes. After a byte on it, the recording ended in order
and there is nothing to do. Otherwise every process that carries ``FLATOUT_RUN=RUN`` in its environment is ended,
SIGTERM first, and what such processes leave in /dev/shm is removed, as is the space that the record had reserved.
"""

# untested: runs as python -I -S, and so without coverage.py

import os
import re
import shutil
import signal
import sys
import time

GRACE_S = 3.0
KILL_S = 10.0
PAUSE_S = 0.05
# A folder of multiprocessing that is empty and this new is one in which its process begins to listen at once.
NEW_S = 1.0
# Processes may be starting while the others are ended.
QUIET_LOOKS = 4
SHM = "/dev/shm"
_OWNER = re.compile(r"^(?:torch_|__KMP_REGISTERED_LIB_)(\d+)_")
_TEMPORARY = (b"TMPDIR", b"TEMP", b"TMP")  # as tempfile looks for them
_LISTENED = re.compile(r"(/\S*/pymp-[^/\s]+)/")


def members(run: str) -> set[int]:
    """Pids of the living processes that were started for this run; this one not included."""
    wanted = os.fsencode(f"FLATOUT_RUN={run}")
    found = set()
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                inherited = wanted in file.read().split(b"\0")
            with open(f"/proc/{name}/stat", "rb") as file:
                state = file.read().rpartition(b")")[2].split()[0]
        except (OSError, IndexError):
            continue
        if inherited and state not in (b"Z", b"X"):
            found.add(int(name))
    return found


def end(run: str) -> tuple[set[int], set[str]]:
    """End them all; return every pid that was seen, and the folders of multiprocessing in which they listened."""
    seen: set[int] = set()
    told: set[int] = set()
    folders: set[str] = set()
    begin_s = time.monotonic()
    quiet = 0
    while quiet < QUIET_LOOKS and time.monotonic() - begin_s < GRACE_S + KILL_S:
        living = members(run)
        seen |= living
        quiet = 0 if living else quiet + 1
        late = time.monotonic() - begin_s > GRACE_S
        # A stopped process cannot begin to listen between the scan of its sockets and its end.
        send(living - told, signal.SIGSTOP)
        if living and time.monotonic() - begin_s < NEW_S and being_made(temporary_folders(living)):
            send(without_children(living), signal.SIGCONT)
            time.sleep(PAUSE_S)
            continue
        folders |= listening_folders(sockets_of(living)) if living else set()
        send(living if late else living - told, signal.SIGKILL if late else signal.SIGTERM)
        send(living, signal.SIGCONT)  # a stopped process acts on a signal only when it goes on
        told |= living
        time.sleep(PAUSE_S)
    return seen, folders


def without_children(pids: set[int]) -> set[int]:
    """Those that have started no other one of these: they start none while they go on."""
    parents = set()
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                parents.add(int(file.read().rpartition(b")")[2].split()[1]))
        except (OSError, IndexError):
            continue
    return pids - parents


def temporary_folders(pids: set[int]) -> set[str]:
    """Folders in which these processes make temporary files."""
    found = {"/tmp"}
    for pid in pids:
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                variables = [entry.partition(b"=") for entry in file.read().split(b"\0")]
        except OSError:
            continue
        found.update(os.fsdecode(value) for name, _, value in variables if name in _TEMPORARY and value)
    return found


def being_made(folders: set[str]) -> bool:
    """True if multiprocessing has just made a folder in one of these, and its process does not listen in it yet."""
    for folder in folders:
        try:
            with os.scandir(folder) as entries:
                paths = [entry.path for entry in entries if entry.name.startswith("pymp-")]
        except OSError:
            continue
        if any(map(_is_new_and_empty, paths)):
            return True
    return False


def _is_new_and_empty(path: str) -> bool:
    try:
        return time.time() - os.stat(path).st_mtime < NEW_S and not os.listdir(path)
    except OSError:  # removed meanwhile, or another user's
        return False


def send(pids: set[int], number: int) -> None:
    """Send a signal to those that still live."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except OSError:
            continue


def listening_folders(sockets: set[str] | None = None) -> set[str]:
    """Folders of multiprocessing in which any process listens, or one that holds these sockets (inodes)."""
    found = set()
    try:
        with open("/proc/net/unix", errors="replace") as file:
            for line in file:
                match = _LISTENED.search(line)
                if match and (sockets is None or sockets & set(line.split())):
                    found.add(match[1])
    except OSError:
        return found
    return found


def sockets_of(pids: set[int]) -> set[str]:
    """Inodes of the sockets that these processes hold open."""
    found: set[str] = set()
    for pid in pids:
        try:
            targets = [os.readlink(entry.path) for entry in os.scandir(f"/proc/{pid}/fd")]
        except OSError:
            continue
        found.update(target[8:-1] for target in targets if target.startswith("socket:["))
    return found


def remove_left(pids: set[int], folders: set[str]) -> None:
    """Remove shared memory and folders of processes that have been ended."""
    for name in os.listdir(SHM) if os.path.isdir(SHM) else ():
        match = _OWNER.match(name)
        if match and int(match[1]) in pids:
            try:
                os.unlink(os.path.join(SHM, name))
            except OSError:
                continue
    begin_s = time.monotonic()
    while folders:
        listening = listening_folders()
        for folder in folders - listening:
            shutil.rmtree(folder, ignore_errors=True)
        folders = folders & listening
        # On a busy machine the sockets of a process outlast it; what stays open is a living process's.
        if time.monotonic() - begin_s > KILL_S:
            return
        time.sleep(PAUSE_S)


def main(run: str) -> None:
    """Wait for the end of the recording."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    if os.read(0, 1):
        return
    remove_left(*end(run))
    free_reserve(run)


def free_reserve(run: str) -> None:
    """Remove the file that held space for closing the record."""
    try:
        os.unlink(os.path.join(run, "reserve"))
    except OSError:
        return


class Guardian:
    """The guardian of a recording, as the process that records sees it.

    Attributes:
        pids: its pid, to be spared when descendants are ended; empty when it could not be started.
    """

    def __init__(self, run: str) -> None:
        import subprocess

        try:
            # A separate session: a signal to flatout's whole process group does not end the guardian.
            self._process: subprocess.Popen[bytes] | None = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__, run],
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                start_new_session=True, cwd="/",
            )  # fmt: skip
        except OSError:
            self._process = None
        self.pids = () if self._process is None else (self._process.pid,)

    def release(self) -> None:
        """The recording has ended in order: the guardian ends too."""
        if self._process is not None:
            try:
                self._process.communicate(b"x")
            except OSError:  # it was killed
                self._process.wait()


if __name__ == "__main__":
    main(sys.argv[1])
