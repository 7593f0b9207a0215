# `make serve` and `make test` work from a bare clone: each makes its own environment first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
ARGS ?=
WORKERS ?= 2

.DEFAULT_GOAL := help
.PHONY: help serve chat test lint types units node docs bench size clean

help: ## what can be made
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

serve: $(VENV)/serve.stamp ## serve the built-in model; ARGS="--port 9000" adds flags
	$(BIN)/streamglm serve $(ARGS)

chat: $(VENV)/serve.stamp ## talk to the running server in the terminal
	$(BIN)/streamglm chat $(ARGS)

test: lint types node units ## everything CI runs: lint, types, tests on the CPU

lint: $(VENV)/test.stamp ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/test.stamp ## mypy, strict
	$(BIN)/mypy

units: $(VENV)/test.stamp ## pytest on WORKERS processes, a file each at a time; ARGS="-k name" selects
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)

node: $(VENV)/node.stamp ## the packages of the Node client's test, where npm is there and has them

docs: $(VENV)/test.stamp ## write the generated pages of docs/
	$(BIN)/python -m streamglm.docs

bench: $(VENV)/test.stamp ## what can be measured
	$(BIN)/python -m bench --help

size: ## lines per file, those above 400 marked
	@git ls-files 'src/*.py' | xargs wc -l | sort -n | awk '{print $$0, ($$1 > 400 && $$2 != "total" ? "  <-- over 400" : "")}'

clean: ## forget the environment
	rm -rf $(VENV)

$(VENV)/pip.stamp:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "streamglm needs Python 3.11 or newer; this is $$($(PYTHON) --version). Try make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	@touch $@

$(VENV)/serve.stamp: $(VENV)/pip.stamp pyproject.toml
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/test.stamp: $(VENV)/pip.stamp pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	@touch $@ $(VENV)/serve.stamp

# npm may be missing, or may reach no registry: then that one test is skipped
$(VENV)/node.stamp: $(VENV)/pip.stamp tests/node/package-lock.json
	@if ! command -v npm >/dev/null; then echo "no npm: the Node client is not tested"; \
	elif ! (cd tests/node && timeout 120 npm ci --silent); then \
		echo "npm cannot install its packages: the Node client is not tested"; \
	fi
	@touch $@
