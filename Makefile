# Every target sets up what it needs: `make test` works on a machine that has Python >= 3.11, make and a compiler.
# PYTHON names the interpreter to build the environment with, VENV where to put it.

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
READY = $(VENV)/.flatout-ready
# RERUN=FILE: failed tests run once more, alone, and FILE gets the names of those that pass then. COVER=1: coverage.py
# measures the tests and their processes; `make coverage-report` adds up what such runs have measured.
PYTEST = $(if $(RERUN),$(BIN)/python scripts/rerun_failed.py $(RERUN)) $(BIN)/python $(if $(COVER),-m coverage run) -m pytest -rs
export COVERAGE_FILE = $(CURDIR)/build/coverage/data
# Tests are rewritten and compiled once, not in every process of every run.
unexport PYTHONDONTWRITEBYTECODE
# One more at once than there are cores, since tests wait for processes and timers.
AT_ONCE = -n $$(( $$(nproc) + 1 )) --dist worksteal

.PHONY: help venv demo screenshots test test-slow test-parallel test-serial test-pythons coverage coverage-report lint \
	bench gpu-check changelog release clean

help:
	@echo "make demo       profile a training with an ordinary mistake, then the corrected one (SHORT=1: quicker)"
	@echo "make test       the tests, without the slow ones (ARGS=...: passed to pytest)"
	@echo "make test-slow  the slow tests: \`make test-parallel\`, then \`make test-serial\`"
	@echo "make test-parallel  the slow tests that can run at once"
	@echo "make test-serial  the slow tests that measure, one at a time"
	@echo "make test-pythons  the tests on 3.11, 3.12 and 3.13, and the probe on 3.9, where they are installed (QUICK=1: a part)"
	@echo "make coverage   the tests but the serial ones under coverage.py; names functions that no test enters"
	@echo "make coverage-report  the share that runs with COVER=1 have covered; fails below the floor"
	@echo "make lint       ruff, codespell, mypy, the layers, and whether torch and the like have every name that is used"
	@echo "make bench      the benchmarks (BENCH=overhead: only that one)"
	@echo "make screenshots  the pictures in docs/images, from a run of the example (RUN=FOLDER: of that run); needs a browser"
	@echo "make gpu-check  on a machine with a GPU, 40 minutes: writes docs/measurements/gpu.md (ARGS=--dry-run)"
	@echo "make changelog  move the pieces of news in changes/ into CHANGELOG.md"
	@echo "make release    build the wheel and the source distribution, and try them in a new environment"
	@echo "make venv       only the set-up that the others do by themselves"
	@echo "make clean      remove caches and build products; $(VENV) stays"

venv: $(READY)

# The stamp is newer than what it was made from, so that a second call costs nothing.
$(READY): pyproject.toml constraints.txt scripts/setup
	@PYTHON="$(PYTHON)" scripts/setup "$(VENV)"
	@touch $@

demo: $(READY)
	@$(BIN)/python examples/demo.py $(if $(SHORT),--short)

test: $(READY)
	$(PYTEST) -m "not slow" $(AT_ONCE) --session-timeout=3600 $(ARGS)

# pytest's 5 says that no test was selected, which is no failure where ARGS narrows the tests.
test-slow: $(READY)
	@$(MAKE) --no-print-directory test-parallel
	@$(MAKE) --no-print-directory test-serial

test-parallel: $(READY)
	$(PYTEST) -m "slow and not serial" $(AT_ONCE) --durations=25 $(ARGS) || test $$? -eq 5

# Without coverage.py, which would be measured too.
test-serial: override COVER =
test-serial: $(READY)
	$(PYTEST) -m serial --durations=25 $(ARGS) || test $$? -eq 5

test-pythons:
	@QUICK=$(QUICK) scripts/test-pythons $(ARGS)

coverage: $(READY)
	@rm -rf build/coverage
	@$(MAKE) --no-print-directory test COVER=1
	@$(MAKE) --no-print-directory test-parallel COVER=1
	@$(MAKE) --no-print-directory coverage-report
	@$(BIN)/python -m coverage json -q --fail-under=0 -o build/coverage/report.json
	-@$(BIN)/python scripts/untested.py build/coverage/report.json

coverage-report: $(READY)
	@$(BIN)/python -m coverage combine -q
	@echo "statements and branches covered, in percent:"
	@$(BIN)/python -m coverage report --format=total

lint: $(READY)
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m codespell_lib .
	$(BIN)/python -m mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m basedpyright --pythonpath $(BIN)/python

bench: $(READY)
	@$(BIN)/python scripts/bench.py $(BENCH)

screenshots: $(READY)
	@$(BIN)/python scripts/screenshots.py $(RUN)

gpu-check: $(READY)
	@$(BIN)/python benchmarks/gpu/check.py $(ARGS)

changelog: $(READY)
	$(BIN)/python -m towncrier build --yes --version "$$(sed -n 's/^version = "\(.*\)"$$/\1/p' pyproject.toml)"

release: $(READY)
	@$(BIN)/python scripts/release.py $(ARGS)

clean:
	rm -rf build dist .import_linter_cache .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -path "./$(VENV)" -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
