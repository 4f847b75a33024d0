# Every target sets up what it needs: Python packages in .venv once, and Java where Spark runs.

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
LOWEST := .venv-lowest

# a command that is started often would be compiled each time
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-busy test-lowest test-chart test-versions soak fuzz bench lint docs hashes dist java postgres redis prometheus browser clean

help:
	@echo "make demo    the autopilot at work on a cluster of this machine, under four minutes"
	@echo "make test    all checks and tests"
	@echo "make test-busy  all tests three times, with two busy loops beside them"
	@echo "make test-lowest  the fast tests with the oldest packages that pyproject.toml allows"
	@echo "make test-chart  the chart of a fleet, rendered by Helm itself, which is built with Go"
	@echo "make test-versions  tests on a cluster with Spark 4.1 to 4.3 and each Python found; writes a table into the docs"
	@echo "make soak    the longest tests on a cluster, which make test leaves out, and an hour of chaos"
	@echo "make fuzz    the properties with other examples than make test has, and more of them"
	@echo "make bench   all benchmarks"
	@echo "make lint    the checks alone: style, types, import direction"
	@echo "make docs    write docs/configuration.md, docs/metrics.md and docs/api.md anew"
	@echo "make hashes  write requirements.txt anew, with the hashes of what it pins"
	@echo "make dist    wheel, source, pins, their hashes and a bill of materials (SBOM), in dist/"
	@echo "make clean   remove what the other targets made"

$(READY): requirements.txt pyproject.toml penstock_lab/pyproject.toml scripts/setup.sh
	@scripts/setup.sh python $(VENV)

java:
	@scripts/setup.sh java

postgres:
	@scripts/setup.sh postgres

redis:
	@scripts/setup.sh redis

prometheus:
	@scripts/setup.sh prometheus

browser:
	@scripts/setup.sh browser

demo: java $(READY)
	@$(BIN)/penstock demo

# No new test starts after the session's time, which leaves room for a machine with other work on it.
test: java postgres redis prometheus browser $(READY)
	@scripts/test.sh $(BIN)/pytest --session-timeout=2400

test-busy: java postgres redis prometheus browser $(READY)
	@scripts/busy.sh 3 $(MAKE) test

# In an environment of its own, made anew when a bound changes.
$(LOWEST)/.ready: pyproject.toml penstock_lab/pyproject.toml requirements.txt scripts/lowest.py scripts/setup.sh $(READY)
	@scripts/setup.sh lowest $(LOWEST) $(VENV)

test-lowest: postgres redis prometheus browser $(LOWEST)/.ready
	$(LOWEST)/bin/pytest -m "not spark" --numprocesses=auto --session-timeout=1200

# ARGUMENTS="--spark 4.1 --python 3.12" tries these alone.
test-versions: java $(READY)
	$(BIN)/python scripts/versions.py $(ARGUMENTS)

test-chart: $(READY)
	HELM=$$(scripts/setup.sh helm) && HELM=$$HELM $(BIN)/pytest tests/rendered_chart.py

# What takes a minute or more each beside what `test` has already shown in a smaller way.
# Then chaos, an hour of it: CHAOS_SECONDS=180 is a short one, SEED=7 has the faults of an earlier run again.
CHAOS_SECONDS := 3600
soak: java postgres redis $(READY)
	$(BIN)/pytest -m soak
	$(BIN)/python -m penstock_lab.experiments.faults.chaos --seconds $(CHAOS_SECONDS) $(if $(SEED),--seed $(SEED))

fuzz: postgres prometheus browser $(READY)
	$(BIN)/pytest -m "not spark" --numprocesses=auto --hypothesis-profile=fuzz

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# All of them, also when one fails.
bench: java $(READY)
	@failed=; for name in $$($(BIN)/python -c 'from penstock_lab.report.catalog import BENCHES; print(*BENCHES)'); do \
		$(BIN)/penstock bench $$name || failed="$$failed $$name"; \
	done; [ -z "$$failed" ] || { echo "failed:$$failed" >&2; exit 1; }

docs: $(READY)
	$(BIN)/python -m penstock.settings > docs/configuration.md.new
	mv docs/configuration.md.new docs/configuration.md
	$(BIN)/python -m penstock.runtime.telemetry > docs/metrics.md.new
	mv docs/metrics.md.new docs/metrics.md
	$(BIN)/python scripts/api.py > docs/api.md.new
	mv docs/api.md.new docs/api.md

hashes: $(READY)
	$(BIN)/python scripts/hashes.py > requirements.new
	mv requirements.new requirements.txt

dist: $(READY)
	rm -rf build dist
	mkdir dist
	$(BIN)/python -c 'from setuptools import build_meta as backend; backend.build_sdist("dist"); backend.build_wheel("dist")'
	$(BIN)/python scripts/sbom.py > dist/penstock.cdx.json
	cp requirements.txt dist/
	cd dist && sha256sum * > SHA256SUMS

clean:
	rm -rf $(VENV) $(LOWEST) .venv-versions build dist *.egg-info artifacts spark-warehouse metastore_db derby.log *.new docs/*.new
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find penstock penstock_lab tests -name __pycache__ -type d -exec rm -rf {} +
