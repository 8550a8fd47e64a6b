"""The copy of the data that a trial reads: made where it fits and pays, and gone again when it was not kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from flatout.errors import FlatoutError
from flatout.machine.mounts import Mount
from flatout.results import Gain, Remedy
from flatout.stage.destination.safe_paths import state_folder
from flatout.trials import local_copy
from flatout.trials.local_copy import Cost, LocalCopy
from flatout.trials.result import Trial

GAIN = Gain(2.0, 1.8, 2.2)
REMEDY = Remedy("local_copy", "storage_latency", "copy it", "identical", "low", GAIN, 0, "", "", mechanics="local_copy")
TRIAL = Trial("local_copy", "copy it", "identical", {}, GAIN, "kept", "measured")


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that counts as a mount of its own."""
    for number in range(30):
        path = tmp_path / f"slow/c{number % 3}/{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes([number]) * 2_000)
    mounts = [Mount("/", "nvme", "", "ext4", False), Mount(str(tmp_path / "slow"), "rclone", "", "fuse", True)]
    monkeypatch.setattr(local_copy, "read_mounts", lambda root: mounts)
    return tmp_path / "slow"


def make(tmp_path: Path, left_s: float = 600.0, to: Path | None = None, given: str | None = None) -> LocalCopy:
    (tmp_path / "fix").mkdir(exist_ok=True)
    return LocalCopy(tmp_path / "fix", lambda: left_s, given=given, to=to)


def test_it_is_staged_read_and_removed_when_it_was_not_kept(slow: Path, tmp_path: Path) -> None:
    copy = make(tmp_path)
    settings = copy.settings(REMEDY, {"data_folder": str(slow)})
    assert settings == {"read_from": f"{slow}={tmp_path / 'fix/staged'}"}
    assert not (tmp_path / "fix/staged").exists()  # it is only looked at so far
    copy.prepare(settings)
    assert copy.cost is not None and (copy.cost.files, copy.cost.bytes) == (30, 60_000)
    assert len(list((tmp_path / "fix/staged").rglob("*.jpg"))) == 30
    why = copy.with_cost(TRIAL, 100.0, 200.0, {"dataset_len": 30}).why
    assert why.startswith("measured; staging took ") and "30 files" in why
    assert "it pays for itself after" in why and "passes over the data" in why
    slower = copy.with_cost(TRIAL, 100.0, 90.0, {"dataset_len": 30})
    assert "pays" not in slower.why and slower.cost["files"] == 30
    copy.clean_up(settings)  # it was kept
    assert (tmp_path / "fix/staged").exists()
    copy.clean_up({})
    assert not (tmp_path / "fix/staged").exists() and not state_folder(tmp_path / "fix/staged").exists()


def test_what_lies_where_the_user_lets_copies_be_made_is_never_removed(slow: Path, tmp_path: Path) -> None:
    (tmp_path / "fast").mkdir()
    (tmp_path / "fast/precious.txt").write_text("not ours")
    copy = make(tmp_path, to=tmp_path / "fast")
    settings = copy.settings(REMEDY, {"data_folder": str(slow)})
    assert isinstance(settings, dict)
    copy.prepare(settings)
    assert len(list((tmp_path / "fast").rglob("*.jpg"))) == 30
    assert "another folder" in str(copy.settings(REMEDY, {"data_folder": str(slow / "c1")}))
    copy.clean_up({})
    assert [path.name for path in (tmp_path / "fast").iterdir()] == ["precious.txt"]


def test_when_it_is_earned() -> None:
    cost = Cost(files=1, bytes=1, seconds=10.0, predicted_s=8.0)
    assert cost.pays_after(100.0, 200.0) == pytest.approx(2_000)  # saves 5 ms a sample
    assert cost.pays_after(100.0, 100.0) == float("inf")


def test_where_none_is_made_the_reason_is_told(slow: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loader = {"data_folder": str(slow)}
    assert "was not seen" in str(make(tmp_path).settings(REMEDY, {}))
    assert "on the same disk" in str(make(tmp_path, to=slow / "copy").settings(REMEDY, loader))
    assert "takes about" in str(make(tmp_path, left_s=1e-9).settings(REMEDY, loader)) or "listing" in str(
        make(tmp_path, left_s=1e-9).settings(REMEDY, loader)
    )
    monkeypatch.setattr("flatout.stage.outlook.free_bytes", lambda folder, keep=None: 1_000)
    assert "does not fit" in str(make(tmp_path).settings(REMEDY, loader))


def test_a_copy_that_is_given_is_used_and_never_removed(slow: Path, tmp_path: Path) -> None:
    copy = make(tmp_path, given=f"{slow}={tmp_path}")
    settings = copy.settings(REMEDY, {})
    assert settings == {"read_from": f"{slow}={tmp_path}"}
    copy.prepare(settings)
    copy.clean_up({})
    assert tmp_path.exists() and copy.with_cost(TRIAL, 1.0, 2.0, {}) == TRIAL


def test_files_that_cannot_be_read_end_it(slow: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from flatout.stage.sources.failures import Failure
    from flatout.stage.sources.folder import FolderSource

    copy = make(tmp_path)
    settings = copy.settings(REMEDY, {"data_folder": str(slow)})
    assert isinstance(settings, dict)

    def gone(*_: object, **__: object) -> bytes:
        raise Failure("gone", "slow: gone")

    monkeypatch.setattr(FolderSource, "stream", gone)
    with pytest.raises(FlatoutError, match="30 files could not be staged, such as slow: gone"):
        copy.prepare(settings)
    copy.clean_up({})
    assert not (tmp_path / "fix/staged").exists()
