# make demo        four peers train one model on this machine
# make test        the test suite
# make check       lint, formatting and types
# make cover       branch coverage of protocol core and topologies, which must be complete
# make campaign    what takes half an hour: ten thousand seeds of faults, and the slow tests
# make bench       speed, as ratios within one run (NAME="..." picks some)
# make soak        docs/images/soak.png: 32 peers, 24 of which come and go, for 10 minutes (MINUTES=...)
# make gallery     docs/topologies.md: the picture and the figures of every topology
# make wires       docs/wires.md: what formats and shards do to training
# make stragglers  docs/images/stragglers.png: a barrier and gossip as workers and links grow slow
# make studies     docs/studies/: the built-in studies, half an hour on two cores (STUDIES="graphs scale" picks some)
# make chromium    Debian: the browser in which tests look at reports (as root; without it they skip)
# make clean       forget everything that was built, .venv included
#
# It all lives in .venv, made from $(PYTHON) at first use: python3 and make are enough to start.
PYTHON ?= python3
BIN    := .venv/bin
MINUTES ?= 10
PEERS   ?= 32
STUDIES ?= $(patsubst sim/study/built_in/%.toml,%,$(wildcard sim/study/built_in/*.toml))

# Peers and workers are processes: with one thread each they do not fight over the cores. Tests of
# real peers have the machine to themselves, the others share it.
test cover campaign bench soak gallery stragglers studies wires: export OMP_NUM_THREADS := 1

# What one process has compiled, a hundred others need not, whatever the environment says.
test cover campaign: export PYTHONDONTWRITEBYTECODE :=

.PHONY: chromium help demo test check cover campaign bench soak gallery stragglers studies wires clean

help:
	@sed -n '/^#/!q; s/^# \{0,1\}//p' Makefile

demo: .venv/.demo
	$(BIN)/rumor launch --peers 4 --task digits --step-s-min 0.01

test: .venv/.test
	$(BIN)/python -m pytest -n auto -m "not live and not slow"
	$(BIN)/python -m pytest -m "live and not slow"

check: .venv/.check .types/rumor
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

cover: .venv/.test
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -n auto tests/gossip tests/topology -m "not live and not slow"
	$(BIN)/coverage combine -q
	$(BIN)/coverage report --show-missing --fail-under=100 --include='gossip/*,topology/*' \
		--omit='gossip/transport*'

campaign: .venv/.test
	$(BIN)/rumor fuzz --seeds 0-9999
	$(BIN)/python -m pytest -m slow

bench: .venv/.demo
	$(BIN)/rumor bench $(NAME)

soak: .venv/.demo
	$(BIN)/python -c 'from rumor.benchmarks.soak import report; report($(MINUTES), $(PEERS), "docs/images/soak.png")'

gallery: .venv/.demo
	$(BIN)/python docs/gallery.py

wires: .venv/.demo
	$(BIN)/python docs/wires_table.py

stragglers: .venv/.demo
	$(BIN)/python docs/simulator_figure.py

chromium:
	apt-get update -q && apt-get install -q -y --no-install-recommends chromium chromium-driver

# Cells that are finished are not computed again.
studies: .venv/.demo
	for name in $(STUDIES); do $(BIN)/rumor study $$name --resume || exit; done
	$(BIN)/python docs/studies.py $(addprefix runs/study-,$(STUDIES))

.venv/.demo:  EXTRAS := [study]
.venv/.test:  EXTRAS := [test]
.venv/.check: EXTRAS := [test,check]
.venv/.demo .venv/.test .venv/.check: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q -c constraints.txt -e '.$(EXTRAS)'
	touch $@

.types/rumor:
	mkdir -p .types && ln -s .. $@

clean:
	rm -rf .venv .types build dist *.egg-info .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
