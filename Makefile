# `make help` lists what there is. Everything is installed into .venv; nothing outside this folder changes.

PYTHON ?= python3
VENV ?= .venv
OLDEST_VENV ?= .venv-oldest
FUZZ_VENV ?= .venv-fuzz
# The oldest torch the code is tested with: the one pyproject.toml asks for.
OLDEST_TORCH := 2.13.0
# What runs on it: whatever calls torch.
OLDEST_TESTS := $(addprefix tests/test_,oldest_torch.py sweep.py loop.py patterns.py visit.py \
    transport_refusals.py transport_weights.py transport_course.py)
# More arguments for pytest: make test PYTEST_ARGS="-k sweep". Tests wait for processes more than they
# compute, so two at a time are faster even on two cores.
PYTEST_ARGS ?=
PYTEST_WORKERS ?= 2
BENCH_ARGS ?=
GPU_CHECK_ARGS ?=

RUN := $(VENV)/bin
PIP_INSTALL := -m pip install --disable-pip-version-check

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-full test-live test-oldest fuzz lint bench gpu-check constraints clean

help: ## show this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.installed ## set up, measure all_reduce and broadcast on this machine, write a report
	@$(RUN)/ncclbench sweep --ops all_reduce,broadcast

test: $(VENV)/.installed-dev ## set up and run the tests
	@$(RUN)/python -m pytest -m "not full and not live" -n $(PYTEST_WORKERS) $(PYTEST_ARGS)

# Launches across hosts two at a time on two cores: what else runs makes ranks late that are not.
test-full: $(VENV)/.installed-dev ## the slower tests that make test leaves out, those of test-live among them
	@$(RUN)/python -m pytest -m full -n $(PYTEST_WORKERS) --reruns 1 $(PYTEST_ARGS)
	@$(MAKE) --no-print-directory test-live

# What else a machine does meanwhile makes links slow that are not: hence a second try.
test-live: $(VENV)/.installed-dev ## tests on emulated clusters; as root, with nothing else running
	@$(RUN)/python -m pytest -m live --reruns 2 $(PYTEST_ARGS)

test-oldest: $(OLDEST_VENV)/.installed ## the tests that call torch, on the oldest torch that is supported
	@$(OLDEST_VENV)/bin/python -m pytest -m "not full and not live" $(OLDEST_TESTS) $(PYTEST_ARGS)

# Of each parser; FUZZ_ONLY="import 'plan file'" for those whose names hold one of these.
fuzz: $(FUZZ_VENV)/.installed ## coverage-guided attacks on every parser, FUZZ_SECONDS [20] long each
	@PYTHONPATH=$(CURDIR) $(FUZZ_VENV)/bin/python tests/fuzz.py $(FUZZ_ONLY)

lint: $(VENV)/.installed-dev ## ruff and mypy
	@$(RUN)/ruff check .
	@$(RUN)/ruff format --check .
	@$(RUN)/mypy

bench: $(VENV)/.installed-dev ## every bar of docs/performance.md, measured anew: hours; BENCH_ARGS="--quick" takes minutes
	@$(RUN)/python benchmarks/bars.py $(BENCH_ARGS)

# More for it: make gpu-check GPU_CHECK_ARGS="--only events,kernels". Exit code 1: something is wrong.
# Kernels on a GPU take numba-cuda, which the other targets do not need.
gpu-check: $(VENV)/.installed ## on a machine with GPUs: what works there, what is wrong, what is not here
	@$(RUN)/python -m pip install -q --disable-pip-version-check -e '.[cuda]' -c constraints.txt
	@PYTHONPATH=benchmarks/gpu $(RUN)/python -m gpu_check $(GPU_CHECK_ARGS)

constraints: $(VENV)/.installed ## write constraints.txt anew: the newest versions that go together
	@$(RUN)/python .ci/constraints > $(VENV)/constraints.txt
	@mv $(VENV)/constraints.txt constraints.txt

clean: ## remove the environments and what builds left behind; results stay
	rm -rf $(VENV) $(OLDEST_VENV) $(FUZZ_VENV) build dist ncclbench.egg-info

# The environments. A marker file in each says that everything was installed, and from which versions.

# $(call make_venv,FOLDER)
define make_venv
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
    echo 'make: ncclbench needs Python 3.11 or newer: make PYTHON=/path/to/python3.11' >&2; exit 2; }
@$(PYTHON) -m venv $(1) || { \
    echo 'make: no virtual environment could be made: install python3-venv (Debian),' >&2; \
    echo 'or name another Python: make PYTHON=/path/to/python3' >&2; exit 2; }
endef

# $(call pip_install,FOLDER,ARGUMENTS)
define pip_install
@$(1)/bin/python $(PIP_INSTALL) $(2) || { \
    limits=$$($(1)/bin/python -m pip config list | grep -i constraint) && { \
        echo 'make: the pip settings of this machine hold a constraint:' >&2; \
        echo "  $$limits" >&2; \
        echo 'If pip said "The user requested (constraint) torch", it refuses the torch this needs.' >&2; \
        echo 'To leave it out this once, put in front of make: PIP_CONSTRAINT= for a variable,' >&2; \
        echo 'PIP_CONFIG_FILE=/dev/null for a file (which leaves out all pip configuration files).' >&2; }; \
    exit 1; }
endef

$(VENV)/.installed: requirements.txt constraints.txt pyproject.toml
	$(call make_venv,$(VENV))
	@echo 'Installing into $(VENV); torch with CUDA is about 3 GB, so the first time takes minutes.'
	$(call pip_install,$(VENV),-r requirements.txt -c constraints.txt)
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed requirements-dev.txt
	$(call pip_install,$(VENV),-r requirements-dev.txt -c constraints.txt)
	@touch $@

# Exact versions here too, but for torch and what comes with it.
$(OLDEST_VENV)/.installed: requirements-dev.txt constraints.txt pyproject.toml Makefile
	$(call make_venv,$(OLDEST_VENV))
	@grep -vE '^(torch|triton|cuda-|nvidia-cu|nvidia-nccl|nvidia-nv)' constraints.txt > $(OLDEST_VENV)/constraints.txt
	$(call pip_install,$(OLDEST_VENV),torch==$(OLDEST_TORCH) -e . -r requirements-dev.txt -c $(OLDEST_VENV)/constraints.txt)
	@touch $@

# What the tests import beside atheris is what is installed for them: no second torch.
$(FUZZ_VENV)/.installed: $(VENV)/.installed-dev requirements-fuzz.txt
	$(call make_venv,$(FUZZ_VENV))
	@$(RUN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
	    > $$($(FUZZ_VENV)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/tests.pth
	$(call pip_install,$(FUZZ_VENV),-r requirements-fuzz.txt)
	@touch $@
