import gzip
import json
import zipfile
from pathlib import Path

import pytest

from flatout.cli import main
from tests.export.test_run_tracks import trained
from tests.record.rich import rich_run

BASE_NS = 1_789_000_000_000_000_000


def kernel_trace(run: Path, content: object) -> None:
    (run / "trace-100-1.json.gz").write_bytes(gzip.compress(json.dumps(content).encode()))


def test_a_run_becomes_one_file_and_the_command_says_how_to_open_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["trace", str(trained(tmp_path))]) == 0
    said = capsys.readouterr().out
    assert "synthetic.pftrace" in said and "ui.perfetto.dev" in said and "slices" in said
    assert all(len(line) <= 80 for line in said.splitlines())
    assert (tmp_path / "synthetic.pftrace").stat().st_size > 1000


def test_with_a_kernel_trace_both_go_into_one_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run = trained(tmp_path)
    kernel_trace(run, {"traceEvents": [], "baseTimeNanoseconds": BASE_NS})
    assert main(["trace", str(run)]) == 0
    with zipfile.ZipFile(tmp_path / "synthetic.zip") as archive:
        assert set(archive.namelist()) == {"flatout.pftrace", "kernels-0-trace-100-1.json.gz", "perfetto_manifest"}
        manifest = json.loads(archive.read("perfetto_manifest"))
    assert manifest["version"] == 1 and manifest["attributes"]["wall_clock_of_0_ns"] == BASE_NS
    assert "1 kernel trace" in capsys.readouterr().out


def test_a_kernel_trace_that_cannot_be_read_is_left_out_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run = trained(tmp_path)
    (run / "trace-100.json.gz").write_bytes(b"\x1f\x8bnot gzip")
    assert main(["trace", str(run)]) == 0
    assert "trace-100.json.gz cannot be read" in capsys.readouterr().out
    assert (tmp_path / "synthetic.pftrace").exists()


def test_kernel_traces_are_those_of_the_chosen_ranks(tmp_path: Path) -> None:
    run = rich_run(tmp_path)
    for pid in (100, 101):
        content = json.dumps({"traceEvents": [], "baseTimeNanoseconds": BASE_NS}).encode()
        (run / f"trace-{pid}-1.json.gz").write_bytes(gzip.compress(content))
    assert main(["trace", str(run), "--ranks", "1", "-o", str(tmp_path / "t.zip")]) == 0
    with zipfile.ZipFile(tmp_path / "t.zip") as archive:
        assert [name for name in archive.namelist() if name.startswith("kernels")] == ["kernels-0-trace-101-1.json.gz"]


def test_a_run_that_is_given_twice_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(trained(tmp_path))
    assert main(["trace", run, run, "-o", str(tmp_path / "t.pftrace")]) == 2
    assert "is given twice" in capsys.readouterr().err


def test_chrome_and_speedscope_files_are_json_with_every_slice_and_sample(tmp_path: Path) -> None:
    run = str(rich_run(tmp_path))
    chrome, stacks = tmp_path / "c.json", tmp_path / "s.json"
    assert main(["trace", run, "--format", "chrome", "-o", str(chrome)]) == 0
    events = json.loads(chrome.read_text())["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    assert spans and all(event["dur"] >= 0 for event in spans)
    assert {event["ph"] for event in events} >= {"X", "M", "C"}
    assert main(["trace", run, "--format", "speedscope", "-o", str(stacks)]) == 0
    found = json.loads(stacks.read_text())
    for profile in found["profiles"]:
        assert len(profile["samples"]) == len(profile["weights"]) and profile["endValue"] == sum(profile["weights"])
        assert all(0 <= frame < len(found["shared"]["frames"]) for stack in profile["samples"] for frame in stack)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--steps", "5"], "--steps 5: give the first and the last step"),
        (["--steps", "7:5"], "--steps 7:5: give the first and the last step"),
        (["--steps", "900:901"], "--steps 900:901: the run has 6 steps"),
        (["--ranks", "a"], "--ranks a: give ranks from 0 on"),
        (["--ranks", "5"], "nothing to write: no event of the run of ranks 5"),
        (["-o", "x.json"], "--format perfetto writes .pftrace or .zip"),
        (["-o", "nowhere/x.zip"], "there is no folder nowhere"),
        (["--format", "speedscope", "--ranks", "0"], "each process has a profile"),
        (["--format", "speedscope"], "no stack was sampled"),
        (["--format", "svg"], "svg"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_no_file(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    says: str,
) -> None:
    run = str(trained(tmp_path / "runs"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert main(["trace", run, *options]) == 2
    assert says in " ".join(capsys.readouterr().err.split())
    assert list((tmp_path / "here").iterdir()) == []


def test_a_file_is_not_overwritten_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = str(trained(tmp_path))
    (tmp_path / "synthetic.pftrace").write_text("mine")
    assert main(["trace", run]) == 2
    assert (tmp_path / "synthetic.pftrace").read_text() == "mine"
    assert main(["trace", run, "--force"]) == 0
    assert (tmp_path / "synthetic.pftrace").stat().st_size > 1000


def test_what_a_viewer_hardly_opens_is_refused_with_a_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("flatout.export.writing.LARGEST", 1000)
    run = str(trained(tmp_path))
    assert main(["trace", run]) == 2
    assert "--steps or --ranks, or give --full" in " ".join(capsys.readouterr().err.split())
    assert main(["trace", run, "--full"]) == 0
