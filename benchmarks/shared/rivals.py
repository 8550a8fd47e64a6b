"""The rivals' own virtual environment: made on first use, with the torch that is already installed."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

INSTALL_WITHIN_S = 300.0


@dataclass(frozen=True)
class Environment:
    """Where the training runs.

    Attributes:
        python: The interpreter of every training, so that all tools meet the same one.
        missing: Rival -> why it cannot be compared.
    """

    python: str
    missing: dict[str, str]


def prepare(folder: Path, versions: dict[str, str]) -> Environment:
    """Make the environment if it is not there, and install the rivals that it lacks.

    Args:
        folder: Of the virtual environment.
        versions: Rival -> the version to compare with.
    """
    python = folder / "bin" / "python"
    if not python.exists():
        try:
            venv.create(folder, symlinks=True)
        except OSError as error:
            because = f"no virtual environment in {folder}: {error}"
            return Environment(sys.executable, dict.fromkeys(versions, because))
    packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder), "platbase": str(folder)}))
    # Last on the path: what is installed here goes before what is shared.
    (packages / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")
    missing = {}
    for name, version in versions.items():
        if _installed(packages, name) == version:
            continue
        failure = _install(python, f"{name}=={version}")
        if failure:
            missing[name] = failure
    return Environment(str(python), missing)


def _installed(packages: Path, name: str) -> str | None:
    found = metadata.distributions(name=name, path=[str(packages)])
    return next((distribution.version for distribution in found), None)


def _install(python: Path, requirement: str) -> str | None:
    """Install one rival; returns why that failed."""
    print(f"installing {requirement} beside the shared torch, only this time", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", requirement]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_WITHIN_S)
    except subprocess.TimeoutExpired:
        return f"pip install {requirement} took longer than {INSTALL_WITHIN_S:.0f} s"
    if done.returncode == 0:
        return None
    lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
    return f"pip install {requirement} failed: {lines[-1] if lines else 'it did not say why'}"
