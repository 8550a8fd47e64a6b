"""Answers are looked at before their bytes are used: the range, and the version that the server names."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from flatout.stage.checksums import PART_BYTES
from flatout.stage.selection import Selection
from flatout.stage.sources import http_get, retries
from flatout.stage.sources.base import ObjectInfo, Source, StoreOptions
from flatout.stage.sources.failures import Failure
from flatout.stage.sources.open import open_source
from flatout.stage.sources.store_facts import is_other_version, size_in
from flatout.stage.staging import stage
from tests.stage.fake_s3 import BUCKET, Answer, FakeS3, fake_s3

DATA = random.Random(1).randbytes(100_000)
MD5 = hashlib.md5(DATA).hexdigest()
START, LENGTH = 50_000, 1_000


@pytest.fixture(params=["sockets", "library"])
def bucket(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeS3]:
    monkeypatch.setattr(retries, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(retries, "LONGEST_PAUSE_S", 0.01)
    if request.param == "library":
        monkeypatch.setattr(http_get, "_is_plain", lambda server: False)
    with fake_s3({"one": DATA}) as made:
        yield made


def source_of(bucket: FakeS3) -> Source:
    return open_source(f"s3://{BUCKET}", StoreOptions(endpoint=bucket.endpoint, anonymous=True))


def answering(bucket: FakeS3, status: int, headers: dict[str, str], body: bytes) -> Source:
    bucket.answer = lambda method, path, query: (status, headers, body) if path.endswith("/one") else None
    return source_of(bucket)


WANTED = DATA[START : START + LENGTH]
RANGE = f"bytes {START}-{START + LENGTH - 1}/{len(DATA)}"


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Range": f"bytes 0-{LENGTH - 1}/{len(DATA)}"},
        {"Content-Range": f"bytes {START}-{START + LENGTH}/{len(DATA)}"},
        {"Content-Range": f"bytes {START + 1}-{START + LENGTH - 1}/{len(DATA)}"},
        {"Content-Range": f"items {START}-{START + LENGTH - 1}/{len(DATA)}"},
        {"Content-Range": f"bytes {'9' * 5000}-{START}/*"},
        {"Content-Range": "bytes */100000"},
        {"Content-Type": "multipart/byteranges; boundary=x"},
        {},
    ],
)
def test_a_206_that_does_not_name_the_range_asked_for_is_a_mismatch(bucket: FakeS3, headers: dict[str, str]) -> None:
    source = answering(bucket, 206, headers, DATA[:LENGTH])
    with pytest.raises(Failure) as refused:
        source.read(ObjectInfo("one", len(DATA), f'"{MD5}"'), START, LENGTH)
    assert refused.value.kind == "mismatch"


@pytest.mark.parametrize("said", [RANGE, RANGE.replace(f"/{len(DATA)}", "/*"), RANGE.replace("bytes", "Bytes")])
def test_a_206_with_the_range_asked_for_gives_its_bytes(bucket: FakeS3, said: str) -> None:
    source = answering(bucket, 206, {"content-RANGE": said}, WANTED)
    assert source.read(ObjectInfo("one", len(DATA), f'"{MD5}"'), START, LENGTH) == WANTED


def test_a_206_where_the_whole_object_was_asked_for_is_a_mismatch(bucket: FakeS3) -> None:
    source = answering(bucket, 206, {"Content-Range": RANGE}, WANTED)
    with pytest.raises(Failure) as refused:
        source.read(ObjectInfo("one", LENGTH, '"v"'))
    assert refused.value.kind == "mismatch"


@pytest.mark.parametrize("whole", [True, False])
def test_an_answer_of_another_version_is_said_to_be_changed(bucket: FakeS3, whole: bool) -> None:
    other = {"eTaG": '"Other"', "Content-Range": RANGE}
    source = answering(bucket, 200 if whole else 206, other, DATA if whole else WANTED)
    with pytest.raises(Failure) as refused:
        source.read(ObjectInfo("one", len(DATA), '"other"'), *(() if whole else (START, LENGTH)))
    assert refused.value.kind == "changed"


def test_all_of_an_object_of_another_version_is_not_cut_to_the_range(bucket: FakeS3) -> None:
    source = answering(bucket, 200, {"ETag": '"other"'}, DATA)
    with pytest.raises(Failure) as refused:
        source.read(ObjectInfo("one", len(DATA), f'"{MD5}"'), START, LENGTH)
    assert refused.value.kind == "changed"


@pytest.mark.parametrize(
    ("sent", "listed", "other"),
    [
        ('"a"', '"a"', False), ('"a"', '"b"', True), ('"a"', '"A"', True), ('W/"a"', '"a"', False),
        ('W/"a"', '"b"', True), ("", '"b"', False), ('"a"', "10:2.5", False), ("a", '"b"', False), ('"a"', "", False),
        (f'"{MD5}"', MD5, False), (f'"{MD5}-3"', f"{MD5}-3", False), (f'"{MD5}-3"', f"{MD5}-4", True),
        (f'"{MD5}"', "unreadable", False),
    ],
)  # fmt: skip
def test_etags_are_compared_without_quotes_and_weakness(sent: str, listed: str, other: bool) -> None:
    assert is_other_version(sent, listed) is other


@pytest.mark.parametrize("text", ["", "-4", "1e3", "²", "٣", "1.0", "0x1", "9" * 19, str(1 << 63), "1" * 5000])
def test_what_is_no_size_is_not_taken_for_one(text: str) -> None:
    assert size_in(text) is None
    assert size_in(str((1 << 63) - 1)) == (1 << 63) - 1


LARGE = random.Random(2).randbytes(PART_BYTES + 5_000_000)
UNKNOWN = "ab" * 16 + "-2"  # matches no parts


def lying(bucket: FakeS3, answer: object) -> Source:
    """A server of one large object, whose ranges are answered by ``answer(start, end)``."""
    bucket.objects = {"one": LARGE}
    usual = bucket.usual

    def all_answers(method: str, path: str, query: dict[str, str], headers: dict[str, str]) -> Answer:
        if "list-type" in query:
            text = bucket.listing(query).replace(hashlib.md5(LARGE).hexdigest(), UNKNOWN)
            return 200, {}, text.encode()
        if "Range" in headers:
            start, end = map(int, headers["Range"].removeprefix("bytes=").split("-"))
            return answer(start, end)  # type: ignore[operator,no-any-return]
        status, sent, body = usual(method, path, query, headers)
        return status, {**sent, "ETag": f'"{UNKNOWN}"'}, body

    bucket.usual = all_answers  # type: ignore[method-assign]
    return source_of(bucket)


@pytest.mark.parametrize("named", [True, False])
def test_a_server_that_sends_the_beginning_for_every_range_leaves_no_file(
    bucket: FakeS3, tmp_path: Path, named: bool
) -> None:
    def beginning(start: int, end: int) -> Answer:
        said = {"Content-Range": f"bytes 0-{end - start}/{len(LARGE)}"} if named else {}
        return 206, {"ETag": f'"{UNKNOWN}"', **said}, LARGE[: end - start + 1]

    done = stage(lying(bucket, beginning), tmp_path / "dest", Selection())
    assert (done.copied, done.n_failed) == (0, 1) and not (tmp_path / "dest/one").exists()


def test_two_versions_are_not_mixed_in_one_file(bucket: FakeS3, tmp_path: Path) -> None:
    def replaced(start: int, end: int) -> Answer:
        said = {"ETag": '"' + ("ab" if not start else "cd") * 16 + '-2"'}
        return 206, {**said, "Content-Range": f"bytes {start}-{end}/{len(LARGE)}"}, LARGE[start : end + 1]

    done = stage(lying(bucket, replaced), tmp_path / "dest", Selection())
    assert (done.copied, done.n_failed) == (0, 1) and not (tmp_path / "dest/one").exists()
    assert "replaced at the source" in done.failed_examples[0]


def test_a_checksum_of_parts_that_matches_no_size_of_parts_is_said(bucket: FakeS3, tmp_path: Path) -> None:
    def right(start: int, end: int) -> Answer:
        return 206, {"Content-Range": f"bytes {start}-{end}/{len(LARGE)}"}, LARGE[start : end + 1]

    done = stage(lying(bucket, right), tmp_path / "dest", Selection())
    assert done.n_failed == 0 and (tmp_path / "dest/one").read_bytes() == LARGE
    assert done.verified == {"size only (its checksum of parts could not be compared)": 1}
