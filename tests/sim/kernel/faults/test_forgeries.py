"""Forged models, compared with the papers' formulas."""

import numpy as np
import pytest

from rumor.gossip import ConfigError
from rumor.sim.kernel.faults import forgeries
from rumor.sim.kernel.faults.forgeries import Forgery, Sight
from rumor.train.faults.schedule import KINDS

RNG = np.random.default_rng(5)
OWN, TARGET, HONEST = RNG.normal(size=6), RNG.normal(size=6), RNG.normal(size=(3, 6))
WEIGHTS = np.array([0.2, 0.1, 0.3])
SIGHT = Sight(OWN, TARGET, HONEST, WEIGHTS, 0.25)


def test_far_forges_models_at_the_given_distance_in_one_direction() -> None:
    forged = forgeries.far(SIGHT, 1e6)
    assert np.linalg.norm(forged - OWN) == pytest.approx(1e6)
    other = forgeries.far(Sight(TARGET, OWN, HONEST, WEIGHTS, 1.0), 1e6)
    np.testing.assert_allclose(other - TARGET, forged - OWN, atol=1e-8)


def test_alie_is_the_mean_minus_z_standard_deviations_of_the_neighborhood() -> None:
    models = np.array([TARGET, *HONEST])
    expected = [
        sum(column) / 4 - 1.5 * (sum((v - sum(column) / 4) ** 2 for v in column) / 3) ** 0.5
        for column in models.T.tolist()
    ]
    np.testing.assert_allclose(forgeries.alie(SIGHT, 1.5), expected)
    alone = Sight(OWN, TARGET, HONEST[:0], WEIGHTS[:0], 1.0)
    assert np.array_equal(forgeries.alie(alone, 1.5), TARGET)


def test_z_matches_the_paper_and_is_undefined_for_a_majority() -> None:
    """Baruch et al. 2019, example of section 3: n = 50, 24 of them lie, s = 2, z = 1.43 rounded."""
    assert forgeries.alie_z(50, 24) == pytest.approx(1.43, abs=0.005)
    with pytest.raises(ConfigError, match="alie needs a strength where 11 of 16 lie"):
        forgeries.alie_z(16, 11)


def test_ipm_reverses_the_mean() -> None:
    forged = forgeries.ipm(SIGHT, 0.1)
    np.testing.assert_allclose(forged, -0.1 * np.mean([TARGET, *HONEST], axis=0))
    np.testing.assert_allclose(forgeries.sign_flip(SIGHT, 2.0), -2 * OWN)


@pytest.mark.parametrize("strength", [0.5, 1.0, 1.5])
def test_dissensus_cancels_the_pull_of_honest_neighbors(strength: float) -> None:
    """He et al. 2022: after averaging, ``x_i + (1 - epsilon) sum_j w_j (x_j - x_i)``."""
    forged = forgeries.dissensus(SIGHT, strength)
    pull = WEIGHTS @ (HONEST - TARGET)
    mixed = TARGET + pull + SIGHT.liars * (forged - TARGET)
    np.testing.assert_allclose(mixed, TARGET + (1 - strength) * pull, atol=1e-12)


def test_drift_is_as_far_as_the_median_neighbor() -> None:
    away = sorted(float(np.linalg.norm(each - TARGET)) for each in HONEST)
    forged = forgeries.drift(SIGHT, 1.0)
    assert np.linalg.norm(forged - TARGET) == pytest.approx(away[1])
    alone = Sight(OWN, TARGET, HONEST[:0], WEIGHTS[:0], 1.0)
    assert np.array_equal(forgeries.drift(alone, 1.0), TARGET)


def test_nan_forgeries_are_nan_and_an_overflow_gives_infinity() -> None:
    assert np.isnan(forgeries.nan(SIGHT, 1.0)).all()
    forgery = Forgery(forgeries.sign_flip, 1e308, 1, (2,), (0.5,), 0.5)
    assert np.isinf(forgery.of(1e300 * OWN, TARGET, HONEST)).all()


def test_an_attack_documents_its_default_strength() -> None:
    for name, kind in KINDS.items():
        if kind.is_attack and "strength" in kind.takes and kind.strength is not None:
            assert f"({kind.strength:,g})" in kind.help, name
