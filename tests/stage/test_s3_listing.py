"""Listings of S3: hostile keys are left out and named, bad pages are asked for again, nobody else sees a token."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flatout import cli
from flatout.errors import StagingFailed, UsageError
from flatout.stage.selection import Selection
from flatout.stage.sources import retries
from flatout.stage.sources.base import Source, StoreOptions
from flatout.stage.sources.failures import Failure
from flatout.stage.sources.open import open_source
from flatout.stage.sources.s3.listing import page_of
from flatout.stage.staging import stage
from tests.stage.fake_s3 import BUCKET, Answer, FakeS3, fake_s3

GOOD = {f"set/c{n % 2}/{n}.jpg": b"x" * (n + 1) for n in range(8)}
HOSTILE = [
    "set/../up.jpg", "set/c0/../../up.jpg", "set/./x.jpg", "set/c0//x.jpg", "set//x.jpg", "set/a\nb.jpg", "set/a\rb",
    "set/tab\tx", "set/\x1b[31mred\x1b[0m.jpg", "set/nul\x00x", "set/\x7f", "set/full/", "set/" + 300 * "n",
    "set/\x01\x02\x03", "set/..", "set/.", "set/c1/..",
]  # fmt: skip
SIGNATURE = "X-Amz-Signature"


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDTEST")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "topsecret")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "sessiontoken")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setattr(retries, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(retries, "LONGEST_PAUSE_S", 0.01)


@pytest.fixture
def bucket() -> Iterator[FakeS3]:
    with fake_s3(dict(GOOD)) as made:
        yield made


def source_of(bucket: FakeS3, prefix: str = "set") -> Source:
    return open_source(f"s3://{BUCKET}/{prefix}", StoreOptions(endpoint=bucket.endpoint))


def keys_of(bucket: FakeS3, prefix: str = "set") -> list[str]:
    return [obj.key for obj in source_of(bucket, prefix).objects()]


def command(bucket: FakeS3, destination: Path, *more: str, source: str = f"s3://{BUCKET}/set") -> int:
    return cli.main(["stage", source, str(destination), "--endpoint", bucket.endpoint, "--quiet", *more])


@pytest.mark.parametrize("page", [1, 3, 1000])
def test_hostile_keys_are_left_out_and_the_rest_arrives(bucket: FakeS3, tmp_path: Path, page: int) -> None:
    bucket.page = page
    bucket.objects |= dict.fromkeys(HOSTILE, b"evil")
    done = stage(source_of(bucket), tmp_path / "a/dest", Selection())
    assert (done.copied, done.n_failed, done.n_refused) == (len(GOOD), 0, len(HOSTILE))
    below = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.jpg")}
    assert below == {f"a/dest/{key.removeprefix('set/')}" for key in GOOD}
    again = stage(source_of(bucket), tmp_path / "a/dest", Selection())
    assert (again.copied, again.kept, again.n_refused) == (0, len(GOOD), len(HOSTILE))


def test_no_terminal_escape_of_a_key_or_a_server_is_printed(
    bucket: FakeS3, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    bucket.objects |= dict.fromkeys(HOSTILE, b"evil") | {"set/\u202egpj.exe": b"reordered"}

    def answer(method: str, path: str, query: dict[str, str]) -> Answer | None:
        if path.endswith("exe"):
            return 403, {}, b"<Error><Code>Access\x1b[31mDenied</Code><Message>\xc2\x9b31m no</Message></Error>"
        return None

    bucket.answer = answer
    assert command(bucket, tmp_path / "dest") == 1
    assert command(bucket, tmp_path / "dest", "--dry-run") == 0
    bucket.answer = lambda method, path, query: (403, {}, b"<Error><Code>A</Code><Message>\xc2\x9b2J</Message></Error>")
    assert command(bucket, tmp_path / "dest") == 1
    said = "".join(capfd.readouterr())
    assert "left out" in said and "failed:" in said
    assert not [c for c in said if (ord(c) < 32 and c != "\n") or 127 <= ord(c) < 160 or c == "\u202e"]


def test_markers_of_folders_are_no_files(bucket: FakeS3, tmp_path: Path) -> None:
    bucket.objects |= {"set/": b"", "set/c0/": b"", "set/empty/": b""}
    done = stage(source_of(bucket), tmp_path / "dest", Selection())
    assert (done.copied, done.n_failed, done.n_refused) == (len(GOOD), 0, 0)
    chosen = stage(source_of(bucket), tmp_path / "one", Selection(classes=2, seed=1))
    assert chosen.n_failed == 0


@pytest.mark.parametrize("failure", [503, 500, 429, 502, 0, "cut", "no listing", "empty"])
def test_a_page_that_fails_is_asked_for_again_and_nothing_twice(
    bucket: FakeS3, tmp_path: Path, failure: int | str
) -> None:
    bucket.page = 2
    seen: dict[str, int] = {}

    def answer(method: str, path: str, query: dict[str, str]) -> Answer | None:
        if "list-type" not in query:
            return None
        page = query.get("continuation-token", "")
        seen[page] = seen.get(page, 0) + 1
        if seen[page] > 2:
            return None
        if failure == "cut":
            return 200, {"Content-Length": "5000"}, b"<ListBucketResult><Con"
        if failure == "no listing":
            return 200, {}, b"<html>a portal wants you to sign in</html>"
        if failure == "empty":
            return 200, {}, b""
        return int(failure), {}, b"<Error><Code>SlowDown</Code></Error>"

    bucket.answer = answer
    done = stage(source_of(bucket), tmp_path / "dest", Selection())
    assert (done.copied, done.n_failed) == (len(GOOD), 0)
    assert list(seen.values()) == [3] * 4


def test_a_store_that_is_away_for_a_while_in_the_middle_loses_nothing(bucket: FakeS3, tmp_path: Path) -> None:
    tries: dict[str, int] = {}

    def answer(method: str, path: str, query: dict[str, str]) -> Answer | None:
        tries[path] = tries.get(path, 0) + 1
        return None if tries[path] > 20 else ((503, {"Retry-After": "0"}, b"") if tries[path] % 2 else (0, {}, b""))

    bucket.answer = answer
    done = stage(source_of(bucket), tmp_path / "dest", Selection())
    assert (done.copied, done.n_failed) == (len(GOOD), 0) and set(tries.values()) == {21}


def test_folders_are_asked_for_again_too(bucket: FakeS3) -> None:
    answers = iter([(503, {}, b""), (0, {}, b"")])
    bucket.answer = lambda method, path, query: next(answers, None)
    assert source_of(bucket).folders() == ["c0", "c1"]


@pytest.mark.parametrize("arguments", [[], ["--dry-run"], ["--classes", "2"], ["--splits", "c0"], ["--pack"]])
def test_a_listing_that_is_denied_is_one_line(
    bucket: FakeS3, tmp_path: Path, arguments: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    denied = b"<Error><Code>AccessDenied</Code><Message>No.</Message><AWSAccessKeyId>AKIDTEST</AWSAccessKeyId></Error>"
    bucket.answer = lambda method, path, query: (403, {}, denied)
    assert command(bucket, tmp_path / "dest", *arguments) == 1
    said = capfd.readouterr().err
    assert said.count("\n") == 1 and "AccessDenied" in said and "AKIDTEST" not in said and "Traceback" not in said
    assert len(bucket.asked) == 1


def pages(bucket: FakeS3, listed: Callable[[int], list[str]], most: int | None = None) -> None:
    """Answer listings with pages of those keys, each with another token; ``most``: so many, else without end."""
    asked = itertools.count()

    def answer(method: str, path: str, query: dict[str, str]) -> Answer | None:
        if "list-type" not in query:
            return None
        number = next(asked)
        more = number + 1 != most
        rows = "".join(f"<Contents><Key>{key}</Key><Size>{len(GOOD[key])}</Size></Contents>" for key in listed(number))
        token = f"<NextContinuationToken>{number}</NextContinuationToken>" if more else ""
        text = f"<ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated>{token}{rows}</ListBucketResult>"
        return 200, {}, text.encode()

    bucket.answer = answer


@pytest.mark.parametrize("circle", [1, 2, 3, 7])
def test_a_listing_that_turns_in_a_circle_is_an_error(bucket: FakeS3, circle: int) -> None:
    pages(bucket, lambda number: [sorted(GOOD)[number % circle]])
    with pytest.raises(Failure, match="the same page"):
        keys_of(bucket)
    assert len(bucket.listings) <= 4 * circle


def test_a_listing_of_empty_pages_without_end_is_an_error(bucket: FakeS3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flatout.stage.sources.s3.listing.MOST_EMPTY", 20)
    pages(bucket, lambda number: [])
    with pytest.raises(Failure, match="20 pages without a key"):
        keys_of(bucket)


def test_empty_pages_in_between_do_not_end_a_listing(bucket: FakeS3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flatout.stage.sources.s3.listing.MOST_EMPTY", 4)
    keys = sorted(GOOD)
    pages(bucket, lambda number: [] if number % 4 else [keys[number // 4]], most=29)
    assert keys_of(bucket) == [key.removeprefix("set/") for key in keys]


def test_keys_in_no_order_are_all_listed(bucket: FakeS3) -> None:
    keys = sorted(GOOD, reverse=True)
    pages(bucket, lambda number: keys[2 * number : 2 * number + 2], most=4)
    assert keys_of(bucket) == [key.removeprefix("set/") for key in keys]


def test_a_key_that_two_pages_give_counts_once(bucket: FakeS3, tmp_path: Path) -> None:
    keys = sorted(GOOD)
    pages(bucket, lambda number: [*keys[2 * number : 2 * number + 4], keys[2 * number]], most=4)
    done = stage(source_of(bucket), tmp_path / "dest", Selection())
    assert (done.copied, done.kept, done.n_failed, done.total_files) == (len(GOOD), 0, 0, len(GOOD))


@pytest.mark.parametrize("size", ["-4", "1e3", "", "\u00b2", "\u0663", str(1 << 63), "9" * 5000, None])
def test_a_key_without_a_size_is_left_out_and_named_and_the_rest_comes(
    bucket: FakeS3, tmp_path: Path, size: str | None, capfd: pytest.CaptureFixture[str]
) -> None:
    def answer(method: str, path: str, query: dict[str, str]) -> Answer | None:
        if "list-type" not in query:
            return None
        said = "" if size is None else f"<Size>{size}</Size>"
        text = bucket.listing(query).replace("c1/3.jpg</Key><Size>4</Size>", f"c1/3.jpg</Key>{said}")
        return 200, {}, text.encode()

    assert command(bucket, tmp_path / "dest") == 0
    bucket.answer = answer
    bucket.objects["set/c1/new.jpg"] = b"new"
    del bucket.objects["set/c1/5.jpg"]
    assert command(bucket, tmp_path / "dest", "--prune") == 1
    said = capfd.readouterr()
    assert "failed: 'c1/3.jpg': the listing gives it no size" in said.err
    assert (tmp_path / "dest/c1/new.jpg").exists() and (tmp_path / "dest/c1/3.jpg").exists()
    assert (tmp_path / "dest/c1/5.jpg").exists() and "nothing was pruned" in said.out
    assert len(bucket.listings) == 2


@pytest.mark.parametrize(
    "listing", ["<ListBucketResult/>", "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"]
)
def test_a_listing_that_found_nothing_prunes_nothing(
    bucket: FakeS3, tmp_path: Path, listing: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(retries, "GIVE_UP_S", 0.05)
    assert command(bucket, tmp_path / "dest") == 0
    bucket.answer = lambda method, path, query: (200, {}, listing.encode())
    code = command(bucket, tmp_path / "dest", "--prune", "--prune-most", source=f"s3://{BUCKET}/set/")
    assert code == (2 if "IsTruncated" in listing else 1)
    assert len(list((tmp_path / "dest").rglob("*.jpg"))) == len(GOOD)


def test_a_server_that_gives_one_page_for_ever_is_given_up(bucket: FakeS3) -> None:
    def answer(method: str, path: str, query: dict[str, str]) -> Answer | None:
        text = bucket.listing({"prefix": "set/"}).replace(
            "<IsTruncated>false</IsTruncated>",
            "<IsTruncated>true</IsTruncated><NextContinuationToken>x</NextContinuationToken>",
        )
        return 200, {}, text.encode()

    bucket.answer = answer
    with pytest.raises(Failure, match="the same page"):
        keys_of(bucket)


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_another_server_never_sees_the_session_token(bucket: FakeS3, tmp_path: Path, status: int) -> None:
    with fake_s3(dict(GOOD)) as other:
        away = {"Location": f"{other.endpoint}/{BUCKET}/set/c0/0.jpg"}
        bucket.answer = lambda method, path, query: (status, away, b"")
        with pytest.raises(StagingFailed, match="redirects elsewhere"):
            stage(source_of(bucket), tmp_path / "dest", Selection())
        bucket.answer = lambda method, path, query: None if "list-type" in query else (status, away, b"")
        done = stage(source_of(bucket), tmp_path / "dest", Selection())
        assert (done.copied, done.n_failed) == (0, len(GOOD))
        assert other.asked == []


def test_what_follows_a_bucket_is_the_prefix_with_every_character(bucket: FakeS3) -> None:
    bucket.objects |= {"set#1/a": b"1", "q?x/a": b"2", "50%/a": b"3", "a%20b/a": b"4", "a b/a": b"5", "a+b/a": b"6"}
    for prefix in ("set#1", "q?x", "50%", "a%20b", "a b", "a+b"):
        opened = source_of(bucket, prefix)
        (obj,) = opened.objects()
        assert obj.key == "a" and opened.read(obj) == bucket.objects[f"{prefix}/a"]


def test_the_address_of_one_object_brings_it(bucket: FakeS3, tmp_path: Path) -> None:
    done = stage(source_of(bucket, "set/c1/3.jpg"), tmp_path / "dest", Selection())
    assert done.copied == 1 and (tmp_path / "dest/3.jpg").read_bytes() == GOOD["set/c1/3.jpg"]
    assert stage(source_of(bucket, "set/c1/3.jpg"), tmp_path / "dest", Selection()).kept == 1


@pytest.mark.parametrize("arguments", [[], ["--dry-run"], ["--pack"]])
@pytest.mark.parametrize("prefix", ["sett", "set/c1/33.jpg", "set/c1/3.jpg/"])
def test_a_mistyped_address_is_an_error_that_leaves_nothing(
    bucket: FakeS3, tmp_path: Path, prefix: str, arguments: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert command(bucket, tmp_path / "dest", *arguments, source=f"s3://{BUCKET}/{prefix}") == 2
    said = capfd.readouterr().err
    assert said.count("\n") == 1 and f"s3://{BUCKET}/{prefix}".rstrip("/") in said
    assert not [path for path in tmp_path.iterdir() if "dest" in path.name]


def test_patterns_that_match_nothing_are_an_error(bucket: FakeS3, tmp_path: Path) -> None:
    assert command(bucket, tmp_path / "dest", "--include", "*.png") == 2


@pytest.mark.parametrize(
    "source",
    [
        f"s3://{BUCKET}/x?AWSAccessKeyId=AKIDSECRET&Signature=s3cr3t&Expires=1",
        f"s3://{BUCKET}/x?X-Amz-Credential=AKIDSECRET&X-Amz-Signature=s3cr3t",
        "s3://AKIDSECRET:s3cr3t@bucket/x",
        "ftp://AKIDSECRET:s3cr3t@host/x",
        "gs://AKIDSECRET:s3cr3t@bucket/x",
        "https://AKIDSECRET:s3cr3t@host/x.txt",
    ],
)
def test_credentials_in_an_address_are_refused_and_not_shown(
    bucket: FakeS3, tmp_path: Path, source: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert command(bucket, tmp_path / "dest", source=source) == 2
    said = capfd.readouterr().err
    assert said.count("\n") == 1 and "s3cr3t" not in said and "AKIDSECRET" not in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("endpoint", ["http://user:s3cr3t@127.0.0.1:9", "http://127.0.0.1:9?key=s3cr3t", "http://[::1",
                                      "http://h:port", "localhost:9000", "ftp://h", "http://"])  # fmt: skip
@pytest.mark.parametrize("by", ["option", "environment"])
def test_an_endpoint_that_is_none_or_holds_credentials_is_refused_and_not_shown(
    tmp_path: Path, endpoint: str, by: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["stage", f"s3://{BUCKET}/x", str(tmp_path / "dest")]
    if by == "option":
        words += ["--endpoint", endpoint]
    else:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    assert cli.main(words) == 2
    said = capfd.readouterr().err
    assert said.count("\n") == 1 and "--endpoint" in said and "s3cr3t" not in said


def test_a_server_that_is_not_there_is_given_up_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flatout.stage.sources.retries.NEVER_ANSWERED_S", 0.2)
    opened = open_source(f"s3://{BUCKET}", StoreOptions(endpoint="http://127.0.0.1:9"))
    with pytest.raises(Failure, match=r"refused \(tried \d+ times\)"):
        list(opened.objects())


def test_a_denied_object_does_not_end_the_rest(bucket: FakeS3, tmp_path: Path) -> None:
    bucket.answer = lambda method, path, query: (403, {}, b"") if path.endswith("/3.jpg") else None
    done = stage(source_of(bucket), tmp_path / "dest", Selection())
    assert (done.copied, done.n_failed) == (len(GOOD) - 1, 1) and "403" in done.failed_examples[0]


def test_no_signature_is_in_summary_or_state(bucket: FakeS3, tmp_path: Path) -> None:
    done = stage(source_of(bucket), tmp_path / "dest", Selection())
    assert all(SIGNATURE in query for _, _, query in bucket.asked)
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    for secret in ("AKIDTEST", "topsecret", "sessiontoken", SIGNATURE):
        assert secret not in json.dumps(done.as_json()) and secret.encode() not in kept


@pytest.mark.parametrize(
    "body",
    [
        b"", b"<", b"\xff\xfe<", b"<Error/>", b"<ListBucketResult>", b"\x00" * 100,
        b"<ListBucketResult/>",
        b"<ListBucketResult><Contents><Key>a</Key><Size>1</Size></Contents></ListBucketResult>",
        b"<ListBucketResult><IsTruncated>maybe</IsTruncated></ListBucketResult>",
        b"<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
        b'<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;">]><ListBucketResult>&b;</ListBucketResult>',
        b'<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><ListBucketResult>&a;</ListBucketResult>',
    ],
)  # fmt: skip
def test_what_is_no_listing_is_not_taken_for_one(body: bytes) -> None:
    assert page_of(body) is None


def test_a_listing_without_a_token_goes_on_behind_the_last_key() -> None:
    page = page_of(
        b"<ListBucketResult><IsTruncated>true</IsTruncated><Contents><Key>a+b</Key><Size>1</Size></Contents>"
        b"</ListBucketResult>"
    )
    assert page is not None and page.next == {"start-after": "a+b"} and page.objects[0][0] == "a+b"


def test_an_option_out_of_range_is_an_error(bucket: FakeS3, tmp_path: Path) -> None:
    for words in (["--concurrency", "100000"], ["--concurrency", "0"]):
        assert command(bucket, tmp_path / "dest", *words) == 2
    with pytest.raises(UsageError, match="empty"):
        open_source("")
    assert cli.main(["stage", "", str(tmp_path / "dest")]) == 2 == cli.main(["stage", str(tmp_path), ""])
