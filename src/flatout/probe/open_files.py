"""Files and remote hosts that a process reads from: an audit hook counts opens, a slow scan samples."""

import _socket  # its class: the one of ``socket`` may be replaced, by gevent for example
import collections
import os
import socket

from .recorder import REC

MOST_KEPT = 1024  # names of one kind: the summary shows the 64 most frequent
MOST_PATHS = 1 << 15  # that are remembered, by their hashes, to count files that are opened again


def count(counter, name):
    """Count ``name``. If there are too many names, the less frequent half is dropped."""
    counter[name] += 1
    if len(counter) > MOST_KEPT:
        kept = most_frequent(counter, MOST_KEPT // 2)
        counter.clear()
        counter.update(kept)


def most_frequent(counter, count):
    """The ``count`` most frequent names. Other threads may count meanwhile: ``dict`` copies without a pause."""
    return dict(collections.Counter(dict(counter)).most_common(count))


class OpenFiles:
    """Files and sockets that were open when sampled, and the folders of files opened by Python."""

    def __init__(self):
        self.sampled: collections.Counter[str] = collections.Counter()
        self.peers: collections.Counter[str] = collections.Counter()

    def look(self):
        """Sample this process's descriptors once."""
        for fd in _listed("/proc/self/fd"):
            try:
                target = os.readlink("/proc/self/fd/" + fd)
            except OSError:
                continue
            if target.startswith("socket:["):
                peer = _peer(int(fd))
                if peer is not None:
                    count(self.peers, peer)
            elif target.startswith("/") and not target.startswith(("/dev/", "/proc/", REC.run, "/memfd:")):
                count(self.sampled, os.path.dirname(target))

    def write(self, names):
        """Write the cumulative summary."""
        opened = OPENED
        if opened.opens or self.sampled or self.peers:
            names.write(
                0,
                "files",
                {
                    "opens": opened.opens,
                    "dirs": most_frequent(opened.folders, 64),
                    "again": most_frequent(opened.again, 64),
                    "extensions": most_frequent(opened.extensions, 16),
                    "sampled": most_frequent(self.sampled, 64),
                    "peers": most_frequent(self.peers, 16),
                },
            )


class Opened:
    """Counts files that are opened for reading, by folder, and what of that was opened before."""

    def __init__(self):
        self.forget()

    def forget(self):
        """Start over in a forked process: its parent's files do not count."""
        self.opens = 0
        self.folders: collections.Counter[str] = collections.Counter()
        self.again: collections.Counter[str] = collections.Counter()
        self.paths: set[int] = set()
        self.extensions: collections.Counter[str] = collections.Counter()

    def audit(self, event, args):
        """The audit hook: returns immediately for everything but opening a file for reading."""
        if event != "open" or not REC.on:
            return
        try:
            path, _, flags = args
            if type(path) is str and flags & os.O_ACCMODE == os.O_RDONLY and not path.startswith("/proc"):
                self.opens += 1
                folder = os.path.dirname(path)
                count(self.folders, folder)
                if hash(path) in self.paths:
                    count(self.again, folder)
                elif len(self.paths) < MOST_PATHS:
                    self.paths.add(hash(path))
                count(self.extensions, os.path.splitext(path)[1])
        except Exception:
            return


OPENED = Opened()


def _listed(folder):
    try:
        return os.listdir(folder)
    except OSError:
        return ()


def _peer(fd):
    """The remote end ("host:port") that a descriptor is connected to over TCP; None: it is no such socket.

    Asking the kernel for one socket costs a few microseconds; its table of all connections costs milliseconds.
    """
    try:
        found = _socket.socket(fileno=fd)
    except Exception:  # closed meanwhile, or forbidden by an audit hook
        return None
    try:
        if found.family not in (socket.AF_INET, socket.AF_INET6) or found.type != socket.SOCK_STREAM:
            return None
        address = found.getpeername()
        return "%s:%d" % (address[0], address[1])
    except OSError:  # not connected
        return None
    finally:
        found.detach()  # the descriptor stays open: it is the training's
