# Every target does its own set-up: a .venv in this folder, with the versions pinned in requirements/.
# It needs Python 3.11 to 3.13 or uv; nothing is installed outside this folder.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup run test check docs site package compat simulate fuzz soak bench lock clean

VENV := .venv
PYTHON := $(VENV)/bin/python
PYTHON_VERSIONS := >=3.11,<3.14

# uv from PATH, or our own copy in .uv.
UV := $(or $(shell command -v uv 2>/dev/null),.uv/bin/uv)

ARGS ?=
PYTEST_ARGS ?=
LOCK_ARGS ?=
# Seeds in which messages become dead letters (0: no end), and how often a real broker is killed meanwhile.
SEEDS ?= 2000
KILLS ?= 200
# Messages that a Spark stream copies, and how often a process, a task or the broker is killed meanwhile.
STREAM_MESSAGES ?= 1000000
STREAM_KILLS ?= 40
# How often a broker, a driver or a worker is killed while two clusters replicate into each other.
CHAOS_KILLS ?= 60
# Hours of hostile input, or inputs per command and route, and processes at a time.
HOURS ?= 1
RUNS ?= 0
JOBS ?= 1
# A steady load: messages a second over so many topics and connections.
MINUTES ?= 10
CONNECTIONS ?= 1000
TOPICS ?= 10000
RATE ?= 20000

help:
	@echo 'make run       start a broker and its console    ARGS="--port 0"'
	@echo 'make test      run the tests                     PYTEST_ARGS="-k names"'
	@echo 'make check     ruff and mypy'
	@echo 'make docs      regenerate the reference pages in docs'
	@echo 'make package   build wheel and sdist in dist'
	@echo 'make site      build the documentation as a site'
	@echo 'make compat    run the official clients of other languages'
	@echo 'make simulate  simulate, and kill brokers        SEEDS=2000 KILLS=200 STREAM_KILLS=40 CHAOS_KILLS=60, or ARGS=seed to replay one'
	@echo 'make fuzz      send hostile input for hours      HOURS=1 JOBS=1, or RUNS=100 per target, or ARGS=file to replay one'
	@echo 'make soak      a steady load with a vandal       MINUTES=10 CONNECTIONS=1000 TOPICS=10000 RATE=20000'
	@echo 'make bench     measure against Apache Pulsar'
	@echo 'make setup     install everything a developer needs'
	@echo 'make lock      pin the dependencies again        LOCK_ARGS="--upgrade"'
	@echo 'make clean     remove what the targets created, but never data'

setup: $(VENV)/.installed-dev

run: $(VENV)/.installed-run
	$(VENV)/bin/magnetar standalone --console $(ARGS)

# Two at a time: many tests wait for a socket or a process. Those that need Spark share one session, in one of the two.
test: $(VENV)/.installed-dev
	$(PYTHON) -m pytest -n 2 --dist loadgroup $(PYTEST_ARGS)

check: $(VENV)/.installed-dev
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/mypy

docs: $(VENV)/.installed-dev
	$(PYTHON) -m tools.settings_reference > docs/settings.md
	$(PYTHON) -m tools.log_reference > docs/log.md
	$(PYTHON) -m tools.protocol_reference > docs/protocol.md
	$(PYTHON) -m tools.admin_reference > docs/admin.md
	$(PYTHON) -m tools.cli_reference > docs/cli.md
	$(PYTHON) -m tools.spark_reference docs/spark.md docs/failed-messages.md
	$(PYTHON) -m tools.reliability_reference docs/reliability.md

# The sdist of the checkout, and the wheel of that sdist, by the build backend that requirements/build.txt pins.
package: site | $(UV)
	rm -rf dist
	$(UV) build --quiet --build-constraints requirements/build.txt --require-hashes --out-dir dist
# The documentation as a site, in build/site; the copy in the package is what the wheel has, and the console serves at /docs/.
site: $(VENV)/.installed-dev
	NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --strict
	rm -rf src/magnetar/site
	cp -R build/site src/magnetar/site

compat: $(VENV)/.installed-dev
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" compat/run $(ARGS)

simulate: $(VENV)/.installed-dev
	$(PYTHON) -m tests.simulation $(or $(ARGS),--dead-letters $(SEEDS))
	$(if $(ARGS),,$(PYTHON) -m tests.survival --seeds $(SEEDS))
	$(if $(ARGS),,MAGNETAR_KILLS=$(KILLS) $(PYTHON) -m pytest -q -s tests/crash/test_dead_letters.py)
	$(if $(ARGS),,MAGNETAR_STREAM_MESSAGES=$(STREAM_MESSAGES) MAGNETAR_STREAM_KILLS=$(STREAM_KILLS) \
		$(PYTHON) -m pytest -q -s tests/spark/test_kills.py)
	$(if $(ARGS),,MAGNETAR_CHAOS_KILLS=$(CHAOS_KILLS) $(PYTHON) -m pytest -q -s tests/crash/test_replication.py)

fuzz: $(VENV)/.installed-dev
	$(PYTHON) -m tests.fuzz --hours $(HOURS) --runs $(RUNS) --jobs $(JOBS) $(ARGS)

soak: $(VENV)/.installed-dev
	$(PYTHON) -m tests.soak --minutes $(MINUTES) --connections $(CONNECTIONS) --topics $(TOPICS) --rate $(RATE) $(ARGS)

bench: $(VENV)/.installed-dev
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" benchmarks/run $(ARGS)

.uv/bin/uv:
	python3 -m venv .uv || { echo 'neither uv nor "python3 -m venv" works here (on Debian: apt install python3-venv)' >&2; exit 1; }
	.uv/bin/python -m pip install --quiet --disable-pip-version-check uv

$(PYTHON): | $(UV)
	$(UV) venv --quiet --allow-existing --python '$(PYTHON_VERSIONS)' $(VENV)

# Bytecode is compiled at once: without it the first start takes several times as long, and every one does where Python is
# told not to write it.
$(VENV)/.installed-%: requirements/%.txt requirements/build.txt pyproject.toml | $(PYTHON)
	$(UV) pip install --quiet --python $(PYTHON) --require-hashes --build-constraints requirements/build.txt --compile-bytecode -r $<
	$(UV) pip install --quiet --python $(PYTHON) --no-deps --build-constraints requirements/build.txt --editable .
	$(PYTHON) -m compileall -q src
	@touch $@

# The run file is bound to the versions of the dev file: what runs is what was tested. It has Spark, and a Java, because the
# broker starts pipelines where they are declared.
COMPILE = $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--annotation-style line --custom-compile-command 'make lock' $(LOCK_ARGS)

lock: | $(UV)
	$(COMPILE) pyproject.toml --extra dev --extra spark --extra console --extra docs --output-file requirements/dev.txt
	$(COMPILE) pyproject.toml --extra spark --extra console --constraints requirements/dev.txt --output-file requirements/run.txt
	$(COMPILE) requirements/build.in --output-file requirements/build.txt
	@! grep -nE '://|--(extra-)?index-url' requirements/*.txt || { echo 'a lock file has an address in it' >&2; exit 1; }

clean:
	rm -rf $(VENV) .uv dist build src/magnetar/site .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
