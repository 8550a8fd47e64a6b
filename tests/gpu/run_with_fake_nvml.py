"""flatout's command line on a machine whose NVML tells of one GPU: python run_with_fake_nvml.py COMMAND …."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2]))

from flatout.cli import main
from tests.gpu import fake_nvml

if __name__ == "__main__":
    fake_nvml.NUMBERS["nvmlDeviceGetCurrentClocksEventReasons"] = (0,)  # full speed
    fake_nvml.install(pytest.MonkeyPatch(), fake_nvml.FakeLibrary())
    sys.exit(main())
