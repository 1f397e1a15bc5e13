# Works on a fresh machine that has python3 (3.10 or newer) and make; everything else comes into .venv, for the
# demonstrations into .venv-demo.

PYTHON ?= python3
VENV ?= .venv
JOBS ?= 2
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
KERNELS := $(VENV)/.kernels
SHOW := .venv-demo
SHOWN := $(SHOW)/.installed
NATIVE := $(wildcard native/*/*.[ch] native/attention/*.cu native/attention/*.cuh native/*/*/*.h native/*/*.[ch]pp tests/native/programs/*)

.PHONY: help demo demo-native test test-faults test-kernels engines test-engines break-engines lint format bench wheel clean

help:
	@echo 'make demo          install, fetch the vllm 0.6.3 wheel (200 MB, kept in a cache), plan, apply, status, revert'
	@echo 'make demo-native   the shim on a library of our own: build, run, status, set (needs gcc and g++)'
	@echo 'make test          all tests but the three below; a few minutes on 2 cores'
	@echo 'make test-faults   kill and fail apply and revert at every write-like system call'
	@echo 'make test-kernels  the attention kernels: in transformers, in the interpreter of Triton, compiled for Hopper; no GPU'
	@echo 'make engines       build three real engines for a CPU (6 GB on disk, 2 GB to fetch, kept in a cache)'
	@echo 'make test-engines  tests in which they run, and on released wheels; builds what is not built'
	@echo 'make break-engines the same with three patches broken on purpose: the tests that hold them must fail, and no others'
	@echo 'make lint          ruff, mypy, import order, text rules'
	@echo 'make format        what ruff can mend by itself'
	@echo 'make bench         speed, side by side with git apply, patch and quilt; ns per call through the shim, and per guard'
	@echo 'make wheel         dist/*.whl and dist/*.tar.gz'
	@echo 'make clean         remove the environments and what was built; the cache of wheels stays'

.PHONY: python
python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo '$(PYTHON) is older than 3.10; run: make PYTHON=python3.12 ...' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo '$(PYTHON) cannot make environments; on Debian and Ubuntu: apt-get install python3-venv' >&2; exit 1; }

$(STAMP): pyproject.toml | python
	$(PYTHON) -m venv --clear $(VENV)
	@echo 'What the tests need comes into $(VENV), PyTorch included: some minutes, in which pip says nothing.'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	@touch $@

# The demonstrations need patchkit alone: no PyTorch, no test tools.
$(SHOWN): pyproject.toml | python
	$(PYTHON) -m venv --clear $(SHOW)
	$(SHOW)/bin/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

# Where PYTHONDONTWRITEBYTECODE is set, every start of the command would compile it anew.
.PHONY: compiled
compiled: $(STAMP)
	@$(BIN)/python -m compileall -q patchkit

demo demo-native: $(SHOWN)
	@$(SHOW)/bin/python -m compileall -q patchkit
	@PATH="$(abspath $(SHOW)/bin):$$PATH" bash docs/$@.sh

test: compiled
	PATCHKIT_WHOLE=1 $(BIN)/python -m pytest -n $(JOBS) --dist loadgroup -m 'not faults and not engines and not kernels'

test-faults: compiled
	$(BIN)/python -m pytest -n $(JOBS) -m faults

$(KERNELS): $(STAMP) pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test,kernels]'
	@touch $@

test-kernels: compiled $(KERNELS)
	PATCHKIT_WHOLE=1 $(BIN)/python -m pytest -n $(JOBS) -m kernels

engines: $(STAMP)
	$(BIN)/python -m tests.engines.build --jobs $(JOBS)

# A file has one engine, whose starts are shared within a worker; the longest files come first (tests/engines/conftest.py).
test-engines: engines
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder --durations 12 -m engines tests/engines

break-engines: engines
	$(BIN)/python -m tests.engines.breaking

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $(NATIVE)
	$(BIN)/python -m pytest -q tests/test_layers.py tests/test_text_rules.py

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(NATIVE)

bench: compiled
	$(BIN)/python -m benchmarks.run
	$(BIN)/python -m benchmarks.native
	$(BIN)/python -m benchmarks.guard_cost
	$(BIN)/python -m benchmarks.guards

wheel: $(STAMP)
	$(BIN)/python -m build --no-isolation

clean:
	rm -rf .venv .venv-demo .venv-3.* dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis benchmarks/out
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
