"""The probe runs inside the user's interpreter: what it may import and when, and what Python may read it."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PROBE = Path(__file__).parents[2] / "src" / "flatout" / "probe"
FILES = sorted(PROBE.rglob("*.py"))
# What the probe patches: imported by the files that do so, which are loaded after the user's own import of it.
PATCHED = {"torch", "PIL", "pytorch_lightning", "lightning", "transformers", "accelerate", "tensorboard"}
# The package goes by this name in the user's process, where the name flatout may be anything.
LOAD_WHAT_STARTS = """
import importlib, importlib.util, sys
spec = importlib.util.spec_from_file_location(
    "_flatout_probe", sys.argv[1] + "/__init__.py", submodule_search_locations=[sys.argv[1]]
)
sys.modules["_flatout_probe"] = package = importlib.util.module_from_spec(spec)
spec.loader.exec_module(package)
importlib.import_module("_flatout_probe.attach")
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""


def absolute_imports(tree: ast.Module) -> set[str]:
    """Top-level names of all absolute imports, those inside functions too."""
    names = set()
    for found in ast.walk(tree):
        if isinstance(found, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in found.names}
        elif isinstance(found, ast.ImportFrom) and found.level == 0:
            names.add((found.module or "").partition(".")[0])
    return names


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PROBE)))
def test_the_probe_imports_the_standard_library_and_what_it_patches_only(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert absolute_imports(tree) <= set(sys.stdlib_module_names) | PATCHED


def test_what_starts_with_every_python_process_needs_no_installed_package() -> None:
    # -I and -S: without site-packages, so that torch could not be imported even if it were asked for.
    command = [sys.executable, "-I", "-S", "-c", LOAD_WHAT_STARTS, str(PROBE)]
    loaded = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    # sysconfig's data is a module named after the platform.
    foreign = {name for name in loaded if not name.startswith("_sysconfigdata")} - set(sys.stdlib_module_names)
    assert foreign == {"__main__", "_flatout_probe"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PROBE)))
def test_the_probe_is_written_in_the_grammar_of_python_3_9(path: Path) -> None:
    ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 9))


def test_the_folder_that_goes_on_pythonpath_holds_a_sitecustomize_and_nothing_else() -> None:
    assert [path.name for path in (PROBE / "on_pythonpath").glob("*.py")] == ["sitecustomize.py"]
