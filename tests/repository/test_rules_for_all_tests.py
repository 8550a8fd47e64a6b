"""The fixtures in tests/conftest.py, each seen at work in a small pytest run of its own."""

from pathlib import Path

import pytest

CONFTEST = Path(__file__).parents[1] / "conftest.py"
INI = "[pytest]\nmarkers =\n    gpu: needs a CUDA device\n    slow\n    serial\n"


def run(pytester: pytest.Pytester, source: str, *options: str) -> pytest.RunResult:
    pytester.makeconftest(CONFTEST.read_text(encoding="utf-8"))
    pytester.makeini(INI)
    pytester.makepyfile(source)
    return pytester.runpytest_subprocess("-rs", "-p", "no:cacheprovider", *options)


@pytest.mark.slow
def test_a_test_that_leaves_a_process_behind_fails_and_the_process_is_ended(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        import subprocess, sys, psutil
        started = []
        def test_leaves_one():
            started.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)  # forgotten"]))
        def test_later():
            assert not psutil.pid_exists(started[0].pid) or psutil.Process(started[0].pid).status() == "zombie"
            started[0].wait()
        """,
    )
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*left behind: * # forgotten*"])


def test_processes_that_a_test_ends_itself_are_no_fault(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        import multiprocessing, subprocess, sys, time
        def test_ends_its_child():
            subprocess.run([sys.executable, "-c", ""], check=True)
        def test_uses_the_services_of_multiprocessing():
            child = multiprocessing.get_context("forkserver").Process(target=time.sleep, args=(0,))
            child.start()
            child.join()
        """,
    )
    result.assert_outcomes(passed=2)


def test_a_gpu_test_is_skipped_with_the_reason_where_there_is_no_device(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(torch="class cuda:\n    is_available = staticmethod(lambda: False)\n")
    pytester.syspathinsert()
    result = run(
        pytester,
        """
        import pytest
        @pytest.mark.gpu
        def test_on_a_device():
            raise AssertionError("must not run")
        """,
    )
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*no CUDA device: torch.cuda.is_available() is false"])


def test_torch_is_not_imported_for_tests_without_the_gpu_mark(pytester: pytest.Pytester) -> None:
    result = run(pytester, "import sys\ndef test_plain():\n    assert 'torch' not in sys.modules\n")
    result.assert_outcomes(passed=1)


def test_a_serial_test_is_slow_too(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        import pytest
        @pytest.mark.serial
        def test_measures():
            raise AssertionError("must not run")
        def test_quick():
            pass
        """,
        "-m",
        "not slow",
    )
    result.assert_outcomes(passed=1, deselected=1)
