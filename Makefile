# make demo    install into .venv and run the tutorial's main job on a real model
# make test    install, lint, unit tests, then model tests; FAST=1 stops after the unit tests,
#              SPREAD=4 takes a quarter of those that no Python version changes; PART=4 takes a quarter
#              of the long tables, another one for each commit; LINTED=1 leaves lint out
# make lint / make accept (refresh golden files) / make bench
# make fuzz    random programs, expressions, reflection, programs that depend on data, programs of
#              tensor operators, programs whose state changes between calls or that are compiled
#              one by one, training programs, programs of corners (subclasses, modes, numpy,
#              generators, copies, identities) and of what surrounds a model (jagged, sparse and
#              distributed tensors, files, logging), eager against compiled; PROGRAMS=5000 SEED=1
#              repeats a run
# make coverage  the lines of each folder that unit tests execute; TESTS=tests/fxgraph chooses some
# make cpython  CPython's own tests with and without the hook: the table of differences
# make gpu-kit  a folder of wheels, build/gpu-kit, for `make gpu` on a machine without network
# make gpu      where a GPU is, with torch and Triton: build, tests/gpu, benchmarks.gpu; GPU_PYTHON and SUBJECTS
#               choose; `make gpu-install`, `gpu-tests` and `gpu-bench` are its parts (tests/gpu/README.md)
#
# PYTHON=python3.12 chooses the interpreter; each has its own virtual environment.

PYTHON ?= python3.11
INTERPRETER := $(shell sh tools/find_python.sh $(PYTHON))
VENV := .venv$(if $(filter python3.11,$(PYTHON)),,-$(PYTHON))
BIN := $(VENV)/bin
PACKAGES := $(VENV)/packages-installed
STAMP := $(VENV)/installed
SOURCES := $(wildcard dynamo/csrc/* fxgraph/csrc/* fxgraph/aot/csrc/* fxgraph/aot/csrc/recurrent/* inductor/runtime/csrc/* inductor/runner/integers.h inductor/codegen/*.cpp inductor/codegen/*.h)
JOBS ?= 2
SPREAD ?= 1
PART ?= 1
# One job needs no process that hands out tests: a fifth of its time.
PYTEST = $(BIN)/python -m pytest -q -n $(if $(filter 1,$(JOBS)),0,$(JOBS)) --dist worksteal --spread $(SPREAD) --part $(PART) --durations 25

# What framegraph, tests/gpu and benchmarks.gpu need besides torch, with what torch needs itself, and Triton, which a
# machine with a GPU has. Packages that GPU_PYTHON has stay as they are.
GPU_KIT := build/gpu-kit
GPU_PACKAGES := "setuptools>=77,<82" numpy bytecode tabulate platformdirs psutil pytest pytest-timeout pytest-xdist transformers
GPU_PYTHON ?= python3
GPU_SECONDS ?= 300
GPU_TEST_SECONDS ?= 270
GPU_VENV := build/gpu-venv
GPU := $(GPU_VENV)/bin/python

.PHONY: demo test lint accept bench fuzz coverage cpython packages install clean gpu gpu-kit gpu-install gpu-tests gpu-bench

demo: $(STAMP)
	$(BIN)/python tutorials/demo.py

test: $(STAMP) $(if $(FAST)$(LINTED),,lint)
	$(PYTEST) -m "not slow and not gpu"
ifndef FAST
	$(PYTEST) -m "slow and not gpu"
endif

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy dynamo fxgraph inductor backends

accept: $(STAMP)
	$(BIN)/python -m pytest -q -m "not gpu" --accept tests/fxgraph tests/inductor tests/dynamo

bench: $(STAMP)
	$(BIN)/python -m benchmarks.peers
	$(BIN)/python -m benchmarks.peers --dtype bfloat16
	$(BIN)/python -m benchmarks.peers --training
	$(BIN)/python -m benchmarks.peers --training --dtype bfloat16
	$(BIN)/python -m benchmarks.inference
	$(BIN)/python -m benchmarks.training
	$(BIN)/python -m benchmarks.static_graph
	$(BIN)/python -m benchmarks.capture
	$(BIN)/python -m benchmarks.dynamic

fuzz: $(STAMP)
	$(BIN)/python -m tests.fuzz $(if $(PROGRAMS),--programs $(PROGRAMS)) $(if $(SEED),--seed $(SEED))
	$(BIN)/python -m tests.fuzz.expressions $(if $(SEED),--seed $(SEED))
	$(BIN)/python -m tests.fuzz.reflection $(if $(SEED),--seed $(SEED))
	$(BIN)/python -m tests.fuzz.data $(if $(SEED),--seed $(SEED))
	$(BIN)/python -m tests.fuzz.kernels $(if $(SEED),--seed $(SEED))
	$(BIN)/python -m tests.fuzz.state $(if $(PROGRAMS),--programs $(PROGRAMS)) $(if $(SEED),--seed $(SEED))
	$(BIN)/python -m tests.fuzz.alike $(if $(PROGRAMS),--programs $(PROGRAMS)) $(if $(SEED),--seed $(SEED))
	$(BIN)/python -m tests.fuzz.training $(if $(PROGRAMS),--programs $(PROGRAMS)) $(if $(SEED),--seed $(SEED))
	$(BIN)/python -m tests.fuzz.corners $(if $(PROGRAMS),--programs $(PROGRAMS)) $(if $(SEED),--seed $(SEED))
	$(BIN)/python -m tests.fuzz.objects $(if $(PROGRAMS),--programs $(PROGRAMS)) $(if $(SEED),--seed $(SEED))
	$(BIN)/python -m tests.fuzz.surroundings $(if $(PROGRAMS),--programs $(PROGRAMS)) $(if $(SEED),--seed $(SEED))

coverage: $(STAMP)
	rm -rf build/coverage && mkdir -p build/coverage
	$(BIN)/python -m coverage run -m pytest -q -n $(JOBS) -p tests.covering -m "not slow and not gpu" $(TESTS)
	$(BIN)/python -m coverage combine -q
	$(BIN)/python tools/covered_lines.py

cpython: $(STAMP)
	$(BIN)/python -m tests.cpython --all

gpu-kit: $(PACKAGES)
	rm -rf $(GPU_KIT)
	$(BIN)/python -m pip download -q -d $(GPU_KIT) --only-binary=:all: --implementation cp --python-version 3.12 \
		--platform manylinux_2_28_x86_64 --platform manylinux2014_x86_64 -c constraints.txt $(GPU_PACKAGES)
	du -sh $(GPU_KIT)

# Of 9 minutes, the table has what the build and the tests leave; failed tests do not keep it from being made.
gpu:
	@end=$$(($$(date +%s) + 525)); $(MAKE) gpu-install || exit 1; \
	$(MAKE) gpu-tests; failed=$$?; \
	$(MAKE) gpu-bench GPU_SECONDS=$$((end - $$(date +%s))) || failed=1; exit $$failed

gpu-install:
	@$(GPU_PYTHON) tools/gpu.py $(GPU_KIT)
	$(GPU_PYTHON) tools/overlay.py $(GPU_VENV)
	$(GPU) -m pip install -q --no-index --find-links $(GPU_KIT) $(GPU_PACKAGES)
	$(GPU) setup.py -q build_ext --inplace

gpu-tests:
	timeout -s INT -k 10 $(GPU_TEST_SECONDS) $(GPU) -m pytest -q -n 8 --dist load --timeout 120 -m gpu tests/gpu $(GPU_TESTS)

gpu-bench:
	$(GPU) -m benchmarks.gpu --within $(GPU_SECONDS) $(SUBJECTS)

packages: $(PACKAGES)

install: $(STAMP)

# torch comes first and pinned: the extensions are built against it, without build isolation, which would fetch another.
$(PACKAGES): constraints.txt pyproject.toml tools/requirements.py tools/install.py
	$(INTERPRETER) -m venv $(VENV)
	$(BIN)/python tools/install.py -c constraints.txt "setuptools>=77" wheel torch
	$(BIN)/python tools/requirements.py test triton >$(VENV)/requirements.txt
	$(BIN)/python tools/install.py -c constraints.txt -r $(VENV)/requirements.txt
	touch $@

$(STAMP): $(PACKAGES) setup.py $(SOURCES)
	$(BIN)/python setup.py -q build_ext --inplace
	FRAMEGRAPH_EXT=none $(BIN)/python -m pip install -q --no-deps --no-build-isolation -e .
	touch $@

clean:
	rm -rf build .venv .venv-* *.egg-info
