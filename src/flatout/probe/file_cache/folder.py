"""The folder of a read cache: flatout creates and marks it, and touches nothing there that it did not create.

The mark is a ``CACHEDIR.TAG`` (https://bford.info/cachedir/), which also makes backups skip the folder. It is the lock
of the folder, too. ``xx/HASH`` is a link to ``xx/HASH-SIZE-CRC-MTIME``, the copy of one version of one file;
``xx/HASH-SIZE.part`` is a copy that is being written, and locked by its writer.
"""

import contextlib
import errno
import fcntl
import os
import re
import stat

NAME = "flatout-cache"
TAG = "CACHEDIR.TAG"
OWN_FILES = (TAG, "users", "state")  # besides the copies
MARK = (
    b"Signature: 8a477f597d28d172789f06886806bc55\n"
    b"# Made by flatout cache. It may be removed when no training uses it; other files do not belong here.\n"
)
_SHELF = re.compile("[0-9a-f]{2}")
_COPY = re.compile("([0-9a-f]{32})-([0-9a-f]+)-([0-9a-f]{8})-(-?[0-9]+)")
_PART = re.compile("[0-9a-f]{32}-([0-9a-f]+)[.]part")
_LINK = re.compile("[0-9a-f]{32}")
_SWAP = re.compile("[0-9a-f]{32}[.]link")
# The unpatched function: the cache must not cache its own file operations.
_open = os.open


class CacheFolder:
    """The folder in ``at`` that holds the copies.

    Raises:
        OSError: it cannot be made, or a folder of that name exists that flatout did not make.
    """

    def __init__(self, at):
        self.path = os.path.join(at, NAME)
        self._tag = os.path.join(self.path, TAG)
        os.makedirs(at, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.mkdir(self.path, 0o700)
        if not stat.S_ISDIR(os.lstat(self.path).st_mode):
            raise OSError(errno.ENOTDIR, "%s is no folder: remove it, or give another place" % NAME, self.path)
        try:
            fd = _open(self._tag, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            self._see_empty()
            fd = _open(self._tag, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            text = os.pread(fd, len(MARK) + 1, 0)
            if text != MARK:
                if not MARK.startswith(text):
                    raise self._foreign()
                self._see_empty()  # but for a mark whose writer was killed
                os.pwrite(fd, MARK, 0)
        finally:
            os.close(fd)

    def _see_empty(self):
        if set(os.listdir(self.path)) - {TAG}:
            raise self._foreign()

    def _foreign(self):
        return OSError(errno.EEXIST, "%s is there and was not made by flatout: give another place" % NAME, self.path)

    @contextlib.contextmanager
    def alone(self):
        """Hold the folder against other processes and threads."""
        # Opened by name: a program may have closed all descriptors, and opened its own files under their numbers.
        fd = _open(self._tag, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def use(self):
        """Use the folder until this process ends, or the returned descriptor is closed.

        Returns:
            The descriptor, and whether no other process uses the folder.
        """
        fd = _open(os.path.join(self.path, "users"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            first = True
        except BlockingIOError:
            first = False
        fcntl.flock(fd, fcntl.LOCK_SH)
        return fd, first

    def link(self, name):
        """The path of the link of a file, by the hash of its path."""
        return os.path.join(self.path, name[:2], name)

    def make_shelf(self, name):
        """Make the folder that a file's link and copy lie in; raises OSError if something else is in its place."""
        shelf = os.path.join(self.path, name[:2])
        with contextlib.suppress(FileExistsError):
            os.mkdir(shelf, 0o700)
        if not stat.S_ISDIR(os.lstat(shelf).st_mode):
            raise OSError(errno.ENOTDIR, "no folder", shelf)

    def shelves(self):
        """The folders of links and copies; symbolic links to folders do not count."""
        with os.scandir(self.path) as found:
            return [item.path for item in found if _SHELF.fullmatch(item.name) and item.is_dir(follow_symlinks=False)]

    def remove_leftovers(self, keep=()):
        """Remove unfinished files of killed processes, and damaged copies; return the copies and the bytes in parts.

        The lock is held. Parts that are being written stay, as do all files whose names are not of the cache's form.

        Args:
            keep: what links may lead to, though it is no copy.

        Returns:
            Time of use in ns, size and path of each copy; and the bytes that living writers reserved.
        """
        copies, reserved = [], 0
        for shelf in self.shelves():
            for name in os.listdir(shelf):
                place = os.path.join(shelf, name)
                part, known = _PART.fullmatch(name), copy_named(name)
                if part:
                    if _is_locked(place):
                        reserved += int(part[1], 16)
                    else:
                        unlink(place)
                elif known:
                    size = regular_size(place)
                    if size != known[1] or linked_copy(os.path.join(shelf, known[0])) != place:
                        unlink(place)
                    else:
                        copies.append((os.lstat(place).st_mtime_ns, size, place))
                elif os.path.islink(place) and (
                    _SWAP.fullmatch(name)
                    or (_LINK.fullmatch(name) and not linked_copy(place) and os.readlink(place) not in keep)
                ):
                    unlink(place)
        return copies, reserved


def copy_name(link, size, checksum, mtime_ns):
    """The path of the copy that a link leads to."""
    return "%s-%x-%08x-%d" % (link, size, checksum, mtime_ns)


def copy_named(name):
    """Hash, size, checksum and modification time of the file, from the name of its copy; None: not a copy."""
    found = _COPY.fullmatch(name)
    return found and (found[1], int(found[2], 16), int(found[3], 16), int(found[4]))


def linked(link):
    """The copy that a link leads to: its path, its parsed name and its status; None if there is no copy."""
    with contextlib.suppress(OSError):
        name = os.readlink(link)
        known = copy_named(name)
        if known and link.endswith(known[0]):
            place = link[: -len(known[0])] + name
            found = os.lstat(place)
            if stat.S_ISREG(found.st_mode):
                return place, known, found
    return None


def linked_copy(link):
    """The path of the copy that a link leads to; None if there is no copy."""
    found = linked(link)
    return found and found[0]


def set_link(link, text):
    """Point a link to something else, atomically."""
    swap = link + ".link"
    unlink(swap)
    os.symlink(text, swap)
    os.rename(swap, link)


def regular_size(path):
    """Size of a regular file in bytes; None if there is no such file."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def unlink(path):
    """Remove a file, if it exists and may be removed."""
    with contextlib.suppress(OSError):
        os.unlink(path)


def _is_locked(path):
    try:
        fd = _open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except OSError:
        return True
    finally:
        os.close(fd)
