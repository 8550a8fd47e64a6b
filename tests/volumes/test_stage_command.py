"""``flatout stage --volumes`` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flatout.cli import main
from tests.volumes.synthetic import volume, write_slices


def run(*arguments: object) -> int:
    return main(["stage", *map(str, arguments)])


def test_slices_are_tried_staged_and_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image, labels = volume((40, 48, 48))
    write_slices(tmp_path / "slices" / "images" / "s1", image)
    write_slices(tmp_path / "slices" / "labels" / "s1", labels)
    what = (tmp_path / "slices", tmp_path / "staged", "--volumes", "--patch", "64", "--ignore", "2")
    assert run(*what, "--dry-run") == 0
    assert "Nothing was converted." in capsys.readouterr().out and not (tmp_path / "staged").exists()
    assert run(*what) == 0
    out = capsys.readouterr().out
    assert out.startswith("1 volume staged in ") and "labels 0, 1; 2 is ignored" in out
    assert "chunks of 16³ for patches of 64³: 1.9 bytes read per byte of a patch (computed)" in " ".join(out.split())
    assert max(map(len, out.splitlines())) <= 80 or str(tmp_path) in max(out.splitlines(), key=len)
    assert run(*what, "--json", "--quiet") == 0
    assert json.loads(capsys.readouterr().out)["n_arrays_kept"] == 2
    assert run(*what[:2], "--volumes", "--check") == 0
    (tmp_path / "staged" / "s1" / "label.zarr" / "c" / "0" / "0" / "0").unlink()
    assert run(*what[:2], "--volumes", "--check") == 1
    assert "label.zarr/c/0/0/0" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--volumes", "--pack"), "--pack is not of volumes"),
        (("--volumes", "--patch", "12x4"), "--patch 12x4: give one edge"),
        (("--volumes", "--compress", "lz4"), "--compress lz4: give auto, none, zstd"),
        (("--ignore", "2"), "give --volumes with them"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    options: tuple[str, ...], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, tmp_path / "staged", *options) == 2
    assert message in capsys.readouterr().err
