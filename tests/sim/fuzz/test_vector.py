"""Values in every wire format: the size that the protocol expects, and only rounding errors."""

import numpy as np
import pytest

from rumor.gossip.effects.effects import Combine, Inspect, Mix, Snapshot, Stage
from rumor.gossip.types import ShareId, SharePart
from rumor.gossip.wire.formats import Form, parse_wire
from rumor.sim.fuzz.vector import Vector, decoded, encoded, schema_of

SIZE = 20


@pytest.mark.parametrize(
    ("wire", "error"),
    [("float32", 0.0), ("float16", 2e-3), ("bfloat16", 3e-2), ("int8", 2e-2), ("topk:1", 1e-6)],
)
def test_decoded_values_differ_only_by_the_rounding_of_their_format(
    wire: str, error: float
) -> None:
    values = np.zeros(24)
    values[:SIZE] = np.linspace(-3.0, 3.0, SIZE)
    payload = encoded(parse_wire(wire), values, 0)
    assert len(payload) == Form(wire).size_bytes(schema_of(SIZE), 0)
    found = decoded(parse_wire(wire), payload, np.full(SIZE, 9.0))
    assert np.abs(found - values[:SIZE]).max() <= error


def test_topk_leaves_the_other_values_alone_and_sends_each_in_turn() -> None:
    wire, mine, theirs = parse_wire("topk:0.3"), np.zeros(SIZE), np.ones(24)
    sent = [decoded(wire, encoded(wire, theirs, turn), mine) for turn in range(3)]
    assert all(0 < values.sum() < SIZE for values in sent)
    assert (np.sum(sent, axis=0) > 0).all()


def test_non_finite_values_stay_non_finite_in_every_format() -> None:
    for name in ("float32", "float16", "bfloat16", "int8"):
        payload = encoded(parse_wire(name), np.full(8, np.nan), 0)
        assert not np.isfinite(decoded(parse_wire(name), payload, np.zeros(8))).any()


@pytest.mark.parametrize("wire", ["float32", "float16", "bfloat16", "int8"])
def test_registers_in_one_share_are_kept_apart(wire: str) -> None:
    form = Form(wire, registers=2)
    sender = Vector(np.array([1.0, -2.0, 3.0, 0.5]), ("y",))
    receiver = Vector(np.zeros(4), ("y",))
    share, schema = ShareId("a", 1, 1), sender.schema
    sender.apply(Combine("y", ((0.125, "x"),)), b"")
    sender.apply(Snapshot(1, ("x", "y"), form), b"")
    payload = bytes(sender.snapshots[1].payload)
    assert len(payload) == form.size_bytes(schema, 0) == 2 * Form(wire).size_bytes(schema, 0)
    receiver.apply(Stage(share, 0, len(payload), form), payload)
    assert receiver.is_finite(Inspect(share))
    receiver.apply(Combine("x", ((8.0, SharePart(share, 1)), (-1.0, share))), b"")
    assert np.abs(receiver.x).max() <= (0 if wire == "float32" else 0.05)
    receiver.apply(Combine("y", ((1.0, SharePart(share, 1)),)), b"")
    assert np.abs(receiver.registers["y"] - sender.registers["y"]).max() <= 0.01


def test_a_copy_contains_the_registers_and_then_the_local_buffer() -> None:
    form, share = Form(copy=True, registers=2), ShareId("a", 1, 1)
    donor, newcomer = Vector(np.arange(4.0) + 7, ("y",)), Vector(np.zeros(4), ("y",))
    donor.apply(Combine("y", ((2.0, "x"),)), b"")
    donor.apply(Snapshot(1, ("x", "y"), form), b"")
    payload = bytes(donor.snapshots[1].payload)
    newcomer.apply(Stage(share, 0, len(payload), form), payload)
    newcomer.apply(Combine("y", ((1.0, SharePart(share, 1)),)), b"")
    newcomer.apply(Mix(share, 1.0, form), b"")
    assert (newcomer.x == donor.x).all() and newcomer.local == donor.local == 7.0
    assert (newcomer.registers["y"] == 2 * donor.x).all()
