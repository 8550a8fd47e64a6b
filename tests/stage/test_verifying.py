"""What bytes are compared with: only what the store says for certain, and the rest is called size only."""

from __future__ import annotations

import base64
import csv
import hashlib
import os
import random
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from flatout.stage.checksums import PART_BYTES, Checksum, checksum_of
from flatout.stage.destination.checking import check
from flatout.stage.progress import Summary
from flatout.stage.selection import Selection
from flatout.stage.sources.base import ObjectInfo, Source
from flatout.stage.sources.store_facts import Facts, facts_of
from flatout.stage.staging import stage
from flatout.stage.transfer import Options
from flatout.stage.verifying import usual_part

SMALL = random.Random(1).randbytes(10_000)
LARGE = random.Random(2).randbytes(PART_BYTES + 9_000_000)
S3 = {"x-amz-request-id": "1", "x-amz-server-side-encryption": "AES256"}
KMS = {**S3, "x-amz-server-side-encryption": "aws:kms"}


def md5(data: bytes) -> bytes:
    return hashlib.md5(data).digest()


def etag_of_parts(data: bytes, part: int) -> str:
    sums = [md5(data[at : at + part]) for at in range(0, len(data), part)]
    return f'"{md5(b"".join(sums)).hex()}-{len(sums)}"'


def base64_of(value: bytes) -> str:
    return base64.b64encode(value).decode()


def crc64nvme(data: bytes) -> str:
    from awscrt import checksums

    return base64_of(checksums.crc64nvme(data).to_bytes(8, "big"))


@dataclass
class Store(Source):
    """One object; the headers of a HEAD are given, those of its parts too."""

    data: bytes
    etag: str
    headers: dict[str, str] | None
    part: int | None = None
    flip: int | None = None  # the byte that comes wrong
    sent: list[bytes] = field(default_factory=list)
    address: str = "s3://test"

    def objects(self, prefix: str = "") -> Iterator[ObjectInfo]:
        yield ObjectInfo("one.bin", len(self.data), self.etag)

    def folders(self, prefix: str = "") -> list[str]:
        return []

    def stream(
        self, obj: ObjectInfo, buffer: memoryview, start: int = 0, length: int | None = None
    ) -> Iterator[memoryview]:  # type: ignore[override]
        data = bytearray(self.data)
        if self.flip is not None:
            data[self.flip] ^= 1
        end = len(data) if length is None else start + length
        for at in range(start, end, 1 << 20):
            yield memoryview(data)[at : min(at + (1 << 20), end)]

    def facts(self, obj: ObjectInfo, part: int | None = None) -> Facts | None:
        if self.headers is None or (part is not None and self.part is None):
            return None
        size = len(self.data) if part is None else self.part
        parts = {} if part is None else {"x-amz-mp-parts-count": self.etag.strip('"').partition("-")[2]}
        return facts_of({"Content-Length": str(size), "ETag": self.etag, **self.headers, **parts})


def staged(store: Store, folder: Path) -> Summary:
    return stage(store, folder / "dest", Selection(), Options(concurrency=1))


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flatout.stage.sources.retries._pause_s", lambda tries, failure: 0.0)


SHA = base64_of(hashlib.sha256(SMALL).digest())
CRC = {"x-amz-checksum-crc32": base64_of(zlib.crc32(LARGE).to_bytes(4, "big"))}
MIB = 1 << 20
OF_PARTS = base64_of(hashlib.sha256(b"".join(hashlib.sha256(LARGE[at : at + 7 * MIB]).digest()
                                              for at in range(0, len(LARGE), 7 * MIB))).digest())  # fmt: skip
COMPARED = {
    "md5": Store(SMALL, f'"{md5(SMALL).hex()}"', None),
    "sha256": Store(SMALL, '"0123456789abcdef0123456789abcdef"', {**KMS, "x-amz-checksum-sha256": SHA}),
    "crc64nvme": Store(LARGE, etag_of_parts(LARGE, 8 << 20), {**KMS, "x-amz-checksum-crc64nvme": crc64nvme(LARGE)}),
    "crc32": Store(LARGE, etag_of_parts(LARGE, 8 << 20), {**S3, **CRC}),
    "md5 of parts": Store(LARGE, etag_of_parts(LARGE, 6_000_000), S3, part=6_000_000),
    "sha256 of parts": Store(
        LARGE,
        f'"{"ab" * 16}-4"',
        {**KMS, "x-amz-checksum-sha256": f"{OF_PARTS}-4", "x-amz-checksum-type": "COMPOSITE"},
        part=7 * MIB,
    ),
}


@pytest.mark.parametrize("by", COMPARED)
def test_bytes_are_compared_with_what_the_store_offers(by: str, tmp_path: Path) -> None:
    store = COMPARED[by]
    summary = staged(store, tmp_path)
    assert (summary.n_failed, summary.verified) == (0, {by: 1})
    assert (tmp_path / "dest/one.bin").read_bytes() == store.data
    with open(summary.manifest, newline="", encoding="utf-8") as file:
        assert [row["verified"] for row in csv.DictReader(file)] == [by]
    found = check(tmp_path / "dest")
    assert (found.changed, found.verified) == ((), {by: 1})
    file = tmp_path / "dest/one.bin"
    file.write_bytes(b"\0" + file.read_bytes()[1:])
    assert check(tmp_path / "dest").changed == ("one.bin",)


@pytest.mark.parametrize("by", COMPARED)
def test_a_flipped_bit_is_found_and_nothing_is_noted(by: str, tmp_path: Path) -> None:
    whole = COMPARED[by]
    store = Store(whole.data, whole.etag, whole.headers, whole.part, flip=len(whole.data) // 2)
    summary = staged(store, tmp_path)
    assert (summary.n_failed, summary.total_files) == (1, 0) and "checksum" in summary.failed_examples[0]
    assert not (tmp_path / "dest/one.bin").exists()


def test_parts_of_a_usual_size_need_no_question(tmp_path: Path) -> None:
    assert staged(Store(LARGE, etag_of_parts(LARGE, 8 << 20), None), tmp_path).verified == {"md5 of parts": 1}
    small = tmp_path / "small"
    assert staged(Store(SMALL, etag_of_parts(SMALL, 8 << 20), None), small).verified == {"md5 of parts": 1}


NO_MD5 = {
    "keys of a key service": (SMALL, KMS),
    "keys of the client": (SMALL, {**S3, "x-amz-server-side-encryption-customer-algorithm": "AES256"}),
    "a server that does not speak S3": (SMALL, {"Server": "uvicorn"}),
    "parts with keys of a key service": (LARGE, KMS),
}


@pytest.mark.parametrize("why", NO_MD5)
def test_an_etag_that_is_no_md5_is_not_compared_and_that_is_said(why: str, tmp_path: Path) -> None:
    data, headers = NO_MD5[why]
    etag = f'"{"0123456789abcdef" * 2}{"-4" if data is LARGE else ""}"'
    summary = staged(Store(data, etag, headers), tmp_path)
    assert (summary.n_failed, summary.verified) == (0, {"size only": 1})
    assert (tmp_path / "dest/one.bin").read_bytes() == data
    assert check(tmp_path / "dest").changed == ()


def test_an_object_that_was_replaced_comes_in_its_new_version(tmp_path: Path) -> None:
    class Replaced(Store):
        def objects(self, prefix: str = "") -> Iterator[ObjectInfo]:
            yield ObjectInfo("one.bin", len(SMALL), f'"{md5(b"old").hex()}"')

    new = SMALL + b"more"
    summary = staged(Replaced(new, f'"{md5(new).hex()}"', S3), tmp_path)
    assert (summary.n_failed, summary.verified) == (0, {"md5": 1})
    assert (tmp_path / "dest/one.bin").read_bytes() == new


def test_an_answer_of_another_length_is_asked_for_again(tmp_path: Path) -> None:
    class Short(Store):
        def stream(self, *args: object, **named: object) -> Iterator[memoryview]:  # type: ignore[override]
            if not self.sent:
                self.sent.append(b"")
                yield memoryview(b"<Error/>")
            else:
                yield from super().stream(*args, **named)  # type: ignore[arg-type]

    summary = staged(Short(SMALL, f'"{md5(SMALL).hex()}"', S3), tmp_path)
    assert (summary.n_failed, summary.copied, summary.retries) == (0, 1, 1)


@pytest.mark.parametrize("kind", ["crc32", "crc32c", "crc64nvme"])
def test_the_crcs_of_parts_combine_to_that_of_the_file(kind: str, tmp_path: Path) -> None:
    data = os.urandom(2_500_000)
    (tmp_path / "file").write_bytes(data)
    how = Checksum(kind, 1_000_000, whole=True)
    parts = []
    for at in range(0, len(data), how.part_bytes):
        part = how.part()
        part.update(data[at : at + how.part_bytes])
        parts.append(part.digest())
    assert how.of(parts, len(data)) == checksum_of(tmp_path / "file", kind)


@pytest.mark.parametrize("like", ["", "md4:00", "crc32-of-parts-0:00", "crc32-of-parts-x:00", "crc32-of-parts-:00"])
def test_a_noted_checksum_of_no_known_kind_matches_nothing(like: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    assert checksum_of(tmp_path / "file", like) != like or not like


def test_the_size_of_parts_is_guessed_from_their_number() -> None:
    assert usual_part(40_000_000, 5) == 8 << 20
    assert usual_part(40_000_000, 8) == 5 << 20
    assert usual_part(100, 1) == 100
    assert usual_part(100, 3) is None
