"""Archives that are damaged, hostile or odd: each fails alone and by name, and no wrong byte gets a name."""

from __future__ import annotations

import gzip
import hashlib
import io
import multiprocessing
import os
import random
import signal
import stat
import struct
import tarfile
import time
import zipfile
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from flatout.errors import DiskFull
from flatout.stage.destination import space
from flatout.stage.destination.safe_paths import state_folder
from flatout.stage.destination.state import Complete, is_complete
from flatout.stage.progress import Summary
from flatout.stage.selection import Selection
from flatout.stage.sources.base import ObjectInfo, Source
from flatout.stage.sources.folder import FolderSource
from flatout.stage.staging import stage
from flatout.stage.transfer import Options

FILES = {f"{number}.jpg": random.Random(number).randbytes(300 + 37 * number) for number in range(12)}
Member = tuple[str | tarfile.TarInfo, bytes]
KINDS = ("tar", "tar.gz", "tar.bz2", "tar.xz", "zip")


def tar_of(members: Sequence[Member], mode: str = "w") -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as tar:  # type: ignore[call-overload]
        for name, data in members:
            info = tarfile.TarInfo(name) if isinstance(name, str) else name
            info.size = info.size or len(data)
            tar.addfile(info, io.BytesIO(data))
    return file.getvalue()


def zip_of(members: Sequence[tuple[str | zipfile.ZipInfo, bytes]], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return file.getvalue()


def archive_of(kind: str) -> bytes:
    if kind == "zip":
        return zip_of(list(FILES.items()), zipfile.ZIP_STORED)
    return tar_of(list(FILES.items()), {"tar": "w"}.get(kind, f"w:{kind[4:]}"))


def compressed(data: bytes, kind: str) -> bytes:
    import bz2
    import lzma

    # Level 0 keeps the bytes as they are: only the checksum at the end tells of a flipped one.
    ways: dict[str, Callable[[bytes], bytes]] = {
        "tar": bytes, "tar.gz": lambda data: gzip.compress(data, 0), "tar.bz2": bz2.compress, "tar.xz": lzma.compress
    }  # fmt: skip
    return ways[kind](data)


def unpacked(tmp_path: Path, options: Options | None = None, **archives: bytes) -> Summary:
    """Stages archives, whose names have ``_`` for a dot, beside a file that always comes."""
    source = tmp_path / "source"
    source.mkdir(exist_ok=True)
    (source / "fine.txt").write_text("fine")
    for name, data in archives.items():
        (source / name.replace("_", ".")).write_bytes(data)
    done = stage(FolderSource(source), tmp_path / "dest", Selection(), options or Options(unpack=True))
    assert (tmp_path / "dest/fine.txt").read_text() == "fine"
    assert not (state_folder(tmp_path / "dest") / "unpacking").exists() or not list(
        (state_folder(tmp_path / "dest") / "unpacking").iterdir()
    )
    return done


def there(tmp_path: Path, folder: str = "a") -> dict[str, bytes]:
    root = tmp_path / "dest" / folder
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def failed_alone(tmp_path: Path, done: Summary, name: str, said: str) -> None:
    assert done.n_failed == 1 and done.failed_examples[0].startswith(name) and said in done.failed_examples[0], (
        done.failed_examples
    )
    assert there(tmp_path) == {}


@pytest.mark.parametrize("kind", KINDS[:4])
@pytest.mark.parametrize("damage", ["a flipped bit in a header", "a header of zeros", "no end", "one block as the end"])
def test_a_tar_that_does_not_end_as_one_does_is_damaged(tmp_path: Path, kind: str, damage: str) -> None:
    tar = bytearray(tar_of(list(FILES.items())))
    middle = tar.index(b"6.jpg\0")
    end = len(bytes(tar).rstrip(b"\0")) // 512 * 512 + 512
    if damage == "a flipped bit in a header":
        tar[middle + 100] ^= 1
    elif damage == "a header of zeros":
        tar[middle : middle + 512] = bytes(512)
    else:
        del tar[end + (512 if "one" in damage else 0) :]
    done = unpacked(tmp_path, **{f"a_{kind.replace('.', '_')}": compressed(bytes(tar), kind)})
    failed_alone(tmp_path, done, f"a.{kind}", "no archive that can be read")


def test_a_flipped_byte_in_a_gzip_file_is_found_by_its_checksum(tmp_path: Path) -> None:
    data = bytearray(compressed(tar_of(list(FILES.items())), "tar.gz"))
    data[data.index(FILES["7.jpg"]) + 3] ^= 1
    failed_alone(tmp_path, unpacked(tmp_path, a_tar_gz=bytes(data)), "a.tar.gz", "CRC")


class Objects(Source):
    """Objects of a store, with their versions."""

    address = "objects:"

    def __init__(self, **objects: tuple[bytes, str]) -> None:
        self.stored = {name.replace("_", "."): found for name, found in objects.items()}

    def objects(self, prefix: str = "") -> Iterator[ObjectInfo]:
        yield from (ObjectInfo(key, len(data), version) for key, (data, version) in self.stored.items())

    def folders(self, prefix: str = "") -> list[str]:
        return []

    def stream(
        self, obj: ObjectInfo, buffer: memoryview, start: int = 0, length: int | None = None
    ) -> Generator[memoryview, None, None]:
        yield memoryview(self.stored[obj.key][0])[start : None if length is None else start + length]


def etag(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'


def test_an_archive_that_differs_from_the_store_s_checksum_is_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flatout.stage.sources.retries._pause_s", lambda tries, failure: 0.0)
    archives = {"a_tar": archive_of("tar"), "b_tar_xz": archive_of("tar.xz")}
    for wrong in (True, False):
        objects = Objects(**{name: (data, etag(data + b"x" * wrong)) for name, data in archives.items()})
        done = stage(objects, tmp_path / "dest", Selection(), Options(unpack=True))
        assert done.n_failed == 2 * wrong and all("checksum" in failure for failure in done.failed_examples)
        assert [there(tmp_path, name) for name in "ab"] == [{} if wrong else FILES] * 2


def test_a_damaged_archive_names_itself_and_others_come(tmp_path: Path) -> None:
    data = bytearray(archive_of("tar.bz2"))
    data[len(data) // 2] ^= 255
    done = unpacked(tmp_path, a_tar_bz2=bytes(data), b_tar_bz2=archive_of("tar.bz2"))
    failed_alone(tmp_path, done, "a.tar.bz2", "no archive that can be read")
    assert there(tmp_path, "b") == FILES


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", ["flipped", "cut"])
def test_whatever_is_damaged_in_an_archive_no_wrong_file_gets_a_name(tmp_path: Path, kind: str, way: str) -> None:
    whole, draw = archive_of(kind), random.Random(f"{kind} {way}")
    # A plain tar has no checksum of its own: the store's tells.
    version = etag(whole) if kind == "tar" and way == "flipped" else "1"
    for number in range(60):
        data = bytearray(whole)
        if way == "cut":
            # The zeros at a tar's very end may be missing.
            del data[draw.randrange(len(whole) - (10_240 if kind == "tar" else 20)) :]
        else:
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        objects = Objects(**{f"a_{kind.replace('.', '_')}": (bytes(data), version)})
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("flatout.stage.sources.retries.WRONG_TRIES", 1)
            done = stage(objects, tmp_path / f"dest{number}", Selection(), Options(unpack=True))
        files = {path.name: path.read_bytes() for path in (tmp_path / f"dest{number}").rglob("*") if path.is_file()}
        if way == "cut" or done.n_failed:
            assert (done.n_failed, files) == (1, {}), (number, done.failed_examples)
        else:
            assert files == {name: data for name, data in FILES.items() if name in files}
            assert len(files) + done.n_refused == len(FILES)


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("a compression that Python lacks", "compression"),
        ("an encrypted member", "encrypted"),
        ("a wrong checksum", "CRC"),
        ("a size that is not true", "CRC-32|came where"),
        ("a member of 8 EiB", "may be written|came where|CRC"),
    ],
)
def test_a_zip_that_lies_or_that_python_cannot_read_fails_alone(tmp_path: Path, what: str, said: str) -> None:
    data = bytearray(zip_of(list(FILES.items()), zipfile.ZIP_STORED))
    at = data.rindex(b"PK\x01\x02", 0, data.rindex(b"5.jpg"))  # its object in the directory
    local = struct.unpack_from("<I", data, at + 42)[0]
    if "compression" in what:
        struct.pack_into("<H", data, at + 10, 9)
        struct.pack_into("<H", data, local + 8, 9)
    elif "encrypted" in what:
        struct.pack_into("<H", data, at + 8, 1)
    elif "checksum" in what:
        struct.pack_into("<I", data, at + 16, 12345)
    else:
        struct.pack_into("<I", data, at + 24, 100 if "true" in what else 0xFFFFFFF0)
    done = unpacked(tmp_path, a_zip=bytes(data))
    assert done.n_failed == 1 and any(word in done.failed_examples[0] for word in said.split("|")), done.failed_examples
    assert there(tmp_path) == {}


def test_a_sparse_member_of_exbibytes_fails_alone(tmp_path: Path) -> None:
    info = tarfile.TarInfo("huge")
    info.type = tarfile.GNUTYPE_SPARSE
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[386:410] = b"00000000000\0" + b"00000000000\0"
    header[483:495] = tarfile.itn(1 << 62, 12, tarfile.GNU_FORMAT)
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    done = unpacked(tmp_path, a_tar=bytes(header) + tar_of(list(FILES.items())))
    failed_alone(tmp_path, done, "a.tar", "may be written")


def special(name: str, kind: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.create_system, info.external_attr = 3, (kind | 0o777) << 16
    return info


def test_links_and_devices_are_left_out_and_named(tmp_path: Path) -> None:
    inside: list[tuple[str | zipfile.ZipInfo, bytes]] = [("1.jpg", b"one"), (special("link", stat.S_IFLNK), b"/etc")]
    inside.append((special("device", stat.S_IFBLK), b""))
    tar: list[Member] = [("1.jpg", b"one")]
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE):
        info = tarfile.TarInfo(f"odd{kind.decode()}")
        info.type, info.linkname = kind, "1.jpg"
        tar.append((info, b""))
    done = unpacked(tmp_path, a_zip=zip_of(inside), b_tar=tar_of(tar))
    assert (done.n_failed, done.n_refused) == (0, 6) and all(
        "link or a device" in text for text in done.refused_examples
    )
    assert there(tmp_path, "a") == there(tmp_path, "b") == {"1.jpg": b"one"}


@pytest.mark.parametrize("name", ["../out", "/out", "a/../../out", "x\x1b[2J", "tab\t", "caf\udce9"])
def test_names_that_lead_out_or_are_no_text_are_left_out_and_named(tmp_path: Path, name: str) -> None:
    done = unpacked(tmp_path, a_tar=tar_of([(name, b"bad"), ("good", b"good")]))
    assert (done.n_failed, done.n_refused) == (0, 1) and there(tmp_path) == {"good": b"good"}
    assert done.refused_examples[0].isprintable()
    assert {path.name for path in tmp_path.iterdir()} <= {"source", "dest", ".dest.flatout-stage"}


def test_an_archive_in_an_archive_stays_one(tmp_path: Path) -> None:
    inner = archive_of("tar.gz")
    assert unpacked(tmp_path, a_tar=tar_of([("b.tar.gz", inner)])).n_failed == 0
    assert there(tmp_path) == {"b.tar.gz": inner}


@pytest.mark.parametrize("make", [tar_of, zip_of])
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_of_members_of_one_name_the_last_counts_and_that_is_said(
    tmp_path: Path, make: Callable[[Sequence[tuple[str, bytes]]], bytes]
) -> None:
    data = make([("1.jpg", b"first"), ("2.jpg", b"two"), ("./1.jpg", b"last")])
    done = unpacked(tmp_path, **{"a_tar" if make is tar_of else "a_zip": data})
    assert there(tmp_path) == {"1.jpg": b"last", "2.jpg": b"two"}
    assert done.n_refused == 1 and "several times" in done.refused_examples[0]


def test_a_folder_of_the_archive_s_name_is_left_out_only_where_it_holds_all(tmp_path: Path) -> None:
    done = unpacked(tmp_path, a_tar=tar_of([("a/1.jpg", b"inner"), ("1.jpg", b"outer")]))
    assert done.n_failed == 0 and there(tmp_path) == {"a/1.jpg": b"inner", "1.jpg": b"outer"}


def test_members_of_two_archives_and_a_folder_that_meet_are_named_each_time(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "a").mkdir(parents=True)
    (source / "a/1.jpg").write_bytes(b"folder")
    archives = {
        "a_tar": tar_of([("1.jpg", b"tar"), ("2.jpg", b"tar")]),
        "a_zip": zip_of([("1.jpg", b"zip"), ("2.jpg", b"zip"), ("3.jpg", b"zip")]),
    }
    for _ in range(4):
        done = unpacked(tmp_path, **archives)
        # Two of three lose 1.jpg, one of two 2.jpg; what is there is of one of them.
        assert done.n_failed == 3, done.failed_examples
        assert sorted(failure.partition(":")[0] for failure in done.failed_examples) == [
            "a/1.jpg",
            "a/1.jpg",
            "a/2.jpg",
        ]
        assert there(tmp_path)["1.jpg"] in (b"folder", b"tar", b"zip") and there(tmp_path)["3.jpg"] == b"zip"
    (source / "a.zip").unlink()
    (source / "a/1.jpg").unlink()
    del archives["a_zip"]
    done = unpacked(tmp_path, Options(unpack=True, prune=True), **archives)
    assert done.n_failed == 0 and there(tmp_path) == {"1.jpg": b"tar", "2.jpg": b"tar"}


def test_a_file_that_is_kept_is_not_replaced_while_it_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "source/a").mkdir(parents=True)
    (tmp_path / "source/a/1.jpg").write_bytes(b"folder")
    unpacked(tmp_path)

    def slowly(done: Complete, version: str, path: Path) -> bool:
        found = is_complete(done, version, path)
        time.sleep(0.3)  # in which the archive would take the name
        return found

    monkeypatch.setattr("flatout.stage.transfer.is_complete", slowly)
    done = unpacked(tmp_path, a_tar=tar_of([("1.jpg", b"tar")]))
    assert done.n_failed == 1 and done.failed_examples[0].startswith("a/1.jpg: ")


def test_files_that_staging_did_not_make_are_kept_and_named(tmp_path: Path) -> None:
    (tmp_path / "dest/a").mkdir(parents=True)
    (tmp_path / "dest/a/1.jpg").write_bytes(b"theirs")
    (tmp_path / "dest/a/2.jpg").write_bytes(b"two")
    (tmp_path / "dest/a/3.jpg").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "dest/b").symlink_to(tmp_path / "elsewhere")
    members: list[Member] = [("1.jpg", b"one"), ("2.jpg", b"two"), ("3.jpg", b"three"), ("4.jpg", b"four")]
    done = unpacked(tmp_path, a_tar=tar_of(members), b_tar=tar_of([("1.jpg", b"one")]))
    assert sorted(failure.partition(":")[0] for failure in done.failed_examples) == ["a/1.jpg", "a/3.jpg", "b/1.jpg"]
    assert there(tmp_path) == {"1.jpg": b"theirs", "2.jpg": b"two", "4.jpg": b"four"}
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_new_version_that_is_damaged_leaves_the_old_files_also_when_pruning(tmp_path: Path) -> None:
    unpacked(tmp_path, a_tar=archive_of("tar"))
    new = bytearray(tar_of([(name, b"new" + data) for name, data in FILES.items()]))
    new[new.index(b"9.jpg\0") + 100] ^= 1
    done = unpacked(tmp_path, Options(unpack=True, prune=True), a_tar=bytes(new))
    assert (done.n_failed, done.n_gone) == (1, 0) and there(tmp_path) == FILES
    fewer = {name: data for name, data in FILES.items() if name not in ("3.jpg", "7.jpg")}
    done = unpacked(tmp_path, Options(unpack=True, prune=True), a_tar=tar_of(list(fewer.items())))
    assert (done.n_failed, done.n_gone) == (0, 2) and there(tmp_path) == fewer


@pytest.mark.parametrize("kind", ["one large", "many"])
def test_an_archive_that_would_fill_the_disk_stops_before_the_watched_space(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    zeros, room = bytes(10 << 20), 24 << 20
    members = [(f"{number}.bin", zeros) for number in range(30)] if kind == "many" else [("0.bin", zeros * 30)]
    (tmp_path / "source").mkdir()
    (tmp_path / "source/a.zip").write_bytes(zip_of(members))
    (tmp_path / "dest").mkdir()
    written: list[int] = []

    def counted(fd: int, block: bytes) -> None:
        written.append(os.write(fd, block))

    def disk(folder: object) -> SimpleNamespace:
        """A disk that nobody else uses."""
        return SimpleNamespace(f_bavail=(10 << 30) - sum(written), f_frsize=1, f_blocks=20 << 30)

    monkeypatch.setattr("flatout.stage.archives.unfinished.write_all", counted)
    monkeypatch.setattr(space.os, "statvfs", disk)
    options = Options(unpack=True, min_free=(10 << 30) - room)
    if kind == "many":
        with pytest.raises(DiskFull, match=r"a\.zip"):
            stage(FolderSource(tmp_path / "source"), tmp_path / "dest", Selection(), options)
    else:
        done = stage(FolderSource(tmp_path / "source"), tmp_path / "dest", Selection(), options)
        assert done.n_failed == 1 and "may be written" in done.failed_examples[0]
    assert sum(written) == (20 << 20 if kind == "many" else 0)  # of 300 MiB
    assert there(tmp_path) == {} and not list((state_folder(tmp_path / "dest") / "unpacking").iterdir())


def stage_until_killed(source: Path, dest: Path) -> None:
    stage(FolderSource(source), dest, Selection(), Options(unpack=True, jobs=3))


def kill_many(source: Path, dest: Path, expected: dict[str, bytes]) -> None:
    """In a process of its own, without threads: it forks those that are killed."""
    draw = random.Random(3)
    for _ in range(100):
        child = os.fork()
        if not child:
            try:
                stage_until_killed(source, dest)
            finally:
                os._exit(0)
        time.sleep(draw.uniform(0, 0.15))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        found = {str(path.relative_to(dest)): path.read_bytes() for path in dest.rglob("*") if path.is_file()}
        wrong = {name for name, data in found.items() if expected.get(name) != data}
        assert not wrong, wrong


@pytest.mark.slow
def test_killed_at_random_moments_no_wrong_file_has_a_name_and_the_next_staging_completes(tmp_path: Path) -> None:
    source, dest = tmp_path / "source", tmp_path / "dest"
    source.mkdir()
    for kind in KINDS:
        (source / f"{kind.replace('.', '-')}.{kind}").write_bytes(archive_of(kind))
    expected = {f"{kind.replace('.', '-')}/{name}": data for kind in KINDS for name, data in FILES.items()}
    driver = multiprocessing.get_context("spawn").Process(target=kill_many, args=(source, dest, expected))
    driver.start()
    driver.join()
    assert driver.exitcode == 0
    done = stage(FolderSource(source), dest, Selection(), Options(unpack=True))
    assert (done.n_failed, done.total_files) == (0, len(expected)) and there(tmp_path, ".") == expected
