"""Run a script as ``__main__`` with the fake GPU below torch: python run_on_fake_gpu.py SCRIPT [ARGUMENTS].

Whatever was patched when torch was imported, such as by the probe, stays above it.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2]))

from tests.gpu import fake_gpu, fake_nvml, fake_tensors


def main() -> None:
    """Install it for the rest of this process."""
    patch, gpu = pytest.MonkeyPatch(), fake_gpu.FakeGpu()
    fake_gpu.install(patch, gpu)
    fake_nvml.install(patch, fake_nvml.FakeLibrary())
    sys.argv = sys.argv[1:]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    with fake_tensors.install(patch, gpu):
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
