"""The source distribution: what is a link in the repository is there too."""

import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGED = "src/flatout/diagnose/causes.md"


def test_the_page_of_causes_is_one_file_that_also_the_source_distribution_holds(tmp_path: Path) -> None:
    assert (ROOT / "docs/causes.md").resolve() == (ROOT / PACKAGED).resolve()
    build = [sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", str(tmp_path / "dist")]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    with tarfile.open(next((tmp_path / "dist").glob("*.tar.gz"))) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = (path for path in tmp_path.iterdir() if path.name.startswith("flatout-"))
    page = (unpacked / "docs/causes.md").read_text("utf-8")
    assert page == (ROOT / PACKAGED).read_text("utf-8") == (unpacked / PACKAGED).read_text("utf-8")
