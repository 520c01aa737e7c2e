"""SparseLoCo: all have the same phi, bit for bit."""

from dataclasses import replace

from rumor.gossip.rules.compressed.sparseloco import ERROR, PHI, SparseLoCo
from rumor.sim.fuzz.peers import complete

from ...crowd import BAD, CONFIG, Crowd

H = 3


def test_all_have_the_same_bits_after_a_round_however_little_is_sent() -> None:
    config = replace(CONFIG, wire="topk:0.2")
    crowd = Crowd(lambda peer: SparseLoCo(h=H, lr=0.4), 5, complete, BAD, config=config)
    models = crowd.history(6 * H)
    for round in range(6):
        assert (models[round * H + H - 1] == models[round * H + H - 1][0]).all()
        assert (models[round * H] != models[round * H][0]).any()
    assert all(host.vector.registers[ERROR].any() for host in crowd.hosts)
    assert all((host.vector.registers[PHI] != 0).all() for host in crowd.hosts)
