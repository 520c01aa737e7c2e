# make demo        one killed, one slow, one late: gossip next to all-reduce, in a minute
# make test        the tests to run before each commit, in two minutes
# make test-all    the next five, SHARE=1/4 for a quarter of the longer tests
# make cover       all tests of protocol core and topologies, whose branch coverage must be complete
# make test-extended  longer tests of everything else, and more of live peers
# make test-cluster    studies on a Dask and on a Ray
# make test-browser    pages in a browser
# make test-integrations  peers in the trainers of transformers, Lightning and Accelerate; LoRA with PEFT
# make test-share  a 16th of the slow tests, another one after each commit (SHARE=2/16 picks one)
# make check       lint, formatting and types
# make campaign    what takes an hour: ten thousand seeds of faults, 25 times as many examples, the slow tests
#                  (the null study among them: how often studies call something worse that is not)
# make bench       speed, as ratios within one run (NAME="..." picks some, ARGS="--peers 4" sets their sizes)
# make gpu         runs/gpu.md: speed on a CUDA device (ten minutes), and tests
# make reference   docs/reference/{commands,config,metrics}.md, from the code
# make house       docs/images/house.svg: the sub-packages and who imports whom
# make gallery     docs/reference/topologies.md: the picture and the figures of every topology
# make rules       docs/reference/rules.md: the parameters of all rules
# make models      docs/reference/models.md: which kinds of models train, and what the others are told
# make costs       docs/how-to/simulate.md: steps/s and memory of simulations of models of several sizes
# make outputs     docs/: what examples print, where that depends on no machine (some minutes)
# make wires       docs/reference/wires.md: what formats and shards do to training
# make reproductions  docs/reproductions/README.md: published figures beside measured ones
# make seen        docs/reference/rules.md: every rule live, replayed, and on a bad network
# make pictures    docs/images: all pictures of runs and screens, graphs and sub-packages
# make stragglers  docs/images/stragglers.png: a barrier and gossip as workers and links slow down
# make studies     docs/studies/: the built-in studies, half an hour on two cores (STUDIES="graphs scale" picks some)
# make dist        dist/: what goes to PyPI, built from a source archive and checked
# make site        build/site: the documentation as a site that needs no network (every warning is an error)
# make chromium    Debian: the browser in which tests look at reports (as root; without it they skip)
# make clean       forget everything that was built, .venv included
#
# It all lives in .venv, made from $(PYTHON) at first use: python3 and make are enough to start.
PYTHON ?= python3
BIN    := .venv/bin
TESTS   := test test-all cover test-cluster test-browser test-integrations test-extended test-share
REPRODUCTIONS ?= relaysgd moshpit noise graphs
STUDIES ?= $(patsubst sim/study/built_in/%.toml,%,$(wildcard sim/study/built_in/*.toml))

# Peers and workers are processes: with one thread each they do not fight over the cores.
$(TESTS) campaign bench costs gallery gpu house models outputs reference reproductions rules seen stragglers studies wires: export OMP_NUM_THREADS := 1

# What one process has compiled, a hundred others need not, whatever the environment says.
$(TESTS) campaign: export PYTHONDONTWRITEBYTECODE :=

.PHONY: chromium help demo dist site $(TESTS) check campaign bench \
	costs gallery gpu house models outputs pictures reference reproductions rules seen stragglers studies wires clean

help:
	@sed -n '/^#/!q; s/^# \{0,1\}//p' Makefile

demo: .venv/.demo
	$(BIN)/rumor demo

# What files share, such as a swarm that was run once, is made once where a file stays in one process.
PYTEST  := -m pytest --dist loadfile --durations=20
FULL    := not slow and not cluster and not browser and not integrations
QUICK   := not extended and $(FULL)
CORE    := tests/gossip tests/topology
# Others are not even imported: that would take as long as a third of these tests.
LIVE     = $(shell grep -rl 'mark\.live' tests --include='test_*.py')
COMMITS := $(shell git rev-list --count HEAD 2>/dev/null || echo 0)

test: .venv/.test
	$(BIN)/python $(PYTEST) -n auto -m "not live and $(QUICK)"
# Real peers wait more than they compute: two tests of them at a time, on a single core too.
	$(BIN)/python $(PYTEST) -n 2 $(LIVE) -m "live and $(QUICK)"

test-all: cover test-extended test-cluster test-browser test-integrations

cover: .venv/.test
	$(BIN)/coverage erase
	$(BIN)/python -m coverage run $(PYTEST) -n auto $(CORE) -m "not live and $(FULL)"
	$(BIN)/coverage combine -q
	$(BIN)/coverage report --show-missing --fail-under=100 --include='gossip/*,topology/*' --omit='gossip/transport/*'

test-cluster: .venv/.test
	$(BIN)/python $(PYTEST) -m "cluster and not slow"

test-browser: .venv/.test
	$(BIN)/python $(PYTEST) -m "browser and not slow"

test-integrations: .venv/.integrations
	$(BIN)/python $(PYTEST) -n 2 tests/train/integrations tests/test_exports.py -m "integrations or not live and $(QUICK)"

test-extended: SHARE ?= 1/1
test-extended: .venv/.test
	$(BIN)/python $(PYTEST) -n auto $(CORE:%=--ignore=%) -m "extended and not live and $(FULL)" --share $(SHARE)
	$(BIN)/python $(PYTEST) -n 2 $(LIVE) -m "extended and live and $(FULL)" --share $(SHARE)

test-share: SHARE ?= $(shell echo $$(($(COMMITS) % 16 + 1))/16)
test-share: .venv/.test
	$(BIN)/python $(PYTEST) -m slow --share $(SHARE)

check: .venv/.check .types/rumor
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

campaign: .venv/.test
	$(BIN)/python -m rumor.sim.fuzz --seeds 0-9999
	$(BIN)/python $(PYTEST) -n auto -m "hypothesis and not live and not slow" --hypothesis-profile campaign
	$(BIN)/python $(PYTEST) -m slow

bench: .venv/.study
	$(BIN)/python -m benchmarks $(NAME) $(ARGS)

costs gallery house models outputs reference rules seen stragglers wires: .venv/.study
	$(BIN)/python docs/scripts/$@.py

# Longer ones last, and PICTURES picks some of the others.
pictures: .venv/.test
	$(BIN)/python docs/scripts/pictures.py $(PICTURES)
	$(if $(PICTURES),,$(MAKE) house gallery stragglers)

site: .venv/.docs
	$(BIN)/python docs/scripts/site.py

# setuptools packs whatever an earlier build left behind in build/.
dist: .venv/.release
	rm -rf build/lib build/bdist.* dist
	$(BIN)/python -m build -q
	$(BIN)/python -m twine check --strict dist/*
	rm -rf build/lib build/bdist.*

GPU := --device cuda --ways float32 shared-memory --simulated 100 1000 5000 --rival-rounds 0

gpu: .venv/.test
	$(BIN)/python -m benchmarks gpu-copies exchange stall gpu-workers $(GPU) --write runs/gpu.md
	$(BIN)/python $(PYTEST) -m cuda tests

reproductions: .venv/.study
	for script in $(REPRODUCTIONS); do $(BIN)/python docs/reproductions/$$script.py --write || exit; done

chromium:
	apt-get update -q && apt-get install -q -y --no-install-recommends chromium chromium-driver

# Cells that are finished are not computed again.
studies: .venv/.study
	for name in $(STUDIES); do $(BIN)/rumor study $$name --resume || exit; done
	$(BIN)/python docs/studies.py $(addprefix runs/study-,$(STUDIES))

.venv/.demo:  EXTRAS :=
.venv/.study: EXTRAS := [study]
.venv/.test:  EXTRAS := [test]
.venv/.check: EXTRAS := [test,check]
.venv/.integrations: EXTRAS := [test,integrations]
.venv/.docs:  EXTRAS := [study,docs]
.venv/.release: EXTRAS := [release]
.venv/.demo .venv/.study .venv/.test .venv/.check .venv/.docs .venv/.integrations .venv/.release: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q -c constraints.txt -e '.$(EXTRAS)'
	touch $@

.types/rumor:
	mkdir -p .types && ln -s .. $@

clean:
	rm -rf .venv .types build dist *.egg-info .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
