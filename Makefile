# Everything from a fresh clone: only Python >= 3.11, git, ssh-keygen and make must be there.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
export PYTHONUTF8 = 1

.PHONY: all demo test check bench generate install clean
all: check test

install: $(STAMP)
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[demo,dev]'
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/fedops demo

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/zizmor --offline --quiet .github/workflows
	$(BIN)/python -m tests.generate --check

test: $(STAMP)
	$(BIN)/python -m pytest -n 2 --cov=fedops --cov-report=term -q

generate: $(STAMP)
	$(BIN)/python -m tests.generate

bench: $(STAMP)
	$(BIN)/python bench/run.py

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache
