# This needs only make and Python 3.11 or later; each target installs its dependencies once.
SHELL := /bin/sh
.DEFAULT_GOAL := help
VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= $(shell for name in python3 python3.14 python3.13 python3.12 python3.11; do \
	if "$$name" -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then echo "$$name"; break; fi; done)
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
TESTS ?=
NUMPROCESSES ?= 3
# In CI a failed test is retried twice, because the machine may be busy. The summary lists it as RERUN.
RERUNS ?= $(if $(CI),2,0)

.PHONY: help kube-peer demo demo-hardware demo-metal demo-cloud demo-dpu up test test-as-user test-slow test-changed test-vm test-metal test-gpu qemu-tree chaos storm fuzz bench lint audit format lock docs pictures clean install install-dev peers

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/^([a-z-]+):.*## /  make \1\t/'

demo: install ## lease, use and release a host, a folder and a web site on this machine
	@$(BIN)/drydock demo

demo-hardware: install ## find the hardware of this machine, and lease a captured GPU together with its host
	@$(BIN)/drydock demo --hardware

demo-metal: install-dev peers ## enrol, deploy, rescue and erase emulated servers (10 to 25 minutes; DOUBLES=1: one minute)
	@$(BIN)/python -m tests.metal.$(if $(DOUBLES),demo,qemu_demo)

demo-cloud: install-dev peers ## lease and release five hosts on three emulated clouds that run out of capacity
	@$(BIN)/python -m tests.clouds.demo

demo-dpu: install-dev peers kube-peer ## lease emulated DPUs through DPF on a real Kubernetes API server, and through a BMC (minutes)
	@$(BIN)/python -m tests.dpus.demo

up: install ## run engines, web, workers and beat in the foreground until Ctrl-C
	@$(BIN)/python -m drydock.up

PYTEST = $(BIN)/python -m pytest -n $(NUMPROCESSES) --reruns $(RERUNS) --reruns-delay 5 $(if $(CI),--durations=25)

test: install-dev peers ## run the tests, except those of test-slow (TESTS=path selects some)
	@$(PYTEST) -m "not slow and not metal" $(TESTS)

test-slow: install-dev peers kube-peer ## run the slow tests: chaos, outages, storm, benchmarks, crashes at every call over SSH (MINUTES=40 begins none later)
	@$(PYTEST) $(if $(MINUTES),--minutes $(MINUTES)) -m "slow and not metal" $(TESTS)

kube-peer: # a Kubernetes API server for the tests of DPF, if its script is beside the repository (once; minutes)
	@if [ -x ../shared/peers/kube-apiserver ]; then nice -n 10 ../shared/peers/kube-apiserver build || \
	echo "The API server was not built, so the tests of DPF on real servers are skipped." >&2; fi

test-changed: install-dev peers ## run the tests that depend on changes since the last run of this target (pytest-testmon)
	@$(PYTEST) --testmon --testmon-forceselect -m "not slow and not metal" $(TESTS) || [ $$? = 5 ] # 5: nothing to run

test-as-user: install-dev peers ## run the tests that differ for an ordinary user, with a temporary account (needs root)
	@.ci/as-user

test-vm: install-dev ## boot a Debian in QEMU with Drydock's user data, and log in (minutes; needs root)
	@$(BIN)/python -m tests.clouds.vm

test-metal: install-dev peers ## build the ramdisk, and let QEMU machines with BMCs boot it (up to 30 minutes; needs apt)
	@$(BIN)/python -m pytest -n 0 -m metal tests/metal

test-gpu: install ## find, lease, enforce and clean an NVIDIA GPU of this machine (needs root; TO=folder keeps what it saw)
	@$(BIN)/python -m tests.accelerators.gpu $(if $(TO),--to $(TO))

qemu-tree: install-dev ## capture the tree of an emulated disk with VFs again (needs apt and qemu-system-x86)
	@$(BIN)/python -m tests.agent.qemu

chaos: install-dev ## run 1,000 leases with faults, and verify all guarantees (SEED=7 repeats a run; SHORT=1: 60 leases)
	@$(BIN)/python -m chaos $(if $(SEED),--seed $(SEED)) $(if $(SHORT),--short)

storm: install-dev peers ## run leases on failing emulated clouds, or servers (RACK=1), and kill workers (SEED=7 LEASES=60)
	@$(BIN)/python -m tests.$(if $(RACK),metal,clouds).storm $(if $(SEED),--seed $(SEED)) $(if $(LEASES),--leases $(LEASES))

fuzz: install-dev ## send random input of strangers and hosts for 20 minutes (SECONDS=60 SEED=7)
	@DRYDOCK_FUZZ_SECONDS=$(or $(SECONDS),1200) DRYDOCK_FUZZ_SEED=$(or $(SEED),$$(date +%s)) \
	$(BIN)/python -m pytest -n 0 -q -s tests/fuzz

bench: install ## measure speed and scale (CYCLES=200 HISTORY=1000000)
	@$(BIN)/python -m bench $(if $(CYCLES),--cycles $(CYCLES)) $(if $(HISTORY),--history $(HISTORY))

lint: install-dev ## check style, spelling, types, imports, migrations and Django's deployment checks
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@git ls-files -z | xargs -0 $(BIN)/codespell
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@# A state folder of its own: checks must not make keys or databases for the person who runs them.
	@export DRYDOCK_STATE=$$(mktemp -d /tmp/dd-XXXXXX) && chmod go+x $$DRYDOCK_STATE && \
	trap 'rm -rf $$DRYDOCK_STATE' EXIT && \
	$(BIN)/python manage.py makemigrations --check --dry-run && \
	DRYDOCK_HTTPS=1 $(BIN)/python manage.py check --deploy --fail-level WARNING

audit: install-dev ## check all locked versions against the advisory database (needs the internet)
	@for lock in requirements.txt requirements-dev.txt requirements-generator.txt; do echo "$$lock:" && \
	$(BIN)/pip-audit --strict --require-hashes --disable-pip --progress-spinner off -r $$lock || exit 1; done

format: install-dev ## fix and format the code
	@$(BIN)/ruff check --fix-only .
	@$(BIN)/ruff format .

docs: install ## generate the pages on settings, states, metrics and events
	@$(BIN)/python -m drydock.reference.settings > docs/settings.md
	@$(BIN)/python -m drydock.reference.states > docs/states.md
	@$(BIN)/python -m drydock.reference.metrics > docs/metrics.md
	@$(BIN)/python -m drydock.reference.events > docs/events.md

pictures: install-dev ## take the pictures of the documentation from a real installation (needs chromium)
	@$(BIN)/python docs/images/make.py

# --universal: one file for every Python we run on. No address of a registry is written.
COMPILE := compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --quiet
lock: install-dev ## requirements*.in -> requirements*.txt with hashes
	@$(BIN)/uv pip $(COMPILE) requirements.in -o requirements.txt
	@$(BIN)/uv pip $(COMPILE) requirements-build.in -o requirements-build.txt
	@$(BIN)/uv pip $(COMPILE) requirements-dev.in -o requirements-dev.txt
	@$(BIN)/uv pip $(COMPILE) requirements-generator.in -o requirements-generator.txt

clean: ## remove what make and the tests created; leases and databases are kept
	@rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .testmondata* .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

install: $(VENV)/.installed
install-dev: $(VENV)/.installed-dev

$(VENV)/.made:
	@if [ -z "$(PYTHON)" ]; then echo "Drydock needs Python 3.11 or later with its venv module; none was found." \
		"Install it (Debian: apt install python3 python3-venv) or say where it is: make PYTHON=/path/to/python3.12" >&2; exit 1; fi
	@$(PYTHON) -m venv $(VENV) && touch $@

$(VENV)/.installed: $(VENV)/.made requirements.txt requirements-build.txt pyproject.toml
	@echo "Installing what Drydock needs into $(VENV) ..."
	@$(PIP) install --require-hashes -r requirements-build.txt
	@$(PIP) install --require-hashes -r requirements.txt
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@# pip writes the whole path; where no locale is UTF-8, Python before 3.13 does not start with an "é" in it.
	@for path in $(VENV)/lib/python*/site-packages/_editable_impl_drydock*.pth; do echo ../../../.. > "$$path"; done
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed requirements-dev.txt requirements-generator.txt
	@echo "Installing what tests and checks need ..."
	@$(PIP) install --require-hashes -r requirements-dev.txt
	@$(PIP) install --require-hashes -r requirements-generator.txt --target $(VENV)/generator --upgrade
	@touch $@

# Real peers for the tests. Where they cannot be installed, their tests are skipped and the summary says which.
peers:
	@$(BIN)/python -m tests.peers install
