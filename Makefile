# Two commands do everything on a fresh Debian machine: make demo, make test.
PYTHON ?= python3
BIN := .venv/bin
# One thread per process: with more, test workers on few cores wait for each other.
ONE := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=
READY := .venv/ready

.PHONY: demo test test-slow test-floors check format bench docs clean

demo: $(READY)
	OMP_NUM_THREADS=2 OMP_WAIT_POLICY=PASSIVE $(BIN)/zscope demo

# Work stealing keeps the tests of a file in one process, which then makes their fixtures once.
test: $(READY)
	$(ONE) $(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow" $(TESTS)

test-slow: $(READY)
	$(ONE) $(BIN)/python -m pytest -m slow --timeout 3600 $(TESTS)

# The oldest versions that pyproject.toml allows, in an environment of their own.
test-floors: .venv-floors/ready
	$(ONE) .venv-floors/bin/python -m pytest -n 2 --dist worksteal -m "not slow" $(TESTS)

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY)
	for script in benchmarks/*.py; do $(ONE) $(BIN)/python $$script || exit 1; done

docs: $(READY)
	$(BIN)/mkdocs build --strict

# torch is installed first and alone: as a dependency of another package it would pull in
# gigabytes of accelerator packages.
$(READY): requirements.lock
.venv-floors/ready: requirements-floors.lock
$(READY) .venv-floors/ready: pyproject.toml
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet $$(grep '^torch==' $(filter %.lock,$^))
	$(@D)/bin/pip install --quiet -r $(filter %.lock,$^)
	$(@D)/bin/pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

clean:
	rm -rf .venv .venv-floors site dist build runs
