# Everything from a fresh clone: only Python >= 3.11, git, ssh-keygen and make must be there.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
export PYTHONUTF8 = 1
# Whoever starts thousands of processes wants modules compiled once.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: all demo test test-long coverage check bench soak generate install wheel clean
all: check test

install: $(STAMP)
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo '$(PYTHON): not there, or older than Python 3.11 -> make $(MAKECMDGOALS) PYTHON=python3.11' >&2; exit 2; }
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[demo,dev]'
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/fedops demo --replace

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/zizmor --offline --pedantic --quiet .github/workflows
	$(BIN)/actionlint -shellcheck $(BIN)/shellcheck .github/workflows/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/act --validate --strict -P ubuntu-latest=-self-hosted -W .github/workflows
	$(BIN)/python -m tests.generate --check

# Three at a time also on two cores: much of a test's time is waiting for git and for other processes.
PYTEST := $(BIN)/python -m pytest -n 3 --dist worksteal -q

test: $(STAMP)
	$(PYTEST) -m 'not long'

# Whole federations from the first command to the last: the demo, GitHub, the workflows by act, kills, schedules.
test-long: $(STAMP)
	$(PYTEST) -m long

# What `make test` runs, once more with every line traced, which takes twice as long.
coverage: $(STAMP)
	rm -f .coverage .coverage.*
	$(PYTEST) -m 'not long' --cov=fedops --cov-report=
	$(BIN)/python -m coverage report --fail-under=95
	$(BIN)/python -m coverage report --include='fedops/core/*' --fail-under=100

generate: $(STAMP)
	$(BIN)/python -m tests.generate

bench: $(STAMP)
	$(BIN)/python bench/run.py

# Hours on one core: a million damaged inputs, hundreds of kills, random schedules. Writes bench/soak.md.
soak: $(STAMP)
	$(BIN)/python -m tests.soak
	$(BIN)/python bench/pages.py

# The wheel, alone in a clean environment, must carry everything that init and the demo write.
wheel: $(STAMP)
	rm -rf dist build/wheel
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .
	$(PYTHON) -m venv build/wheel
	build/wheel/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt "$$(ls dist/*.whl)[demo]"
	cd build && wheel/bin/fedops demo --replace --dir demo --versions 2

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache
