"""The lint follows torch's imports: a name that the installed version lacks is found without a GPU."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("basedpyright", reason="basedpyright is not installed")
ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "found"),
    [
        ('torch.set_float32_matmul_precision("high")', 0),
        ('torch.set_float32_matmullightning_precision("high")', 1),
        ("torch.cuda.synchronise()", 1),
        ("torch.cuda.Event(timing=True)", 1),
    ],
)
def test_lint_finds_a_name_or_an_argument_that_torch_does_not_have(tmp_path: Path, line: str, found: int) -> None:
    script = tmp_path / "wrong.py"
    script.write_text(f"import torch\n\n{line}\n")
    command = [sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable, str(script)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == found, done.stdout
