# What people type. Every target sets itself up; `make` alone lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all check mutants bench clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(VENV)/.ready  ## create .venv with everything that the other targets need

# torch comes first and pinned, so that no later step can pull in another build of it.
$(VENV)/.ready: pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "no $(PYTHON) found: install Python 3.11 or newer, or run make PYTHON=/path/to/python"; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is too old: fedamp needs Python 3.11 or newer; run make PYTHON=/path/to/python3.11"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: setup  ## all methods on handwritten digits: who gains by collaborating
	$(BIN)/fedamp compare --seeds 3 --out runs/demo
	@printf 'open this page in a browser: '
	@$(BIN)/fedamp report runs/demo

test: setup  ## the fast tests, on all cores
	$(BIN)/python -m pytest -q -m "not slow and not many" -n auto

# Slow tests start servers and silos of their own: two at a time, whatever the number of cores.
test-all: test  ## every test: the fast ones, then those that repeat for every method, then the slow ones
	$(BIN)/python -m pytest -q -m "many and not slow" -n auto
	$(BIN)/python -m pytest -q -m slow -n 2 --dist loadfile

check: setup  ## style, types, and which room may see which
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

mutants: setup  ## put faults into the code, one at a time, and see that a test notices each
	$(BIN)/python tests/mutants.py

bench: setup  ## how fast: all clients at once, and the server's products, against plain ways
	$(BIN)/python benchmarks/cpu.py
	$(BIN)/python benchmarks/server.py
	$(BIN)/python benchmarks/flower.py

clean:  ## remove what setup and the tests made
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis dist build
