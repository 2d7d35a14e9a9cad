# Fresh machine: `make demo`, then `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
LINT := $(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports

.PHONY: install demo test lint golden bench pages docs clean

install: $(STAMP)

# pip would compile every module on one core, half of the time that an installation takes; compileall uses all.
# Some packages carry files that no Python can read: that is no failure.
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --no-compile torch
	$(PIP) --no-compile -e ".[dev]"
	$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib >/dev/null 2>&1 || true
	touch $(STAMP)

demo: install
	$(BIN)/tensorgrow demo

lint: install
	$(LINT)

# Side by side, since checking types keeps one core busy; what lint has to say comes last, and both count.
test: install
	@{ $(LINT); } >$(VENV)/lint.log 2>&1 & lint=$$!; \
	$(BIN)/pytest -n 2 --dist worksteal; tests=$$?; \
	wait $$lint; linted=$$?; cat $(VENV)/lint.log; exit $$((tests + linted))

golden: install
	$(BIN)/python -m tests.golden

# Numbers of README again, in about an hour on two cores; everything else is `python -m benchmarks NAME`.
bench: install
	$(BIN)/python -m benchmarks.first_page

# Numbers of README and docs, from the JSON of the benchmarks.
pages: install
	$(BIN)/python -m benchmarks.pages

docs: install
	$(PIP) -e ".[docs]"
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "documentation: docs/_build/html/index.html"

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis out docs/_build docs/gallery docs/generated docs/sg_execution_times.rst
