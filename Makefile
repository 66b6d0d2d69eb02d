# Everything runs in a virtual environment of its own, .venv, made on first use. Variables:
#   CORES=4                       cores for the workflow and the tests (default: all)
#   CONFIG=config/paper.yaml      which experiments (default: config/config.yaml, minutes on any machine)
#   BACKEND=auto|cuda|host        where kernels run (default: auto)
#   ONLY="cupc_fig10 overview"    which tables and figures `make reproduce` and `make record` make (default: all), or which
#                                 benchmarks `make benchmark` runs, as pytest's -k
#   GPUS=2                        measure on as many GPUs side by side, and references beside them (default: one after another)
#   ARGS=--dry-run                further arguments of Snakemake
#   RECORDED=results/recorded/X   whose runs `make images` draws (default: every device's), or the folder that `make submit`
#                                 writes (default: named after the device)
#   TARGETS="x86-64-v3 sm_90"     for which CPUs and GPUs `make wheel` compiles kernels (default: all)
#   MINUTES=60                    how long `make fuzz` goes on (default: 1)
#   PYTHON=python3.12             interpreter for the virtual environment (3.11 or 3.12)
CORES ?= $(shell nproc 2>/dev/null || echo 1)
CONFIG ?= config/config.yaml
BACKEND ?= auto
ONLY ?=
GPUS ?=
ARGS ?=
RECORDED ?=
TARGETS ?=
MINUTES ?= 1
PYTHON ?= $(shell for v in python3.12 python3.11 python3; do $$v -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 13))' 2>/dev/null && echo $$v && break; done)

BIN := .venv/bin
SNAKEMAKE = $(BIN)/snakemake --cores $(CORES) --configfile $(CONFIG) --config backend=$(BACKEND) \
    $(ARGS)$(if $(GPUS), --resources gpu=$(GPUS) timing_slot=$$(($(GPUS) + 1)))
# Hundreds of short processes follow; where this is set, each would compile every module again.
unexport PYTHONDONTWRITEBYTECODE
# Tests that share a folder in which the workflow was run stay in one process. Many tests wait for other processes, so
# there is one process more than cores.
PYTEST = $(BIN)/python -m pytest -n $$(($(CORES) + 1)) --dist loadgroup
# The quick tests spend more time in compiling kernels than in running them.
QUICKLY := $(if $(shell command -v c++),CXX="$${CXX:-'$(CURDIR)/tests/quick-c++' c++}")
HEADERS := $(if $(QUICKLY),build/quick/system.hpp)

.PHONY: help venv reproduce report images record submit fuzz test test-slow test-slurm test-ssh coverage lint benchmark docs tutorials wheel clean

help: ## Show what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

venv: .venv/installed ## Create .venv with everything the project needs

.venv/installed: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "error: no Python 3.11 or 3.12 found; install one or set PYTHON=/path/to/python3.12" >&2; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@# Without a C++ compiler the host backend uses the one in the ziglang wheel.
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --constraint constraints.txt \
	    --editable '.[reproduce,test$(if $(shell command -v $${CXX:-c++} g++ clang++),,,compiler)]'
	@# pip would compile on one core, and jobs that start together would each compile the same modules. Packages carry
	@# templates that are no Python.
	$(BIN)/python -m compileall -qq -j 0 -x '/tests?/' .venv/lib || true
	$(BIN)/python -m compileall -q gpupc_impl baselines datasets workflow
	@touch $@

reproduce: venv ## Run every experiment of CONFIG, verify, draw, and write results/report.html
	$(SNAKEMAKE) -- $(ONLY)

report: venv ## Write Snakemake's own report, with the provenance of each file, to results/workflow.html
	$(SNAKEMAKE) --report results/workflow.html

images: venv ## Draw the pictures, headlines and verdicts of README and docs from the recorded runs, and the table of docs/scale.md
	$(BIN)/python -m workflow.pages.draw overview docs/images/overview.svg results/recorded/nvidia-h200
	$(BIN)/python -m workflow.pages.recorded
	$(BIN)/python -m workflow.pages.draw ooc_fig1 docs/images/timeline.svg $(RECORDED)
	$(BIN)/python -m workflow.pages.million --page docs/scale.md

record: CONFIG = config/gpu.yaml
record: BACKEND = cuda
record: venv ## Measure and verify what results/recorded keeps; after an interruption, a second call goes on (docs/reproduce.md)
	$(SNAKEMAKE) -- $(or $(ONLY),record)

submit: CONFIG = config/submit.yaml
submit: venv ## Measure twenty minutes of work for a table of all devices, publish and check it; a second call goes on (docs/submit.md)
	-$(SNAKEMAKE) -- record
	$(BIN)/gpupc records publish results $(RECORDED)
	$(BIN)/gpupc records check

fuzz: venv ## Damage files for MINUTES and read them; build/fuzz has what was found
	nice -n 19 $(BIN)/python -m tests.fuzz --minutes $(MINUTES)

build/quick/system.hpp: tests/headers.py | venv
	$(BIN)/python -m tests.headers $@

test: venv $(HEADERS) ## Run all tests but the slow ones
	$(QUICKLY) $(PYTEST)

test-slow: venv ## Run the tests that take minutes each
	$(PYTEST) -m slow

test-slurm: venv ## Run the workflow through a Slurm cluster that the tests start (Debian: slurm-wlm and munge)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[slurm]'
	$(BIN)/python -m pytest -m slurm

test-ssh: venv ## Search on workers that SSH starts, by an sshd that the tests start (Debian: openssh-server)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[ssh]'
	$(BIN)/python -m pytest -m ssh

coverage: venv $(HEADERS) ## Run all tests but the slow ones, and show which lines they reach; build/coverage has pages
	$(QUICKLY) $(PYTEST) --cov --cov-report=term:skip-covered --cov-report=html

lint: venv ## Check style and types: ruff, mypy, snakefmt, snakemake --lint, clang-format, clang-tidy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/snakefmt --check Snakefile workflow
	$(BIN)/snakemake --lint --configfile $(CONFIG)
	$(BIN)/clang-format --dry-run --Werror $$(git ls-files '*.cu' '*.cuh' '*.hpp' '*.cpp')
	$(BIN)/python -m tests.tidy

benchmark: venv ## Time the methods with pytest-benchmark
	$(BIN)/python -m pytest tests/benchmarks --benchmark-enable --benchmark-only -m '' -s -k '$(ONLY)'

docs: venv ## Build the documentation site into build/site; open index.html there
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	PYTHONPATH=. $(BIN)/mkdocs build --strict --quiet

tutorials: venv ## Run the tutorials, and write their pages and pictures
	$(BIN)/python -m workflow.pages.tutorials

wheel: venv ## Build a wheel in dist with the kernels compiled ahead for TARGETS, which takes a core most of an hour
	$(BIN)/python -m workflow.lib.shipped $(TARGETS)
	GPUPC_SHIPPED_DIR=$(CURDIR)/build/shipped $(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps \
	    --wheel-dir dist .

clean: ## Remove everything that was produced (results/reported and results/recorded stay)
	rm -rf .snakemake resources logs build dist
	find results figures -mindepth 1 -maxdepth 1 ! -name reported ! -name recorded ! -name README.md -exec rm -rf {} +
