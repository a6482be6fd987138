# One verb per chore. Each target does its own set-up; `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help setup serve demo test lint types imports unit bench-quick proof clean

help:  ## Show this list.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

setup: $(READY)  ## Make .venv with Peik and its tools in it.

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Peik needs Python 3.11 or newer; name one with: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $(READY)

serve: setup  ## Run Peik on http://127.0.0.1:8081 (settings: PEIK_…).
	$(BIN)/peik serve

demo: setup  ## Watch Peik deliver through an outage and a crash; needs no token and no network.
	$(BIN)/peik demo

test: setup lint types imports unit  ## The whole gate: lint, types, import rules, all tests.

lint: setup  ## Check style with ruff.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup  ## Check types with mypy, strict.
	$(BIN)/mypy

imports: setup  ## Check that imports point down.
	$(BIN)/lint-imports

unit: setup  ## Run the tests.
	$(BIN)/python -m pytest -n 2 --dist worksteal $(ARGS)

bench-quick: setup  ## Measure accept and drain against bare SQLite and a bare aiohttp loop, in under two minutes.
	$(BIN)/python -m bench.quick

proof: setup  ## A bad day at Telegram with real processes and the real pace; about four minutes.
	$(BIN)/python -m proofs.bad_day

clean:  ## Remove what setup and tests made.
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis dist build *.egg-info
