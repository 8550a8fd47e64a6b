#!/usr/bin/env python3
"""Run pytest; tests that fail run once more, one at a time, and those that pass then are named as flaky.

The exit code is pytest's, but 0 where all that failed passed when run again and at most LIMIT tests are flaky. The file
FLAKY collects their names, so that several runs share one limit. Only failed tests run again: where pytest or one of
its workers crashed, or tests did not run, the first exit code stands.

Usage: scripts/rerun_failed.py FLAKY PYTEST...
PYTEST is a whole command: .venv/bin/python -m pytest -m "not slow" -n 2. It must not stop early, as with -x: tests that
were left out then are not run later either.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

LIMIT = 3
TESTS_FAILED = 1  # pytest's exit code where all tests ran and some failed


def main(flaky: Path, command: list[str]) -> int:
    """Run the tests, and the failed ones again; gives back the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        cache, report = Path(folder, "cache"), Path(folder, "report.xml")
        command = [*command, "-o", f"cache_dir={cache}"]
        code = subprocess.run([*command, f"--junitxml={report}"]).returncode
        if code != TESTS_FAILED:
            return code
        failed = _failed(cache)
        known = flaky.read_text("utf-8").splitlines() if flaky.exists() else []
        if reason := _final(failed, len(known), report):
            print(f"not run again: {reason}", flush=True)
            return code
        print(f"running {len(failed)} failed test(s) again, one at a time", flush=True)
        code = subprocess.run([*command, "--last-failed", "--last-failed-no-failures=none", "-n", "0"]).returncode
        if code in (0, TESTS_FAILED):
            passed = [name for name in failed if name not in _failed(cache)]
            flaky.write_text("".join(f"{name}\n" for name in [*known, *passed]), "utf-8")
            for name in passed:
                print(f"flaky: passed when run again, alone: {name}", flush=True)
        return code


def _failed(cache: Path) -> list[str]:
    """The tests that failed in the last run, as pytest notes them."""
    noted = cache / "v" / "cache" / "lastfailed"
    return list(json.loads(noted.read_text("utf-8"))) if noted.exists() else []


def _final(failed: list[str], known: int, report: Path) -> str:
    """Why the first result stands; empty where the failed tests can run again."""
    if not failed:
        return "pytest failed without naming a test"
    # pytest-xdist counts a test whose worker crashed as failed.
    if "crashed while running" in report.read_text("utf-8"):
        return "a worker of pytest crashed"
    if known + len(failed) > LIMIT:
        return f"{len(failed)} test(s) failed, and at most {LIMIT - known} more may be flaky"
    return ""


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
