"""The programs' packages, in an environment on top of the torch that is installed already."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import rivals

ROOT = Path(__file__).resolve().parents[2]
INSTALL_WITHIN_S = 600.0


def prepare(folder: Path, requirements: Iterable[str]) -> dict[str, str]:
    """Install what is missing; returns requirement -> why it could not be installed.

    The versions of constraints.txt hold, so that torch and what tests rely on is not installed a second time.
    """
    environment = rivals.prepare(folder, {})
    failures = {}
    for requirement in dict.fromkeys(requirements):
        pip = [sys.executable, "-m", "pip", "--python", environment.python, "--disable-pip-version-check", "--quiet"]
        if versions(folder, [requirement.partition("[")[0]]):
            continue
        print(f"installing {requirement} into {folder}, only this time", file=sys.stderr, flush=True)
        install = [*pip, "install", "-c", str(ROOT / "constraints.txt"), requirement]
        try:
            done = subprocess.run(install, capture_output=True, text=True, timeout=INSTALL_WITHIN_S, check=False)
        except subprocess.TimeoutExpired:
            failures[requirement] = f"pip install {requirement} took longer than {INSTALL_WITHIN_S:.0f} s"
            continue
        if done.returncode:
            lines = done.stderr.strip().splitlines()
            failures[requirement] = f"pip install {requirement} failed: {lines[-1] if lines else 'it did not say why'}"
    return failures


def versions(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Installed versions of some packages."""
    code = "import sys\nfrom importlib import metadata\nfor n in sys.argv[1:]: print(n, metadata.version(n))"
    done = subprocess.run(
        [str(folder / "bin" / "python"), "-c", code, *names], capture_output=True, text=True, check=False
    )
    return dict(line.split(" ", 1) for line in done.stdout.splitlines())
