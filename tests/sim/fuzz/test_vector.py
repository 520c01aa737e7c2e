"""Numbers in every wire format: as many bytes as the protocol expects, and nearly what was sent."""

import numpy as np
import pytest

from rumor.gossip.wire.formats import Form, parse_wire
from rumor.sim.fuzz.vector import decoded, encoded, schema_of

SIZE = 20


@pytest.mark.parametrize(
    ("wire", "error"),
    [("float32", 0.0), ("float16", 2e-3), ("bfloat16", 3e-2), ("int8", 2e-2), ("topk:1", 1e-6)],
)
def test_numbers_survive_their_format_up_to_its_rounding(wire: str, error: float) -> None:
    values = np.zeros(24)
    values[:SIZE] = np.linspace(-3.0, 3.0, SIZE)
    payload = encoded(parse_wire(wire), values, 0)
    assert len(payload) == Form(wire).size_bytes(schema_of(SIZE), 0)
    found = decoded(parse_wire(wire), payload, np.full(SIZE, 9.0))
    assert np.abs(found - values[:SIZE]).max() <= error


def test_of_topk_the_others_stay_and_each_has_its_turn() -> None:
    wire, mine, theirs = parse_wire("topk:0.3"), np.zeros(SIZE), np.ones(24)
    sent = [decoded(wire, encoded(wire, theirs, turn), mine) for turn in range(3)]
    assert all(0 < values.sum() < SIZE for values in sent)
    assert (np.sum(sent, axis=0) > 0).all()


def test_what_is_not_finite_is_so_in_any_format() -> None:
    for name in ("float32", "float16", "bfloat16", "int8"):
        payload = encoded(parse_wire(name), np.full(8, np.nan), 0)
        assert not np.isfinite(decoded(parse_wire(name), payload, np.zeros(8))).any()
