"""``receipts``: what it costs to sign for weight, beside the same swarm without."""

import time
from collections.abc import Callable, Sequence

from ..gossip.effects.effects import Effect, Record, Send
from ..gossip.effects.events import Event
from ..gossip.effects.ledger import Kind
from ..gossip.transport.keys.signing import Signer
from ..gossip.wire.codec import encoded_bytes
from ..gossip.wire.messages import Receipts
from .protocol import Swarm
from .results import Result, Row, medians

__all__ = ["measure_receipts"]

_P = 0.1


class _Counted:
    """A swarm in one process, of which processor time and bytes are counted by transfer."""

    def __init__(self, n: int, *, signed: bool) -> None:
        self._swarm = Swarm(n, p=_P, roll=_roll(n) if signed else None)
        self._swarm.watch = self._watch
        self._transfers = 0
        self._bytes = 0

    def _watch(self, effect: Effect | Event) -> None:
        if isinstance(effect, Record):
            self._transfers += effect.entry.kind is Kind.PUSHED
        elif isinstance(effect, Send) and isinstance(effect.envelope.body, Receipts):
            self._bytes += encoded_bytes(effect.envelope)

    def cost(self, steps: int, rounds: int) -> tuple[float, float]:
        """Microseconds of processor time, and bytes of receipts, for each transfer, all peers
        together: those that hear of it and check it are in it, too."""
        self._transfers = self._bytes = 0
        began_s = time.process_time()
        for _ in range(rounds):
            self._swarm.steps(steps)
            self._swarm.gossip(1)
        taken_s = time.process_time() - began_s
        return taken_s / self._transfers * 1e6, self._bytes / self._transfers


def _roll(n: int) -> Callable[[str], Signer]:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    width = len(str(n - 1))
    ids = [f"peer-{i:0{width}}" for i in range(n)]
    keys = {id: Ed25519PrivateKey.generate() for id in ids}
    signers = {key.public_key().public_bytes_raw(): id for id, key in keys.items()}
    return lambda id: Signer(keys[id].private_bytes_raw(), signers, lambda: ids)


def measure_receipts(
    swarm_sizes: Sequence[int] = (2, 4, 8, 16), steps: int = 100, rounds: int = 5
) -> Result:
    """Measure what receipts add to a transfer.

    Args:
        swarm_sizes: Numbers of peers.
        steps: Of each peer in a gossip interval: at p = 0.1, ten pushes.
        rounds: How often each way takes its turn.
    """
    rows = []
    for n in swarm_sizes:
        swarms = {name: _Counted(n, signed=name == "signed") for name in ("plain", "signed")}
        size_bytes: list[float] = []

        def measure(name: str, swarm: _Counted, sizes: list[float] = size_bytes) -> list[float]:
            taken_us, told_bytes = swarm.cost(steps, 2)
            if name == "signed":
                sizes.append(told_bytes)
            return [taken_us]

        ways = {
            name: lambda name=name, swarm=swarm: measure(name, swarm)
            for name, swarm in swarms.items()
        }
        found = medians(ways, rounds)
        rows.append(
            Row(
                name=f"a transfer among {n} peers, at all of them",
                ours=found["signed"],
                reference=found["plain"],
                unit="us",
                note=f"plain; {sum(size_bytes) / len(size_bytes):.0f} bytes of receipts each",
            )
        )
    rows.append(_signatures(rounds))
    return Result(
        name="receipts",
        title="Weight that both ends sign for, beside the same without, one process",
        rows=tuple(rows),
    )


def _signatures(rounds: int) -> Row:
    """Two signatures and two checks: what the ends of a transfer cannot do without."""
    signer, text = _roll(1)("peer-0"), bytes(120)

    def both() -> list[float]:
        began_s = time.process_time()
        for _ in range(200):
            signature = signer.sign(text)
            signer.verify("peer-0", text, signature)
        return [(time.process_time() - began_s) / 200 * 2e6]

    taken_us = medians({"both": both}, rounds)["both"]
    return Row(
        name="of which two signatures and two checks",
        ours=taken_us,
        reference=1000.0,
        unit="us",
        note="the bound for both ends of a transfer",
    )
