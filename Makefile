# Everything a contributor runs, on a fresh clone with nothing but Python >= 3.11 and make (GNU make 3.81, which macOS has, will do).
#
# Paths are relative, so that a checkout in a directory with spaces works.
# The environment is filled from requirements.lock alone; the project itself is added without its dependencies, so
# that nothing unpinned can get in. Two stamps: a new lock makes a new environment, an edited pyproject.toml only
# installs the project again.

PY := .venv/bin/python
LOCKED := .venv/.locked
READY := .venv/.ready
UV := build/uv/bin/uv
UV_VERSION := 0.13.9

# A user's own modules must not shadow the locked ones; a user-wide pip setting must not send them elsewhere.
unexport PYTHONPATH PYTHONHOME PIP_TARGET PIP_PREFIX
export PIP_USER := 0
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# One more than there are cores, at most four: tests that wait for a daemon or a browser leave theirs idle.
WORKERS := $(shell n=$$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2); [ "$$n" -lt 4 ] && echo $$((n + 1)) || echo 4)

# Tests find a cache, a config or a Dagster instance only where they put one.
PYTEST := env -u DAGSTER_HOME -u HYP_HOME -u HYPAWARE_PIPELINE_CONFIG -u HYPAWARE_LEDGER_URL \
	$(PY) -m pytest -n $(WORKERS)

# One test wants a browser. Where it cannot be had it fails and says so; the others are worth running all the same.
BROWSER := sh scripts/find-chromium --install >/dev/null || true

ifndef SEED
SEED := $(shell date +%s)
endif

# An environment whose Python is gone (a system upgrade, a moved version manager) is made again.
ifneq ($(shell $(PY) -c 'print("runs")' 2>/dev/null),runs)
.PHONY: $(LOCKED)
endif

.DEFAULT_GOAL := help
.PHONY: help install demo dev test test-long docs-images check bench lock clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

install: $(READY) ## Make .venv and fill it (every other target does so when needed)

demo: $(READY) ## Write a small cache, export it to two sinks through Dagster, query the result
	@.venv/bin/hypaware-pipeline demo

dev: $(READY) ## Dagster's UI and daemon on localhost (CONFIG=path for another config file, ARGS="--port 3001")
	@.venv/bin/hypaware-pipeline dev $(if $(CONFIG),--config "$(CONFIG)") $(ARGS)

test: $(READY) ## The tests, in at most 15 minutes (ARGS="-k name" for some of them)
	@$(BROWSER)
	@$(PYTEST) $(ARGS)

test-long: $(READY) ## All tests, the long ones too, with random examples (SEED=n repeats a run)
	@$(BROWSER)
	@echo "To repeat this run: make test-long SEED=$(SEED)"
	@$(PYTEST) -m "" --hypothesis-profile=long --hypothesis-seed=$(SEED) $(ARGS)

# The directory is named in the pictures.
docs-images: $(READY) ## Take the pictures in docs/images again, as the browser test does on its way
	@$(BROWSER)
	@HYPAWARE_TEST_PICTURES=docs/images $(PYTEST) -n 0 --basetemp=/tmp/hypaware_docs tests/test_browser.py

check: $(READY) ## Lint, format and types
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy

bench: $(READY) ## Benchmarks: rows per second and peak memory, each next to a floor measured in the same run
	@$(PY) -m benchmarks $(ARGS)

lock: $(UV) ## Pin requirements.lock again after pyproject.toml changed (UPGRADE=1: to the newest of everything)
	@$(UV) pip compile --quiet --system-certs --universal --python-version 3.11 --extra dev --generate-hashes --no-strip-extras \
		--no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" \
		$(if $(UPGRADE),--upgrade) --output-file requirements.lock pyproject.toml

clean: ## Remove the environment, caches, builds and demo data; dagster_home stays
	@rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis demo-data
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(LOCKED): requirements.lock
	@py=$$(sh scripts/find-python) && echo "Filling .venv for $$py; the first time takes a minute or two" && "$$py" -m venv --clear .venv
	@$(PY) -m pip install --quiet --require-hashes --no-deps -r requirements.lock
	@touch $(LOCKED)

# setuptools comes from the lock, hence no build isolation: pip would fetch an unpinned one. `pip check` fails when the
# lock lags behind pyproject.toml.
$(READY): $(LOCKED) pyproject.toml
	@$(PY) -m pip install --quiet --no-deps --no-build-isolation --editable .
	@missing=$$($(PY) -m pip check) || { echo "$$missing" >&2; echo "requirements.lock lags behind pyproject.toml: make lock" >&2; exit 1; }
	@touch $(READY)

$(UV):
	@py=$$(sh scripts/find-python) && "$$py" -m venv --clear build/uv
	@build/uv/bin/python -m pip install --quiet uv==$(UV_VERSION)
