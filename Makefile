# make demo | test | check | bench: on a fresh machine these need Python 3.11, make and a package index.
# uv is used where it is installed; pip alone does the same from the same locked files.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BENCH_VENV ?= .venv-bench
BENCH ?=
EXPERIMENT ?=
PRESET ?= quick
BENCH_ARGS ?=
DEMO_ARGS ?=
TEST_ARGS ?=
MUTANTS ?=
QUICK_ARGS ?=
# Under 3 processes cores idle while servers and databases are waited for; over 4 they starve each other.
TEST_PROCESSES ?= 3
# Numba reads past an array's end without a word unless it is told to check; kernels then compile anew, in a cache of their own.
BOUNDSCHECK = NUMBA_BOUNDSCHECK=1 NUMBA_CACHE_DIR=$(CURDIR)/var/cache/numba-boundscheck
COMPILE = uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-annotate --no-header \
	--python-version 3.11 $(LOCK_ARGS)

.PHONY: help demo docs test nightly quick explore mutants check format bench experiments lock clean browser sbom images

help:
	@echo "make demo    train on real digits, serve on 127.0.0.1:8000 (DEMO_ARGS=--once: answer and stop; --port N)"
	@echo "make test    everything the tests need, then the tests (TEST_ARGS=tests/models for some of them)"
	@echo "make nightly what takes longer: tests marked nightly, kernels with checked bounds, mutants, mutation of calibration/"
	@echo "make quick   the tests that your changes reach, nearest first, within 2 minutes (QUICK_ARGS for pytest)"
	@echo "make explore let hypothesis look for new inputs; what fails is kept in var/hypothesis"
	@echo "make mutants break a guarantee or a right in a copy, one at a time: its tests must fail (MUTANTS=word for some)"
	@echo "make check   format, lint, types, import contracts, the docs and their tables"
	@echo "make docs    build the documentation site, which the service serves at /guide"
	@echo "make format  let ruff format and fix"
	@echo "make bench   benchmarks (BENCH=name for one, PRESET=quick|full, BENCH_ARGS='--data FOLDER')"
	@echo "make experiments  the papers' tables, repeated (EXPERIMENT=name for one, PRESET=quick|full)"
	@echo "make lock    resolve the locked requirements anew (needs uv; LOCK_ARGS=--upgrade for newer versions)"
	@echo "make images  pin the images of Dockerfile and docker-compose.yml to today's digests (needs docker and a registry)"
	@echo "make sbom    the bill of materials (CycloneDX) of what is installed at run time, in dist/sbom.json"
	@echo "make clean   remove environments and caches (never var/, where your data is)"

# An environment is a stamp that is newer than what it was made from, so a second make does nothing.
define environment
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Pairmark needs Python 3.11 or newer; make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 2; }
	@echo "making $(1) from $(2)"
	@if command -v uv >/dev/null; then \
		uv venv --quiet --allow-existing --python $(PYTHON) $(1) && \
		uv pip sync --quiet --python $(1)/bin/python --compile-bytecode --require-hashes $(2) && \
		uv pip install --quiet --python $(1)/bin/python --no-deps --no-build-isolation --editable . ; \
	else \
		$(PYTHON) -m venv $(1) && \
		$(1)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $(2) && \
		$(1)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable . ; \
	fi
	@touch $(3)
endef

$(VENV)/.runtime: requirements/runtime.txt pyproject.toml
	$(call environment,$(VENV),requirements/runtime.txt,$@)

# The development environment holds the runtime one.
$(VENV)/.dev: requirements/dev.txt requirements/runtime.txt pyproject.toml
	$(call environment,$(VENV),requirements/dev.txt,$@)
	@touch $(VENV)/.runtime

$(BENCH_VENV)/.bench: requirements/bench.txt pyproject.toml
	$(call environment,$(BENCH_VENV),requirements/bench.txt,$@)

demo: $(VENV)/.runtime
	@$(VENV)/bin/python -m pairmark.service.demo $(DEMO_ARGS)

# The page is tested in a real browser. As root on Debian it is installed when absent; elsewhere this says what to do.
browser:
	@if ! command -v chromium >/dev/null || ! command -v chromedriver >/dev/null; then \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			echo "installing chromium and chromium-driver"; \
			(apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
				chromium chromium-driver) >/dev/null 2>&1 || true; \
		fi; \
	fi

NO_BROWSER = $(if $(and $(shell command -v chromium 2>/dev/null),$(shell command -v chromedriver 2>/dev/null)),,--ignore=tests/browser)
PYTEST = $(VENV)/bin/python -m pytest -n $(TEST_PROCESSES) --dist worksteal

test: $(VENV)/.dev $(VENV)/.kernels browser
	@$(if $(NO_BROWSER),echo "NOT RUN: tests/browser needs chromium and chromedriver (apt-get install chromium chromium-driver)")
	$(PYTEST) -m "not nightly" $(NO_BROWSER) $(TEST_ARGS)

nightly: $(VENV)/.dev $(VENV)/.kernels browser
	$(PYTEST) -m nightly $(NO_BROWSER) $(TEST_ARGS)
	rm -rf var/cache/numba-boundscheck
	$(BOUNDSCHECK) $(VENV)/bin/pairmark warmup
	$(BOUNDSCHECK) $(PYTEST) -m "not nightly" -q tests/models
	$(VENV)/bin/python -m tests.mutants
	$(VENV)/bin/mutmut run
	@# Some changes alter nothing that can be seen; each that survives is worth a look.
	@$(VENV)/bin/mutmut results

# Kernels compile once, before many processes want them. Numba does not see that a helper in another file changed.
$(VENV)/.kernels: $(VENV)/.dev $(wildcard $(addprefix pairmark/models/,core/compiled.py */kernels.py */kernels/*.py */*/kernels/*.py))
	@echo "compiling kernels"
	@find pairmark -name '*.nb[ic]' -delete
	@$(VENV)/bin/pairmark warmup
	@touch $@

quick: $(VENV)/.dev
	@$(VENV)/bin/python -m tests.quick $(QUICK_ARGS)

explore: $(VENV)/.dev
	@mkdir -p var
	PAIRMARK_HYPOTHESIS=explore $(VENV)/bin/python -m pytest -q -m hypothesis $(TEST_ARGS)

mutants: $(VENV)/.dev
	@$(VENV)/bin/python -m tests.mutants $(MUTANTS)

check: $(VENV)/.dev
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --no-logo
	$(VENV)/bin/python -m benchmarks.tables --check
	$(VENV)/bin/python -m benchmarks.tables --stale
	$(VENV)/bin/python -m sphinx -q -W --keep-going -b html -d docs/_build/doctrees docs docs/_build/html

# The site lands where the service serves it at /guide. Warnings, missing pages and broken links fail.
docs: $(VENV)/.dev
	@rm -rf pairmark/service/guide
	$(VENV)/bin/python -m sphinx -q -W --keep-going -b html -d docs/_build/doctrees docs pairmark/service/guide
	@rm -rf pairmark/service/guide/.buildinfo pairmark/service/guide/objects.inv
	@echo "the guide is in pairmark/service/guide and, while the service runs, at /guide"

format: $(VENV)/.dev
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

# These have no peers, whose packages change what starts cost; the others run beside theirs.
HARD = $(filter faults starts,$(BENCH))
bench: $(if $(HARD),$(VENV)/.dev,$(BENCH_VENV)/.bench)
	@$(if $(HARD),$(VENV),$(BENCH_VENV))/bin/python -m benchmarks $(BENCH) --preset $(PRESET) $(BENCH_ARGS)

experiments: $(BENCH_VENV)/.bench
	@$(BENCH_VENV)/bin/python -m experiments $(EXPERIMENT) --preset $(PRESET) $(BENCH_ARGS)

sbom: $(VENV)/.runtime
	@mkdir -p dist && $(VENV)/bin/python deploy/sbom.py dist/sbom.json && echo "dist/sbom.json"

lock:
	$(COMPILE) pyproject.toml --extra s3 --extra dask --group build --output-file requirements/runtime.txt
	$(COMPILE) pyproject.toml --extra s3 --extra dask --group dev --constraint requirements/runtime.txt --output-file requirements/dev.txt
	$(COMPILE) pyproject.toml --extra s3 --extra dask --group bench --output-file requirements/bench.txt

clean:
	rm -rf $(VENV) $(BENCH_VENV) mutants build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis \
		.import_linter_cache .schemathesis var/cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Names stay beside the digests, so that people see what they are and the next call finds them.
IMAGES = python:3.11-slim-bookworm postgres:15-bookworm
images:
	@for image in $(IMAGES); do \
		digest=$$(docker buildx imagetools inspect --format '{{.Manifest.Digest}}' docker.io/library/$$image) || exit 1; \
		sed -i -E "s#$$image(@sha256:[0-9a-f]{64})?#$$image@$$digest#" Dockerfile docker-compose.yml .env.example; \
		echo "$$image is $$digest"; \
	done
