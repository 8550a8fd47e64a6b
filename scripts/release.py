#!/usr/bin/env python3
"""Build the wheel and the source distribution of a release, and check them as a user would meet them.

The version is that of pyproject.toml. Nothing is tagged or published: the commands for that are printed at the end.

Usage: scripts/release.py [--check]  (--check: only whether this commit can be released)
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TRAINING = """
import torch

data = torch.utils.data.TensorDataset(torch.randn(512, 8), torch.randint(0, 2, (512,)))
model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(4):
    for x, y in torch.utils.data.DataLoader(data, batch_size=16):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
"""


class NotReady(Exception):
    """Why there can be no release, in one line."""


def check(version: str) -> None:
    """See that the commit can be released.

    Raises:
        NotReady: the tree is dirty, the tag is there, or the changelog is not that of the version.
    """
    if changed := output("git", "status", "--porcelain").splitlines():
        raise NotReady(f"{len(changed)} file(s) are not committed, such as '{changed[0][3:]}': commit or remove them")
    if output("git", "tag", "--list", f"v{version}"):
        raise NotReady(f"v{version} is tagged already: raise `version` in pyproject.toml")
    news = [path.name for path in sorted((ROOT / "changes").glob("*.*.md"))]
    if news:
        raise NotReady(f"{len(news)} piece(s) of news are not in CHANGELOG.md, such as '{news[0]}': `make changelog`")
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), flags=re.MULTILINE)
    if not any(re.fullmatch(re.escape(version) + r" \(\d{4}-\d\d-\d\d\)", heading) for heading in headings):
        newest = f"'## {headings[0]}'" if headings else "no version"
        raise NotReady(f"CHANGELOG.md begins with {newest}; '## {version} (YYYY-MM-DD)' is needed, with the day")


def build(folder: Path) -> tuple[Path, Path]:
    """Build the source distribution, and the wheel from what is in it; both are moved to dist/."""
    hatchling("sdist", ROOT, folder)
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (source,) = (folder / "unpacked").iterdir()
    hatchling("wheel", source, folder)
    (wheel,) = folder.glob("*.whl")
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    dist.mkdir()
    return Path(shutil.move(wheel, dist)), Path(shutil.move(sdist, dist))


def hatchling(target: str, source: Path, folder: Path) -> None:
    """Build one target from a source tree into a folder."""
    run(sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(folder), cwd=source)


def try_out(wheel: Path, version: str, folder: Path) -> None:
    """Install the wheel into a new environment without torch, and profile a training that runs in this one.

    Raises:
        NotReady: what is installed is not what a user should get.
    """
    run(getattr(sys, "_base_executable", sys.executable), "-m", "venv", str(folder / "venv"))
    python, flatout = folder / "venv/bin/python", folder / "venv/bin/flatout"
    pip = [str(python), "-m", "pip", "--disable-pip-version-check"]
    run(*pip, "install", "--quiet", "--constraint", str(ROOT / "constraints.txt"), str(wheel))
    run(*pip, "check")
    if output(str(flatout), "--version", cwd=folder).split() != ["flatout", version]:
        raise NotReady(f"the installed `flatout --version` does not print 'flatout {version}'")
    if subprocess.run([str(python), "-c", "import torch"], capture_output=True).returncode == 0:
        raise NotReady("the wheel brings torch, which is the user's to choose")
    script = folder / "train.py"
    script.write_text(TRAINING, encoding="utf-8")
    report = json.loads(output(str(flatout), "profile", "--json", "--", sys.executable, str(script), cwd=folder))
    steps = report["ledger"]["steps"]["count"] if report["ledger"] else 0
    if not steps:
        raise NotReady("the installed flatout saw no step of a training of 128 steps")
    print(f"release: the installed flatout saw {steps} steps of a training in {sys.executable}")


def run(*words: str, cwd: Path = ROOT) -> None:
    """Run a command; its failure ends the release."""
    subprocess.run(words, cwd=cwd, check=True, env=environment())


def output(*words: str, cwd: Path = ROOT) -> str:
    """What a command prints; its failure ends the release."""
    return subprocess.run(words, cwd=cwd, check=True, env=environment(), stdout=subprocess.PIPE, text=True).stdout


def environment() -> dict[str, str]:
    """This one, without what would put the sources in the place of the installed package."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}


def main(arguments: list[str]) -> int:
    """Check, build, try out; the exit code is 2 where there can be no release."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    folder = ROOT / "build" / "release"
    try:
        check(version)
        if "--check" in arguments:
            return 0
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        wheel, sdist = build(folder)
        try_out(wheel, version, folder)
    except NotReady as why:
        print(f"release: {why}", file=sys.stderr)
        return 2
    except subprocess.CalledProcessError as error:
        print(f"release: exit code {error.returncode} of {' '.join(error.cmd)}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"release: {wheel.relative_to(ROOT)} and {sdist.relative_to(ROOT)} are right; to tag this commit:")
    print(f"  git tag --annotate v{version} --message 'flatout {version}' && git push origin v{version}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
