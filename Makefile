# Two commands for a newcomer: `make demo` and `make test`. Needs Python 3.11 or newer as `python3`, nothing else.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
STAMP := .venv/.installed
# one BLAS thread a process: two processes with two threads each are slower than one
export OMP_NUM_THREADS := 1
export OPENBLAS_NUM_THREADS := 1

.PHONY: demo test test-bare test-slow bench reproduce kinds utility docs lint fmt clean

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $(STAMP)

demo: $(STAMP) ## the gate on real data and a real registry, below .demo/
	$(BIN)/privgate demo --folder .demo

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/deptry privgate

test: $(STAMP) lint ## lint, types, floors, tests; COVERAGE=1, as in a job of CI, measures branch coverage too and asks for 90 %
	rm -f .coverage .coverage.*
	$(BIN)/$(if $(COVERAGE),coverage run -m )pytest --numprocesses auto --maxprocesses 4 --dist loadgroup
	$(if $(COVERAGE),$(BIN)/coverage combine --quiet && $(BIN)/coverage report)

HIDDEN := bwrap,chromium,chromium-browser,google-chrome,initdb
test-bare: $(STAMP) ## the tests that rest on bubblewrap, Chromium or PostgreSQL, as on a machine without them
	PRIVGATE_TESTS_HIDE=$(HIDDEN) $(BIN)/pytest -m "outside and not slow and not bench" tests

test-slow: $(STAMP) ## faults, coverage of intervals, reproduction of the papers
	$(BIN)/pytest -m slow --timeout 3600

bench: $(STAMP) ## speed, as ratios measured side by side; writes tests/bench/results.md
	rm -f bench-results.jsonl
	$(BIN)/pytest -m bench --timeout 3600 -s tests/bench tests/guard/store/test_overhead.py
	$(BIN)/python tests/bench/results_table.py

DATA ?= ../shared/data
PUBLISHED := tests/published/results.md
reproduce: $(STAMP) ## the papers' experiments, about 80 minutes of one core; writes tests/published/results.md
	mkdir -p build
	PYTHONPATH=examples $(BIN)/python -m papers all --data $(DATA) > build/reproduced.md
	cat tests/published/heading.md build/reproduced.md > $(PUBLISHED)

kinds: $(STAMP) ## every common kind of model through the gate, hours of two cores, resumable; writes docs/kinds.md
	PRIVGATE_DATA=$(DATA) PYTHONPATH=examples $(BIN)/python -m kinds --table docs/kinds.md

utility: $(STAMP) ## what guarantees cost in accuracy, attacks and time, hours of a core, resumable; writes build/utility.md
	PRIVGATE_DATA=$(DATA) PYTHONPATH=examples $(BIN)/python -m utility --table build/utility.md

docs: $(STAMP) ## the documentation as a site below build/site, without a warning
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

fmt: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv .demo .coverage .coverage.* .mypy_cache .ruff_cache .pytest_cache .hypothesis
