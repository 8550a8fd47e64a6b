"""scripts/rerun_failed.py: a failed test gets one more run, alone; a crash gets none."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "rerun_failed.py"
TESTS = """
import os
from pathlib import Path
import pytest

@pytest.fixture
def runs(request):
    with Path(request.node.name).open("a") as file:
        file.write(f"{os.environ.get('PYTEST_XDIST_WORKER')}\\n")
    return len(Path(request.node.name).read_text().splitlines())

def test_passes(runs):
    pass

def test_fails_once(runs):
    assert runs > 1

def test_fails_always(runs):
    assert False

def test_crashes_once(runs):
    if runs == 1:
        os.abort()

@pytest.fixture
def closes_badly(runs):
    yield
    assert runs > 1

def test_is_torn_down_badly_once(closes_badly):
    pass
"""


class Project:
    """A folder with the tests above, and what became of running some of them.

    No plugin but pytest-xdist, since pytest is started up to three times a test.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.flaky = folder, folder / "flaky.txt"
        (folder / "pytest.ini").write_text("[pytest]\n", "utf-8")
        (folder / "test_some.py").write_text(TESTS, "utf-8")

    def run(self, *tests: str, options: tuple[str, ...] = ()) -> tuple[int, str]:
        """Exit code and output of running these."""
        pytest = [sys.executable, "-m", "pytest", "-q", "-p", "xdist.plugin"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
        done = subprocess.run(
            [sys.executable, SCRIPT, self.flaky, *pytest, *(f"test_some.py::test_{name}" for name in tests), *options],
            cwd=self.folder,
            env={**environment, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            capture_output=True,
            text=True,
        )
        return done.returncode, done.stdout + done.stderr

    def runs(self, test: str) -> int:
        """How often a test ran."""
        return len((self.folder / f"test_{test}").read_text().splitlines())

    def named(self) -> list[str]:
        """The tests that are known as flaky."""
        return self.flaky.read_text().splitlines() if self.flaky.exists() else []


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_one_that_passes_when_run_again_is_named_and_the_run_counts_as_passed(project: Project) -> None:
    code, out = project.run("passes", "fails_once", "is_torn_down_badly_once")
    assert code == 0, out
    names = ["test_some.py::test_fails_once", "test_some.py::test_is_torn_down_badly_once"]
    assert project.named() == names
    assert all(f"flaky: passed when run again, alone: {name}\n" in out for name in names)
    assert [project.runs(name) for name in ("passes", "fails_once", "is_torn_down_badly_once")] == [1, 2, 2]


@pytest.mark.slow
def test_one_that_fails_again_fails_the_run(project: Project) -> None:
    code, out = project.run("fails_always", "fails_once", options=("-n", "2"))
    assert code == 1
    assert project.named() == ["test_some.py::test_fails_once"]
    assert (project.folder / "test_fails_always").read_text().splitlines()[1] == "None", "not alone"
    assert "passed when run again, alone: test_some.py::test_fails_always" not in out


@pytest.mark.parametrize(
    "options", [(), pytest.param(("-n", "1"), marks=pytest.mark.slow)], ids=["pytest itself", "a worker"]
)
def test_a_crash_is_final(project: Project, options: tuple[str, ...]) -> None:
    code, out = project.run("crashes_once", options=options)
    assert code != 0, out
    assert project.runs("crashes_once") == 1 and project.named() == []


def test_an_error_of_pytest_is_final(project: Project) -> None:
    assert project.run("is_not_there")[0] == 4
    assert project.run("passes", options=("-k", "nothing"))[0] == 5


def test_one_more_than_three_in_all_fails_the_run(project: Project) -> None:
    known = ["test_a.py::test_1", "test_a.py::test_2", "test_a.py::test_3"]
    project.flaky.write_text("\n".join(known) + "\n")
    code, out = project.run("fails_once")
    assert code == 1 and "at most 0 more may be flaky" in out
    assert project.runs("fails_once") == 1 and project.named() == known
