# `make` alone lists the verbs. Every verb does its own set-up, once (see tools/setup).
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
VENV ?= .venv
PYTHON ?= python3
READY := $(VENV)/.mergelake-ready
IN := source $(VENV)/activate-mergelake &&
PYTEST_ARGS ?=
WORKERS ?= 2
PARALLEL := -n $(WORKERS) --dist loadfile
export NO_MKDOCS_2_WARNING := 1

.PHONY: help dev demo test quick conformance nightly compat check lock format simulate torture docs bench clean

help: ## List the verbs
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): pyproject.toml constraints.txt tools/setup tools/java-home
	@PYTHON=$(PYTHON) tools/setup $(VENV)
	@touch $@

dev: $(READY) ## Set up .venv with everything (Java too, when it is missing)

demo: $(READY) ## Ingest, merge, query and serve a log table of two million rows
	@$(IN) python examples/demo.py

test: $(READY) ## Run all tests, with real S3, Spark and ClickHouse; some of them (T=tests/unit/log/test_commit.py::name)
	@$(IN) python -m pytest $(if $(T),$(T),$(PARALLEL)) $(PYTEST_ARGS)

quick: $(READY) ## Run the quick half of the tests (under two minutes)
	@$(IN) HYPOTHESIS_PROFILE=quick python -m pytest -m "not slow and not spark and not s3 and not zookeeper" \
	  $(PARALLEL) $(wildcard tests/unit tests/cases tests/property) $(PYTEST_ARGS)

conformance: $(READY) ## Compare with a real ClickHouse (chdb) at length: 10,000 round trips, every byte damaged; hours
	@$(IN) MERGELAKE_CONFORMANCE=long python -m pytest --timeout 0 tests/conformance tests/property/test_reader_fuzz.py \
	  tests/spark/test_select_on_spark.py $(PYTEST_ARGS)

nightly: $(READY) ## What is too long for each change: all tests, fresh seeds of the simulation and its stages, torture, long conformance
	@$(MAKE) test
	@$(IN) python -m tests.simulation --seeds 1000
	@$(IN) python -m tests.simulation --stages --seeds 60
	@$(IN) python -m tests.simulation --real --seeds 200
	@$(MAKE) torture
	@$(MAKE) conformance

compat: $(READY) ## Let older ClickHouse builds attach our parts; writes docs/compatibility.md
	@$(IN) python tools/compat.py

check: $(READY) ## Lint, check format, types, imports between rooms, and the docs
	@$(IN) ruff check .
	@$(IN) ruff format --check .
	@$(IN) mypy
	@$(IN) lint-imports
	@$(IN) mkdocs build --strict --quiet --site-dir $(abspath $(VENV))/site

lock: ## Resolve the newest versions of all dependencies anew and write constraints.txt (then run all tests)
	@tools/lock

format: $(READY) ## Format the code and fix what can be fixed
	@$(IN) ruff check --fix --quiet . || true
	@$(IN) ruff format .
	@$(IN) python -m tools.reference

simulate: $(READY) ## Run fresh seeds of the simulation (SEEDS=300), replay one (SEED=…), or look for its deliberate bugs (BUGS=1)
	@$(IN) python -m tests.simulation $(if $(BUGS),--bugs,$(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),300))) $(SIMULATE_ARGS)

torture: $(READY) ## Kill real writers, nodes and collectors on S3 and ZooKeeper (TORTURE_KILLS=200)
	@$(IN) TORTURE_KILLS=$(or $(TORTURE_KILLS),200) python -m pytest --timeout 0 tests/integration/test_torture.py $(PYTEST_ARGS)

docs: $(READY) ## Build the documentation into site/
	@$(IN) mkdocs build --strict --quiet && echo "open site/index.html"

bench: $(READY) ## Measure against ClickHouse and Spark; prints tables of ratios
	@$(IN) for file in benchmarks/bench_*.py; do echo "== $$file"; python -m "benchmarks.$$(basename $$file .py)"; done

clean: ## Remove what the verbs made, except the environment
	rm -rf site dist build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis demo-output spark-warehouse
