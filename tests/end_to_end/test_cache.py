"""``flatout cache``: a training with workers whose second pass finds its files on the fast disk."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from flatout import cli
from flatout.commands.cache import CacheSummary, _line, _say
from flatout.probe.file_cache import counts
from tests.loader.photographs import make_class_folders

TRAIN = """
import sys, torch, torchvision
if __name__ == "__main__":
    shape = torchvision.transforms.Compose([torchvision.transforms.CenterCrop(48), torchvision.transforms.ToTensor()])
    data = torchvision.datasets.ImageFolder(sys.argv[1], shape)
    loader = torch.utils.data.DataLoader(data, batch_size=4, shuffle=True, num_workers=2)
    total = sum(float(images.sum()) for epoch in range(3) for images, labels in loader)
    print(f"{total:.1f}")
"""


@pytest.mark.slow
def test_the_second_pass_reads_from_the_cache_and_sees_the_same(tmp_path: Path) -> None:
    root = make_class_folders(tmp_path / "photographs", 4, 12, 64) / "train"
    (tmp_path / "train.py").write_text(TRAIN)
    training = [sys.executable, str(tmp_path / "train.py"), str(root)]
    plain = subprocess.run(training, capture_output=True, text=True, check=True)
    flatout = [sys.executable, "-m", "flatout", "cache", str(root), str(tmp_path / "cache")]
    done = subprocess.run(
        [*flatout, "--budget", "10MB", "--json", "--", *training], capture_output=True, text=True, check=True
    )
    counts = json.loads(done.stderr.splitlines()[-1])
    images = len(list(root.rglob("*.jpg")))
    # Processes count without a lock: a count is lost now and then.
    assert images * 0.9 <= counts["files"] <= images
    assert (counts["misses"], counts["hits"]) == (pytest.approx(images, rel=0.1), pytest.approx(2 * images, rel=0.1))
    assert 0 < counts["used_bytes"] <= counts["budget_bytes"]
    assert abs(float(done.stdout) - float(plain.stdout)) < 1e-3 * float(plain.stdout)
    again = subprocess.run([*flatout, "--", *training], capture_output=True, text=True, check=True)
    assert "(100%) came from the cache" in " ".join(again.stderr.split())


def test_the_exit_code_is_the_training_s_and_mistakes_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "slow").mkdir()
    words = ["cache", str(tmp_path / "slow"), str(tmp_path / "cache"), "--budget", "1MB"]
    assert cli.main([*words, "--", sys.executable, "-c", "raise SystemExit(7)"]) == 7
    assert "nothing was kept" in " ".join(capsys.readouterr().err.split())
    for wrong, said in (
        (["cache", str(tmp_path / "none"), str(tmp_path / "cache"), "--", "true"], "no such folder"),
        (["cache", str(tmp_path / "slow"), "--", "true"], "Missing argument 'FAST'"),
        (
            ["cache", str(tmp_path / "slow"), str(tmp_path / "slow/in"), "--", "true"],
            "the slow folder itself",
        ),
        (
            ["cache", str(tmp_path / "slow"), str(tmp_path / "c"), "--budget", "900TB", "--", "true"],
            "needed",
        ),
    ):
        assert cli.main(wrong) == 2
        assert said in capsys.readouterr().err


READ = """
import os, pathlib, sys
root = pathlib.Path(sys.argv[1])
for _ in range(2):
    for path in sorted(root.iterdir()):
        assert path.read_bytes() == path.name.encode() * 100
(root / "0").write_text("new")
assert open(root / "0").read() == "new"
(root / "beside").write_text("newer")
os.replace(root / "beside", root / "1")
assert (root / "1").read_text() == "newer"
print("torch" in sys.modules)
"""


def test_a_program_that_does_not_import_torch_is_cached_too(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "slow"
    root.mkdir()
    for name in "0123456789":
        (root / name).write_bytes(name.encode() * 100)
    (tmp_path / "read.py").write_text(READ)
    words = ["cache", str(root), str(tmp_path / "fast"), "--budget", "1MB", "--json"]
    assert cli.main([*words, "--", sys.executable, str(tmp_path / "read.py"), str(root)]) == 0
    out, err = capfd.readouterr()
    counts = json.loads(err.splitlines()[-1])
    assert out == "False\n" and counts["hits"] == 10


def test_the_cache_lies_in_a_folder_of_its_own_that_it_can_recognise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slow, fast = tmp_path / "slow", tmp_path / "fast"
    slow.mkdir()
    fast.mkdir()
    for name in ("state", "movie.mkv.part"):
        (fast / name).write_text("theirs")
    command = ["--budget", "1MB", "--", "true"]
    assert cli.main(["cache", str(slow), str(fast), *command]) == 0
    assert sorted(path.name for path in fast.iterdir()) == ["flatout-cache", "movie.mkv.part", "state"]
    assert {(fast / name).read_text() for name in ("state", "movie.mkv.part")} == {"theirs"}
    (tmp_path / "other/flatout-cache").mkdir(parents=True)
    (tmp_path / "other/flatout-cache/photo.part").write_text("theirs")
    (tmp_path / "alias").symlink_to(slow)
    capsys.readouterr()
    for source, at, said in (
        (slow, tmp_path / "other", "was not made by flatout"),
        (slow, tmp_path / "alias", "the slow folder itself"),
        (tmp_path / "alias", slow / "below", "the slow folder itself"),
        (fast / "flatout-cache", fast, "where copies are kept"),
    ):
        assert cli.main(["cache", str(source), str(at), *command]) == 2
        assert said in capsys.readouterr().err
    assert (tmp_path / "other/flatout-cache/photo.part").read_text() == "theirs" and not list(slow.iterdir())


@pytest.mark.parametrize("there", [False, True])
def test_on_a_full_disk_the_command_runs_uncached_and_nothing_is_left(
    there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def full(descriptor: int) -> None:
        os.write(descriptor, bytes(1000))
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(counts, "_allocate", full)
    slow, fast = tmp_path / "slow", tmp_path / "fast"
    slow.mkdir()
    if there:
        fast.mkdir()
        (fast / "photo").write_text("theirs")
    words = ["cache", str(slow), str(fast), "--budget", "1MB"]
    assert cli.main([*words, "--", sys.executable, "-c", "print('ran'); raise SystemExit(7)"]) == 7
    out, err = capfd.readouterr()
    assert out == "ran\n" and "nothing can be cached" in " ".join(err.split())
    assert cli.main([*words, "--json", "--", "true"]) == 0
    assert json.loads(capfd.readouterr().err.splitlines()[-1])["hits"] == 0
    assert {path.name for path in tmp_path.rglob("*")} == ({"slow", "fast", "photo"} if there else {"slow"})


def test_a_budget_that_does_not_fit_leaves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "slow").mkdir()
    words = ["cache", str(tmp_path / "slow"), str(tmp_path / "fast"), "--budget", "900TB"]
    assert cli.main([*words, "--", "true"]) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["slow"]


def test_the_summary_fits_in_80_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    counts = {"hits": 123_456, "misses": 98_765, "hit_bytes": 1 << 40, "files": 98_765, "used": 1 << 39}
    summary = CacheSummary.of(counts, 1 << 40, 0)
    _say(_line(summary, tmp_path, Path("/mnt/nvme/a/folder/with/a/long/name")))
    assert max(map(len, capsys.readouterr().err.splitlines())) <= 80
