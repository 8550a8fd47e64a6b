"""Files and remote hosts that a process reads from: an audit hook counts opens, a slow scan samples."""

import collections
import os
import socket
import sys

from .recorder import REC

MOST_KEPT = 1024  # names of one kind: the summary shows the 64 most frequent


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
        sockets = set()
        for fd in _listed("/proc/self/fd"):
            try:
                target = os.readlink("/proc/self/fd/" + fd)
            except OSError:
                continue
            if target.startswith("socket:["):
                sockets.add(target[8:-1])
            elif target.startswith("/") and not target.startswith(("/dev/", "/proc/", REC.run, "/memfd:")):
                count(self.sampled, os.path.dirname(target))
        if sockets:
            for peer in _connected(sockets):
                count(self.peers, peer)

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
                    "extensions": most_frequent(opened.extensions, 16),
                    "sampled": most_frequent(self.sampled, 64),
                    "peers": most_frequent(self.peers, 16),
                },
            )


class Opened:
    """Counts what Python opens for reading, by folder; filled by an audit hook."""

    def __init__(self):
        self.forget()

    def forget(self):
        """Start over in a forked process: its parent's files do not count."""
        self.opens = 0
        self.folders: collections.Counter[str] = collections.Counter()
        self.extensions: collections.Counter[str] = collections.Counter()

    def audit(self, event, args):
        """The audit hook: returns immediately for everything but opening a file for reading."""
        if event != "open" or not REC.on:
            return
        try:
            path, _, flags = args
            if type(path) is str and flags & os.O_ACCMODE == os.O_RDONLY and not path.startswith("/proc"):
                self.opens += 1
                count(self.folders, os.path.dirname(path))
                count(self.extensions, os.path.splitext(path)[1])
        except Exception:
            return


OPENED = Opened()


def _listed(folder):
    try:
        return os.listdir(folder)
    except OSError:
        return ()


def _connected(inodes):
    """Remote ends ("host:port") of the TCP sockets with these inodes."""
    for table, family in (("/proc/self/net/tcp", 4), ("/proc/self/net/tcp6", 6)):
        try:
            with open(table) as file:
                lines = file.readlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if len(fields) > 9 and fields[9] in inodes and fields[3] == "01":
                address, port = fields[2].split(":")
                yield "%s:%d" % (_address(address, family), int(port, 16))


def _address(text, family):
    # The kernel prints each 32-bit word of the address in the machine's byte order.
    words = [text[i : i + 8] for i in range(0, len(text), 8)]
    raw = b"".join(int(word, 16).to_bytes(4, sys.byteorder) for word in words)
    return socket.inet_ntop(socket.AF_INET if family == 4 else socket.AF_INET6, raw)
