# Everything from nothing but Python 3.11+ and make: `make run` shows what Shardscope does, `make test` proves it.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

# Processes that tests start take modules compiled before; otherwise each compiles them anew, a third of a second.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test laws test-screens lint docs site bench bench-screens fuzz mutants release clean

run: $(VENV)/installed
	@mkdir -p out
	$(BIN)/shardscope compare llama3-8b --cluster dgx-h100 --devices 64 --top 3
	$(BIN)/shardscope compare vgg16_v100 --cluster azure-v100-10g --devices 8 --strategies data,pipeline,layerwise,hypergraph
	$(BIN)/shardscope simulate gpt2_large_h100 --cluster dgx-h100 --devices 4 --batch-size 16 --strategy data --trace-out out/trace.json
	@echo "Open out/trace.json at https://ui.perfetto.dev (Open trace file): one row per device and per link."
	@echo "Or change anything and watch: $(BIN)/shardscope dashboard"

test: $(VENV)/installed-for-test
	$(BIN)/python -m pytest --hypothesis-profile=ci -m "not alone and not screens" --numprocesses 2 --dist loadfile \
		--no-loadscope-reorder --durations 12
	$(BIN)/python -m pytest --hypothesis-profile=ci -m "alone and not screens" --durations 12

# The laws that the suite tries on few cases, on all of them and on other random ones in each run.
laws: $(VENV)/installed-for-test
	SHARDSCOPE_LAWS=1 $(BIN)/python -m pytest -m "not alone and not screens" --numprocesses 2 --dist loadfile \
		--durations 12 $$(grep -lE "^import laws$$|^@given" tests/test_*.py)

# The dashboard in Chromium, about eight minutes.
test-screens: $(VENV)/installed-for-test
	@command -v chromium >/dev/null || { test "$$(id -u)" = 0 && apt-get install -y -qq chromium >/dev/null 2>&1; } \
		|| echo "no chromium: the browser tests will be skipped"
	$(BIN)/python -m pytest --hypothesis-profile=ci -m screens --numprocesses 2

lint: $(VENV)/installed-for-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# What README.md and docs/*.md paste, made anew; PASTED=--slow for what takes minutes, too.
docs: $(VENV)/installed-for-test
	$(BIN)/python -m benchmarks.pages.pasted --write $(PASTED)

# The documentation as a site in out/site, which needs no server: open out/site/index.html.
site: $(VENV)/installed
	$(INSTALL) --editable '.[docs]'
	$(BIN)/mkdocs build

bench: $(VENV)/installed
	$(BIN)/python -m benchmarks.speed

bench-screens: $(VENV)/installed-for-test
	$(BIN)/python -m benchmarks.screens

# 20,000 damaged files of a seed drawn anew, which is printed; a tenth of an hour.
fuzz: $(VENV)/installed-for-test
	$(BIN)/python -m benchmarks.robustness.fuzz 20000

# Deliberate faults in a copy, and how many the tests notice: those listed, and 300 drawn by rules (some hours).
mutants: $(VENV)/installed-for-test
	$(BIN)/python -m benchmarks.robustness.mutants
	$(BIN)/python -m benchmarks.robustness.mutants --drawn 300

# Wheel and sdist into dist/, each installed into an empty environment of its own and tried in an empty folder.
release: $(VENV)/created
	$(INSTALL) build
	rm -rf dist out/release
	$(BIN)/python -m build --outdir dist .
	for kind in whl tar.gz; do \
		rm -rf out/release && mkdir -p out/release/empty \
		&& $(PYTHON) -m venv out/release/env \
		&& out/release/env/bin/python -m pip install -qq --disable-pip-version-check dist/shardscope-*.$$kind \
		&& (cd out/release/empty && ../env/bin/python ../../../benchmarks/robustness/smoke.py) || exit 1; \
	done
	rm -rf out/release
	@ls -l dist

clean:
	rm -rf $(VENV) out dist

# The stamps say what is installed; they are older than their prerequisites when that has to be done again.
$(VENV)/created:
	$(PYTHON) -c 'import sys; sys.exit("Shardscope needs Python 3.11 or newer: make PYTHON=python3.12" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/installed: $(VENV)/created pyproject.toml constraints.txt
	$(INSTALL) --editable .
	@touch $@

# One installation holds the other; modules are compiled when a test imports them, as most of torch's never are.
$(VENV)/installed-for-test: $(VENV)/created pyproject.toml constraints.txt
	$(INSTALL) --no-compile --editable '.[test,capture]'
	@touch $(VENV)/installed $@
