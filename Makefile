# What people and CI do with this repository; `make` alone lists it.

PYTHON ?= python3
override LISTEN := $(or $(LISTEN),127.0.0.1:10777)
FULL   ?= 0

VENV := .venv
BIN  := $(VENV)/bin
RUNNABLE := $(VENV)/made-to-run
READY    := $(VENV)/made-to-develop

# Not empty when .venv is of no use: it was made in another folder, or with another Python than is asked for.
STALE := $(shell [ ! -e $(VENV) ] || grep -sqF '$(CURDIR)/$(VENV)/' $(BIN)/pip || echo moved)
ifneq ($(origin PYTHON),file)
STALE += $(shell [ "$$($(BIN)/python -V 2>&1)" = "$$($(PYTHON) -V 2>&1)" ] || echo another)
endif

LOAD_NVML := import ctypes; ctypes.CDLL("libnvidia-ml.so.1")

.DEFAULT_GOAL := help
.PHONY: help run demo check docs lock bench clean $(if $(strip $(STALE)),$(RUNNABLE) $(READY))

help: ## List the targets
	@echo "make TARGET [PYTHON=$(PYTHON)] [LISTEN=$(LISTEN)] [FULL=1]"
	@sed -n 's/^\([a-z]*\):.*## /  \1\t/p' Makefile

run: $(RUNNABLE) ## Install into .venv and start the agent; without an NVIDIA driver, with simulated GPUs
	@if [ -e /proc/driver/nvidia/version ] || $(BIN)/python -c '$(LOAD_NVML)' 2>/dev/null; then \
	  exec $(BIN)/clusterwatt run --listen $(LISTEN); \
	else \
	  echo "No NVIDIA driver on this machine: simulating 8 x H100. Network, disks and host are real."; \
	  exec $(BIN)/clusterwatt run --listen $(LISTEN) --simulate h100; \
	fi

demo: $(RUNNABLE) ## A simulated cluster with Prometheus, its rules and Alertmanager; Grafana where it is installed
	@exec $(BIN)/python -m tests.tools.demo

check: $(READY) ## Format, lint, types, layers, tests on every Python here, end to end; FULL=1 leaves nothing out
	@$(BIN)/python -m tests.tools.check $(if $(filter 1,$(FULL)),--full)

docs: $(READY) ## Write what is generated: docs/METRICS.md, codes of docs/XIDS.md, deploy/clusterwatt.yaml, boards
	@$(BIN)/clusterwatt metrics --format markdown > docs/METRICS.md
	@$(BIN)/python -m tests.tools.xid_table
	@$(BIN)/clusterwatt check-config --print-defaults > deploy/clusterwatt.yaml
	@$(BIN)/python -m dashboards.build

lock: $(READY) ## Pin what the image is built from: requirements.lock, requirements-build.lock
	@$(BIN)/python -m tests.tools.lock

bench: $(READY) ## Measure CPU, memory, first page and scrape times of the agent
	@$(BIN)/python -m benchmarks.agent

clean: ## Remove what was made here: environments, caches
	rm -rf $(VENV) .venv-3.* .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(RUNNABLE): EXTRAS :=
$(READY): EXTRAS := [dev]

# An environment that is half made, or of another Python, or moved, is made anew. The file `half-made` is there
# while pip works: pip cannot tell what a break in the middle left behind.
$(RUNNABLE) $(READY): pyproject.toml
	@[ -w . ] || { \
	  echo "$(CURDIR) cannot be written: copy it to a folder of your own and run make there"; exit 1; }
	@$(PYTHON) -c '' 2>/dev/null || { \
	  echo "$(PYTHON) is missing: sudo apt-get install -y python3 python3-venv"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	  echo "$(PYTHON) is older than 3.10: name a newer one, as PYTHON=python3.11; Debian 12 and Ubuntu 22.04" \
	    "have one"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "$(PYTHON) cannot make environments: sudo apt-get install -y $(notdir $(PYTHON))-venv"; exit 1; }
	@version=$$($(PYTHON) -c 'import sys; print("(python %d.%d)" % sys.version_info[:2])'); \
	if [ -n "$(strip $(STALE))" ] || [ -e $(VENV)/half-made ] || \
	    ! $(BIN)/python -m pip --version 2>/dev/null | grep -qF "$$version"; then \
	  echo "Making $(VENV) with $(PYTHON)"; \
	  rm -rf $(VENV); $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }; \
	fi
	@echo "Installing clusterwatt$(EXTRAS) into $(VENV)"; touch $(VENV)/half-made
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.$(EXTRAS)' || { rm -rf $(VENV); exit 1; }
	@rm $(VENV)/half-made; touch $@
