# Two commands for a newcomer: `make demo` and `make test`. Needs Python 3.11 or newer as `python3`, nothing else.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
USED := .venv/.used
STAMP := .venv/.installed
# one BLAS thread a process: two processes with two threads each are slower than one
export OMP_NUM_THREADS := 1
export OPENBLAS_NUM_THREADS := 1
# compiled modules are kept: a check is several processes, and each would compile the package anew
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test suite test-bare test-diffprivlib test-slow bench reproduce kinds utility truth nightly docs lint fmt clean

# what a user installs; the demonstration compiles the modules that it imports, which are few of them
$(USED): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --no-compile --constraint constraints.txt --editable .
	touch $(USED)

# what development needs besides: torch first, held by the constraint file
$(STAMP): $(USED)
	$(BIN)/pip install --quiet --no-compile --constraint constraints.txt torch
	$(BIN)/pip install --quiet --no-compile --constraint constraints.txt --editable '.[dev]'
	$(BIN)/python -m compileall -qq -j 0 .venv/lib || true # by all cores; a library's own test files may not compile
	touch $(STAMP)

demo: $(USED) ## the gate on real data and a real registry, below .demo/
	$(BIN)/privgate demo --folder .demo

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/deptry privgate
	$(BIN)/python tests/docs/prose.py
	@if [ -f ../shared/house/ratchet.py ]; then $(BIN)/python ../shared/house/ratchet.py; fi

test: $(STAMP) ## lint, types, floors, tests; COVERAGE=1, as in a job of CI, measures branch coverage too and asks for 90 %
	@$(MAKE) --no-print-directory --jobs 2 lint suite # side by side: the type checker is one long task of one core

suite: $(STAMP) # a worker for each of two cores: every one imports and collects all by itself, 12 s of a core
	rm -f .coverage .coverage.*
	$(BIN)/$(if $(COVERAGE),coverage run -m )pytest --numprocesses 2 --dist loadgroup --no-loadscope-reorder
	$(if $(COVERAGE),$(BIN)/coverage combine --quiet && $(BIN)/coverage report)

HIDDEN := bwrap,chromium,chromium-browser,google-chrome,initdb
test-bare: $(STAMP) ## the tests that rest on bubblewrap, Chromium or PostgreSQL, as on a machine without them
	PRIVGATE_TESTS_HIDE=$(HIDDEN) $(BIN)/pytest -m "outside and not slow" --numprocesses 2 --dist loadgroup --no-loadscope-reorder tests

# Experiments begin nothing after so many minutes, and go on where they were interrupted. One that has not come to its
# end, or in which something failed, ends with an error.
MINUTES ?= 90
DATA ?= ../shared/data
LONG = --timeout 3600

# diffprivlib 0.6.6 cannot be imported beside scikit-learn 1.9
BESIDE := .venv-diffprivlib
$(BESIDE)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(BESIDE)
	$(BESIDE)/bin/pip install --quiet --no-compile --constraint constraints.txt torch
	$(BESIDE)/bin/pip install --quiet --no-compile --editable '.[dp]' pytest pytest-timeout pytest-xdist hypothesis 'scikit-learn<1.9'
	touch $@

test-diffprivlib: $(BESIDE)/.installed ## the tests of diffprivlib, beside an older scikit-learn
	$(BESIDE)/bin/python -m pytest -p no:cacheprovider tests/claims/test_dp_observe.py

test-slow: $(STAMP) test-diffprivlib ## faults, coverage of intervals, reproduction of the papers
	$(BIN)/pytest -m slow --numprocesses 2 --dist loadgroup $(LONG)

# what others attack with, in an environment of its own; where it cannot be made, the last line says so
PEERS := .venv-peers
$(PEERS)/.installed: constraints.txt
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/pip install --quiet --no-compile --constraint constraints.txt torch sacroml adversarial-robustness-toolbox
	touch $@

bench: $(STAMP) ## ten ratios of what is measured to what is wanted, a quarter of an hour; writes tests/bench/results.md
	-@$(MAKE) --no-print-directory $(PEERS)/.installed
	PRIVGATE_DATA=$(DATA) PYTHONPATH=examples $(BIN)/python tests/bench/run.py

reproduce: $(STAMP) ## the papers' experiments, about 80 minutes of one core; writes tests/published/results.md
	mkdir -p build
	PYTHONPATH=examples $(BIN)/python -m papers all --data $(DATA) --keep build/$@.jsonl --most-minutes $(MINUTES) > build/reproduced.md
	cat tests/published/heading.md build/reproduced.md > tests/published/results.md

KINDS ?= --limit 200
kinds: $(STAMP) ## every common kind of model through the gate, about an hour of two cores; writes docs/kinds.md
	PRIVGATE_DATA=$(DATA) PYTHONPATH=examples $(BIN)/python -m kinds $(KINDS) --most-minutes $(MINUTES) --table docs/kinds.md

UTILITY ?= --people 8 --seeds 3 --shadows 16 --targets 2 --at-most 2000 --limit 600
utility: $(STAMP) ## what guarantees cost in accuracy, attacks and time; writes the table of docs/utility.md
	PRIVGATE_DATA=$(DATA) PYTHONPATH=examples $(BIN)/python -m utility $(UTILITY) --most-minutes $(MINUTES) --table docs/utility.md

TRUTH ?=
truth: $(STAMP) ## models of which the truth is known, through release-1; writes docs/truth.md
	PYTHONPATH=examples $(BIN)/python -m truth $(TRUTH) --most-minutes $(MINUTES) --table docs/truth.md

nightly: $(STAMP) ## all six one after the other, also behind one that failed
	@said=; failed=0; \
	for suite in test-slow bench reproduce kinds utility truth; do \
	  began=$$(date +%s); \
	  if $(MAKE) --no-print-directory $$suite TRUTH=--nightly; then how=done; else how=FAILED; failed=1; fi; \
	  said="$$said$$suite: $$how after $$((($$(date +%s) - began) / 60)) minutes\n"; \
	done; \
	printf "$$said"; exit $$failed

docs: $(STAMP) ## the documentation as a site below build/site, without a warning
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

fmt: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv $(BESIDE) $(PEERS) .demo .coverage .coverage.* .mypy_cache .ruff_cache .pytest_cache .hypothesis
