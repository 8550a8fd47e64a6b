# Every target sets up what it needs: `make test` works on a machine that has Python >= 3.11, make and a compiler.
# PYTHON names the interpreter to build the environment with, VENV where to put it.

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
READY = $(VENV)/.flatout-ready
# RERUN=FILE: failed tests run once more, alone, and FILE gets the names of those that pass then.
PYTEST = $(if $(RERUN),$(BIN)/python scripts/rerun_failed.py $(RERUN)) $(BIN)/python -m pytest -rs
# As many at once as there are cores: most of a test's time is the start of processes.
AT_ONCE = -n auto --dist worksteal

.PHONY: help venv demo test test-slow test-serial test-pythons coverage lint bench gpu-check changelog release clean

help:
	@echo "make demo       profile a training with an ordinary mistake, then the corrected one (SHORT=1: quicker)"
	@echo "make test       the tests, without the slow ones (ARGS=...: passed to pytest)"
	@echo "make test-slow  the slow tests: first those that can run at once, then \`make test-serial\`"
	@echo "make test-serial  the slow tests that measure, one at a time"
	@echo "make test-pythons  the tests on 3.11, 3.12 and 3.13, and the probe on 3.9, where they are installed (QUICK=1: a part)"
	@echo "make coverage   the tests but the serial ones; names functions that no test enters"
	@echo "make lint       ruff, codespell, mypy, the layers, and whether torch and the like have every name that is used"
	@echo "make bench      the benchmarks (BENCH=overhead: only that one)"
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
	$(PYTEST) -m "slow and not serial" $(AT_ONCE) $(ARGS) || test $$? -eq 5
	@$(MAKE) --no-print-directory test-serial

test-serial: $(READY)
	$(PYTEST) -m serial $(ARGS) || test $$? -eq 5

test-pythons:
	@QUICK=$(QUICK) scripts/test-pythons $(ARGS)

# Processes of the tests count too. The list of untested functions does not fail the target before each has its reason.
coverage: export COVERAGE_FILE = $(CURDIR)/build/coverage/data
coverage: $(READY)
	@rm -rf build/coverage && mkdir -p build/coverage
	$(BIN)/python -m coverage run -m pytest -rs -m "not serial" $(AT_ONCE) $(ARGS)
	@$(BIN)/python -m coverage combine -q
	@$(BIN)/python -m coverage json -q --fail-under=0 -o build/coverage/report.json
	-@$(BIN)/python scripts/untested.py build/coverage/report.json
	$(if $(ARGS),-)@$(BIN)/python -m coverage report --format=total

lint: $(READY)
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m codespell_lib .
	$(BIN)/python -m mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m basedpyright --pythonpath $(BIN)/python

bench: $(READY)
	@$(BIN)/python scripts/bench.py $(BENCH)

gpu-check: $(READY)
	@$(BIN)/python benchmarks/gpu/check.py $(ARGS)

changelog: $(READY)
	$(BIN)/python -m towncrier build --yes --version "$$(sed -n 's/^version = "\(.*\)"$$/\1/p' pyproject.toml)"

release: $(READY)
	@$(BIN)/python scripts/release.py $(ARGS)

clean:
	rm -rf build dist .import_linter_cache .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -path "./$(VENV)" -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
