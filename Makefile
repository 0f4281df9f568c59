# Two commands for a fresh machine with Python >= 3.11, git and make:
#
#     make report    sets up .venv, then derives, evaluates over depth, checks, and writes report/
#     make test      sets up .venv, then runs the tests
#
# ARGS is passed on, as in: make test ARGS="tests/test_cli.py -x"

PYTHON ?= python3
VENV ?= .venv
ARGS ?=
# Workers of the test run; 0 runs in one process.
WORKERS ?= auto
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help setup report catalogue literature gallery laws verify book test test-slow lint types bench clean

help:
	@echo "make report     set up, then write report/index.html, report/report.tex and the depth figure"
	@echo "make catalogue  write docs/catalogue.md and report/catalogue.pdf (needs pdflatex)"
	@echo "make literature write docs/literature-table.md: the laws beside published statements"
	@echo "make verify     check every claim from scratch, by its proof"
	@echo "make book       write all claims with their proofs: report/claims.pdf, report/claims.html"
	@echo "make laws       write docs/law-coverage.md: the depth laws against stacks; about an hour"
	@echo "make gallery    write docs/gallery.md and the figures of docs/gallery/"
	@echo "make test       set up, then run the tests, without the slow ones"
	@echo "make test-slow  the slow tests: long ones, and large matrices of cases"
	@echo "make lint       ruff check, ruff format --check, import contracts"
	@echo "make types      mypy"
	@echo "make bench      time the closed form against its peers; ARGS=--quick for small sizes"
	@echo "make setup      make .venv and install the package with all extras"
	@echo "make clean      remove .venv, report/ and what the tools leave behind"

# timm and torchscale ask for packages without a CPU build; only blocks of theirs are used.
setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python >= 3.11 is needed; say which one with: make PYTHON=python3.12 ..." >&2; exit 1; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -c constraints.txt -e '.[dev]'
	$(BIN)/python -m pip install --no-deps -c constraints.txt timm torchscale
	@touch $@

report: $(STAMP)
	$(BIN)/derive report --out report/ $(ARGS)

# One BLAS thread a worker: the workers are the parallelism, and the matrices are small.
test test-slow: export OMP_NUM_THREADS ?= 1
test test-slow: export OPENBLAS_NUM_THREADS ?= 1
test test-slow: export MKL_NUM_THREADS ?= 1

test: $(STAMP)
	$(BIN)/python -m pytest -n $(WORKERS) -m "not slow" $(ARGS)

test-slow: $(STAMP)
	$(BIN)/python -m pytest -n $(WORKERS) -m slow $(ARGS)

# The catalogue as one page and one PDF; needs pdflatex.
catalogue: $(STAMP)
	mkdir -p report
	$(BIN)/derive catalogue --out docs/catalogue.md --tex report/catalogue.tex
	cd report && pdflatex -interaction=nonstopmode -halt-on-error catalogue.tex >/dev/null
	@echo report/catalogue.pdf

literature: $(STAMP)
	$(BIN)/derive literature --format markdown > docs/literature-table.md

verify book: export OMP_NUM_THREADS ?= 1

verify: $(STAMP)
	$(BIN)/derive verify --no-cache $(ARGS)

# Every claim with its proof as one page and one PDF; needs pdflatex, three runs for the contents.
book: $(STAMP)
	$(BIN)/derive book --out report/ $(ARGS)
	cd report && for run in 1 2 3; do pdflatex -interaction=nonstopmode -halt-on-error claims.tex >/dev/null; done
	@echo report/claims.pdf

laws: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/derive coverage --deep --out docs/law-coverage.md $(ARGS)

gallery: $(STAMP)
	$(BIN)/derive gallery --out docs/gallery --page docs/gallery.md $(ARGS)

lint: $(STAMP)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports

types: $(STAMP)
	$(BIN)/mypy

# Peers that ask for torchvision, or for another networkx; without one of them its rows say so.
ALONE := curvlinops-for-pytorch backpack-for-pytorch einconv einops linear_operator unfoldNd tensorgrad pdf2image
bench: $(STAMP)
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[bench]'
	$(BIN)/python -m pip install -q --no-deps -c constraints.txt $(ALONE)
	$(BIN)/derive bench $(ARGS)

clean:
	rm -rf $(VENV) report build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
