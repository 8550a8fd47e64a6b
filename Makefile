# Every target sets up what it needs: `make test` works on a machine that has Python >= 3.11, make and a compiler.
# PYTHON names the interpreter to build the environment with, VENV where to put it.

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
READY = $(VENV)/.flatout-ready
PYTEST = $(BIN)/python -m pytest -rs

.PHONY: help venv demo test test-slow test-pythons coverage lint bench gpu-check clean

help:
	@echo "make demo       profile a training with an ordinary mistake, then the corrected one (SHORT=1: quicker)"
	@echo "make test       the tests, without the slow ones (ARGS=...: passed to pytest)"
	@echo "make test-slow  the slow tests"
	@echo "make test-pythons  the tests on 3.11, 3.12 and 3.13, and the probe on 3.9, where they are installed"
	@echo "make coverage   the tests again, and the functions and branches that none of them enters"
	@echo "make lint       ruff, mypy, the layers, and whether torch and the like have every name that is used"
	@echo "make bench      the benchmarks (BENCH=overhead: only that one)"
	@echo "make gpu-check  on a machine with a GPU, 40 minutes: writes docs/measurements/gpu.md (ARGS=--dry-run)"
	@echo "make venv       only the set-up that the others do by themselves"
	@echo "make clean      remove caches and build products; $(VENV) stays"

venv: $(READY)

# The stamp is newer than what it was made from, so that a second call costs nothing.
$(READY): pyproject.toml constraints.txt scripts/setup
	@PYTHON="$(PYTHON)" scripts/setup "$(VENV)"
	@touch $@

demo: $(READY)
	@$(BIN)/python examples/demo.py $(if $(SHORT),--short)

# As many at once as there are cores: most of a test's time is the start of processes.
test: $(READY)
	$(PYTEST) -m "not slow" -n auto --dist worksteal --session-timeout=1500 $(ARGS)

# One at a time: they measure. pytest's 5 says that there are no slow tests, which is no failure.
test-slow: $(READY)
	$(PYTEST) -m slow $(ARGS) || test $$? -eq 5

test-pythons:
	@scripts/test-pythons $(ARGS)

# Processes of the tests count too. ARGS narrows the tests, as in `make test`.
coverage: export COVERAGE_FILE = $(CURDIR)/build/coverage/data
coverage: $(READY)
	@rm -rf build/coverage && mkdir -p build/coverage
	$(BIN)/python -m coverage run -m pytest -q -n auto --dist worksteal $(ARGS)
	@$(BIN)/python -m coverage combine -q
	@$(BIN)/python -m coverage json -q -o build/coverage/report.json
	@$(BIN)/python scripts/untested.py build/coverage/report.json

lint: $(READY)
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m basedpyright --pythonpath $(BIN)/python

bench: $(READY)
	@$(BIN)/python scripts/bench.py $(BENCH)

gpu-check: $(READY)
	@$(BIN)/python benchmarks/gpu/check.py $(ARGS)

clean:
	rm -rf build dist .import_linter_cache .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -path "./$(VENV)" -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
