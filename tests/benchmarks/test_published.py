"""A bounded share of the published tables."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from rumor.benchmarks.published import averaging, relaysgd, scaffe, shmcaffe, theano_mpi
from rumor.benchmarks.published.averaging import reproduce_base_k, reproduce_equitopo
from rumor.benchmarks.published.noise import reproduce_noise
from rumor.benchmarks.published.registry import REPRODUCTIONS
from rumor.benchmarks.published.relaysgd import CELLS, Quadratics
from rumor.benchmarks.published.theano_mpi import reproduce_theano_mpi

__all__: list[str] = []


def test_names_are_those_of_the_results() -> None:
    assert list(REPRODUCTIONS) == [
        "relaysgd",
        "moshpit",
        "noise",
        "base-k",
        "equitopo",
        "theano-mpi",
        "theano-mpi-rules",
        "s-caffe",
        "shmcaffe",
    ]


@pytest.mark.extended
@pytest.mark.parametrize(
    "cell", [cell for cell in CELLS if 0 < cell.steps < 20], ids=lambda cell: cell.name
)
def test_rounds_of_random_quadratics_are_those_published(cell: relaysgd._Cell) -> None:
    row = relaysgd._reproduced(cell)
    assert (row.ours, row.ratio) == (cell.steps, 1.0)


@pytest.mark.slow
def test_all_rounds_that_are_quick_to_find_are_those_published() -> None:
    result = REPRODUCTIONS["relaysgd"](quick=True)
    assert {row.ratio for row in result.rows if row.reference} == {1.0}


@pytest.mark.parametrize("zeta2", [0.0, 0.1, 10.0])
def test_quadratics_are_as_unequal_as_asked_for(zeta2: float) -> None:
    problem = Quadratics(zeta2)
    optimum = problem._optimum(problem._b)
    everybody = np.arange(problem.workers)
    gradients = problem.gradient(np.tile(optimum, (problem.workers, 1)), everybody)
    assert (gradients**2).sum(axis=1).mean() == pytest.approx(zeta2, abs=1e-5)
    assert gradients.mean(axis=0) == pytest.approx(0, abs=1e-9)
    assert (optimum**2).sum() == pytest.approx(1)
    assert problem.error(optimum) == pytest.approx(0, abs=1e-12)
    assert problem.error(0 * optimum) > 0.1


def test_base_k_graphs_are_exact_within_the_bound_and_the_degree() -> None:
    for row in reproduce_base_k().rows:
        degree = int(row.name.rpartition(" ")[2])
        assert 0 < row.ratio <= 1
        assert row.note.startswith(f"largest degree {degree};")


def test_equitopo_hardly_depends_on_the_size() -> None:
    rows = reproduce_equitopo(quick=True).rows
    assert all(0.7 < row.ratio < 1.3 for row in rows)


@pytest.mark.slow
def test_moshpits_averages_need_as_many_rounds() -> None:
    rows = REPRODUCTIONS["moshpit"](quick=True).rows
    # An all-reduce under failures is a matter of luck: its spread is a quarter of it.
    assert all(0.7 < row.ratio < 1.3 for row in rows)


@pytest.mark.slow
def test_noise_is_as_derived() -> None:
    assert all(row.ratio == pytest.approx(1, abs=0.1) for row in reproduce_noise(quick=True).rows)


def test_communication_of_theano_mpi_is_predicted_from_one_model() -> None:
    rows = reproduce_theano_mpi().rows
    assert len(rows) == 12
    assert sum(abs(row.ratio - 1) < 0.1 for row in rows) == 10
    # Its 8 cards share links that three figures do not tell of.
    assert min(rows, key=lambda row: row.ratio).name == "GoogLeNet-32, 8 cards"


def test_links_that_were_fitted_give_back_what_they_were_fitted_to() -> None:
    links = theano_mpi._fit(theano_mpi._FITTED)
    for cards, seconds in zip((2, 4, 8), theano_mpi._FITTED.seconds, strict=True):
        assert links.seconds(theano_mpi._FITTED, cards) == pytest.approx(seconds)


@pytest.mark.extended
def test_lines_of_moshpits_grid_average_as_soon_as_published() -> None:
    rounds = [averaging._rounds("grid of 32 x 32", 0.0, 1e-4, seed) for seed in range(5)]
    assert all(3 <= each <= 5 for each in rounds)
    assert averaging._by_protocol("grid of 32 x 32").ratio == pytest.approx(1, abs=0.15)


def test_traffic_of_theano_mpis_rules_is_what_their_settings_make_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(theano_mpi, "_ACCURACY_STEPS", 5)
    rows = {row.name: row for row in theano_mpi.reproduce_theano_mpi_rules(quick=True).rows}
    assert list(rows) == ["BSP", "EASGD, alpha .5, every 10", "GoSGD, p .01", "swap"]
    # A ring sends 1.75 models, recursive doubling 3, a third of them to the other socket.
    assert rows["BSP"].ratio == pytest.approx(1.19, abs=0.02)
    assert rows["swap"].ratio == pytest.approx(1, abs=0.02)
    assert rows["EASGD, alpha .5, every 10"].ratio == pytest.approx(1, abs=0.02)
    assert 0.3 < rows["GoSGD, p .01"].ratio < 2
    waits = {name: float(row.note.partition("waits ")[2].split()[0]) for name, row in rows.items()}
    assert waits["GoSGD, p .01"] == 0 and waits["EASGD, alpha .5, every 10"] == 0
    assert waits["BSP"] == pytest.approx(rows["BSP"].ours, rel=0.05)


def test_the_identity_of_s_caffe_is_exact_and_whole_vectors_in_stages_are_not_it() -> None:
    identity, leaders = scaffe.reproduce_scaffe(quick=True).rows
    assert identity.ratio == pytest.approx(1)
    # One stage of 2 hosts, 3 of 8, and two for those that are more than 8.
    assert 4.5 < float(leaders.note.split()[3]) < 6.5
    assert leaders.ratio < 0.5


def test_who_gossips_between_hosts_waits_for_no_backbone() -> None:
    assert scaffe._step_s("hybrid", 4, 1.0, 2, 8.0) == pytest.approx(1.0, abs=1e-6)
    assert scaffe._exchange_s("allreduce", 4, 1.0, 2) > 1e-3


@pytest.mark.extended
def test_every_term_of_an_iteration_is_timed_on_real_segments() -> None:
    found = shmcaffe._measured(2, 1000, 1, 2)
    assert set(found) == set(shmcaffe._WAYS) and all(seconds > 0 for seconds in found.values())
    beside, in_turn = shmcaffe._rows("both", found)
    terms = max(found["compute"], found["give"]) + found["read and update"]
    assert beside.reference == pytest.approx(1e3 * terms)
    assert beside.ours == pytest.approx(1e3 * found["beside"])
    assert in_turn.reference == pytest.approx(1e3 * (found["compute"] + found["exchange"]))


def test_an_equation_whose_exchange_costs_nothing_speeds_up_by_the_number_of_workers() -> None:
    free = {"compute": 1.0, "give": 0.5, "read and update": 0.0}
    assert shmcaffe._speedup(free).ours == pytest.approx(16)
    hidden = free | {"give": 2.0}
    assert shmcaffe._speedup(hidden).ours == pytest.approx(8)


@pytest.mark.extended
def test_groups_send_as_much_less_as_they_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shmcaffe, "_STEPS", 20)
    for row in shmcaffe._between_groups():
        assert row.ratio == pytest.approx(1, abs=0.4) and row.ratio >= 1


def test_tables_of_the_page_are_kept_when_others_are_made_again() -> None:
    root = Path(__file__).parents[2]
    script = root / "docs" / "scripts" / "reproductions.py"
    if not script.exists():
        pytest.skip("docs are not beside the tests")
    spec = importlib.util.spec_from_file_location("reproductions", script)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    _, _, below = (root / module.PAGE).read_text(encoding="utf-8").partition(module.MARKER)
    tables = module.sections(below)
    assert list(tables) == list(REPRODUCTIONS)
    assert below == "\n\n" + "\n".join(tables.values())
    assert all(f"`rumor reproduce {name}`" in text for name, text in tables.items())
    # Below each table stands what it was made on.
    assert all("libzmq" in text.splitlines()[-1] for text in tables.values())
