# make demo   run the main job          make test   run the tests (make test-quick: the quick ones, in a minute)
# make env    build .venv and stop      make lint   format, lint and type checks
# make env TORCH=cuda   the same with torch's CUDA build: docs/howto/gpu.md
# make expected [SCALE=digits] [RESULT=all] [SEEDS=3]   measure anew what is expected; rewrite the docs' tables and figures
# make expected-arena     the same of the arena's challenges; make expected-arena-training: hours, ten seeds
# make docs   build the site in build/site    make pages   write the pages that are made: results, commands, presets, fields
# make bench  speed, memory and growth as ratios: a short set; make bench WHAT=decode: one benchmark
# make fuzz   odd inputs, thousands of them (CASES=5000 SEED=0)
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TORCH ?= cpu
CONSTRAINTS := $(VENV)/constraints.txt
KERNELS := $(wildcard src/aircomp/decoders/kernels/*.c) tools/build_kernels.py hatch_build.py
LINT_STAMP := $(VENV)/.installed-lint
DOCS_STAMP := $(VENV)/.installed-docs
WHAT ?= short
CASES ?= 5000
SEED ?= 0

SCALE ?= digits
RESULT ?= all
SEEDS ?= 3

# tests start more than a hundred processes, each of which would compile the package anew
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-quick test-slow bench fuzz expected expected-arena expected-arena-training pages docs lint env clean

demo: env
	$(BIN)/aircomp demo --overwrite --out runs/demo

test: env
	$(BIN)/python -m pytest -n 2 --dist worksteal -q

test-quick: env
	$(BIN)/python -m pytest -n 2 --dist worksteal -q -m 'not (slow or seconds or engines or browser or process)'

test-slow: env
	$(BIN)/python -m pytest -m slow -q --timeout 3600

expected: env
	$(BIN)/aircomp reproduce $(RESULT) --scale $(SCALE) --seeds $(SEEDS) --update-expected --out runs/expected-$(SCALE)

expected-arena: env
	$(BIN)/aircomp arena --seeds $(SEEDS) --update-expected --out runs/expected-arena

expected-arena-training: env
	$(BIN)/aircomp arena --task training --challenge awgn phase blind byzantine --seeds 10 --update-expected \
	  --out runs/expected-arena-training

pages: env
	$(BIN)/python tools/make_pages.py

docs: $(DOCS_STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	$(BIN)/python tools/check_site.py build/site

bench: env
	PYTHONPATH=.:tests $(BIN)/python -m benchmarks $(WHAT)

fuzz: env
	$(BIN)/python tests/fuzz/fuzz_run.py --cases $(CASES) --seed $(SEED)

lint: $(LINT_STAMP)
	$(BIN)/ruff format --check src tests benchmarks examples tools hatch_build.py
	$(BIN)/ruff check src tests benchmarks examples tools hatch_build.py
	$(BIN)/pyright

env: $(STAMP)

# torch is pinned to its CPU build by constraints.txt, so pip can never choose one that brings CUDA packages; without the
# word +cpu the same pin is torch's CUDA build on Linux. Installing compiles the kernels
$(STAMP): pyproject.toml constraints.txt $(KERNELS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "aircomp needs Python 3.11 or newer; set PYTHON=")'
	@case '$(TORCH)' in cpu|cuda) ;; *) echo 'TORCH=$(TORCH): expected cpu or cuda'; exit 1;; esac
	$(PYTHON) -m venv $(VENV)
	@sed '$(if $(filter cuda,$(TORCH)),/^torch/s/+cpu//)' constraints.txt > $(CONSTRAINTS)
	$(BIN)/python -m pip install --quiet --constraint $(CONSTRAINTS) --editable '.[flower,hub,mnist,onnx,ray,tensorboard,test]' || \
	  { echo 'Installing failed. If it was torch: point pip at a place that has its $(TORCH) build, with PIP_FIND_LINKS or PIP_EXTRA_INDEX_URL.'; exit 1; }
	@touch $@

$(LINT_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet --constraint $(CONSTRAINTS) --editable '.[lint]'
	@touch $@

$(DOCS_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet --constraint $(CONSTRAINTS) --editable '.[docs]'
	@touch $@

clean:
	rm -rf $(VENV) dist build
