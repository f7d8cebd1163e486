# celery_batching: everything runs in environments of its own, made on first use.

PYTHON ?= python3

#: A second Celery to test against, in a second environment: make test WITH_CELERY=5.6.3
#: (make hands this name on as an environment variable, and the celery command reads CELERY_... as options)
WITH_CELERY ?=
VENV := .venv$(if $(WITH_CELERY),-celery-$(WITH_CELERY))
BIN := $(VENV)/bin
CELERY := $(if $(WITH_CELERY),celery==$(WITH_CELERY))

# Installed before everything else, so that no other package picks a build of its own choice.
TORCH ?= torch==2.13.0

#: KEEP=1 leaves the demo's web page up; CALLERS=16 sends from so many callers at once.
KEEP ?=
CALLERS ?=
DEMO_ARGS := $(if $(filter-out 0,$(KEEP)),--keep) $(if $(CALLERS),--callers=$(CALLERS))

#: Anything for pytest: make test PYTEST_ARGS="tests/unit -k policy"
PYTEST_ARGS ?=

#: The chaos test, long; for what else it can be told see tests/chaos/wishes.py: make chaos CHAOS_SEEDS=3,7
CHAOS_SEEDS ?= 20
CHAOS_ITEMS ?= 1000
CHAOS_ROUNDS ?= 50

#: Anything for the benchmarks, which then write only the files that it names: make bench BENCH_ARGS="-s drain --rounds 1"
BENCH_ARGS ?=

# It needs an older Celery than this project's newest.
BATCHES_VENV := .venv-celery-batches
BATCHES := 'celery[redis]==5.6.3' celery-batches==0.11 psutil

.DEFAULT_GOAL := help
.PHONY: help demo test test-wheel chaos bench lint clean
.DELETE_ON_ERROR:
.PRECIOUS: %/.torch

help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.demo ## Run the example under load and compare it with plain Celery (KEEP=1: leave its page up)
	@$(BIN)/python -m example_project.demo $(DEMO_ARGS)

test: $(VENV)/.test ## Run the test suite (WITH_CELERY=5.6.3, PYTEST_ARGS=...)
	$(BIN)/python -m pytest $(or $(PYTEST_ARGS),-m 'not alone')
	$(if $(PYTEST_ARGS),,$(BIN)/python -m pytest -m alone -n 0)

# Run in a copy without the package's source, so that the wheel's is imported: it comes first on the path.
test-wheel: $(VENV)/.test ## Build the wheel and run the acceptance tests against it
	rm -rf build
	$(BIN)/pip wheel -qq --no-deps --wheel-dir build .
	$(BIN)/pip install -qq --no-deps --target build/wheel build/*.whl
	cp -R tests example_project pyproject.toml build
	cd build && PYTHONPATH=$(CURDIR)/build/wheel ../$(BIN)/python -m pytest -m 'not alone' tests/acceptance $(PYTEST_ARGS)
	cd build && PYTHONPATH=$(CURDIR)/build/wheel ../$(BIN)/python -m pytest -m alone -n 0 tests/acceptance $(PYTEST_ARGS)

chaos: export CHAOS_SEEDS := $(CHAOS_SEEDS)
chaos: export CHAOS_ITEMS := $(CHAOS_ITEMS)
chaos: export CHAOS_ROUNDS := $(CHAOS_ROUNDS)
chaos: $(VENV)/.test ## Kill workers and Redis at random moments, with 20 seeds (CHAOS_SEEDS=3,7 CHAOS_ITEMS=1000)
	$(BIN)/python -m pytest -n 0 tests/chaos $(PYTEST_ARGS)

bench: $(VENV)/.bench $(BATCHES_VENV)/.made ## Compare with plain Celery and celery-batches, and write docs/benchmarks.* (BENCH_ARGS=...)
	$(BIN)/python -m benchmarks $(or $(BENCH_ARGS),--json docs/benchmarks.json --svg docs/benchmarks.svg)

lint: $(VENV)/.lint ## Check style and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy --strict celery_batching example_project benchmarks

clean: ## Remove the environments, caches and builds
	rm -rf .venv .venv-* dist build .coverage .*_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

%/.torch:
	$(PYTHON) -m venv $*
	$*/bin/pip install -qq '$(TORCH)'
	@touch $@

$(VENV)/.demo: $(VENV)/.torch pyproject.toml
	$(BIN)/pip install -qq --editable '.[demo]' $(CELERY)
	@touch $@

$(VENV)/.test: $(VENV)/.torch pyproject.toml
	$(BIN)/pip install -qq --editable '.[test]' $(CELERY)
	@touch $@

$(VENV)/.bench: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -qq --editable '.[bench]' $(CELERY)
	@touch $@

$(BATCHES_VENV)/.made:
	$(PYTHON) -m venv $(BATCHES_VENV)
	$(BATCHES_VENV)/bin/pip install -qq $(BATCHES)
	@touch $@

# mypy reads the types of what the example and the tests import.
$(VENV)/.lint: $(VENV)/.test
	$(BIN)/pip install -qq --editable '.[test,lint]' $(CELERY)
	@touch $@
