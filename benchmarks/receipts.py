"""``receipts``: what it costs to sign for weight, beside the same swarm without."""

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial

from ..gossip.effects.effects import Effect, Record, Send
from ..gossip.effects.events import Event
from ..gossip.effects.ledger import Kind
from ..gossip.protocol.receipting import RECEIPTS_CHECKS
from ..gossip.transport.keys.signing import Signer
from ..gossip.wire.codec import encoded_bytes
from ..gossip.wire.messages import Receipts
from .protocol import Swarm
from .results import Result, Row, medians

__all__ = ["measure_receipts"]

_P = 0.1

_BY = {"share": "all before it", "audit": "audits"}


class _Counted:
    """A swarm in one process, of which processor time and bytes are counted by transfer."""

    def __init__(self, n: int, *, check: str = "") -> None:
        self._swarm = Swarm(n, p=_P, roll=_roll(n, check) if check else None)
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


def _roll(n: int, check: str = "share") -> Callable[[str], Signer]:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    width = len(str(n - 1))
    ids = [f"peer-{i:0{width}}" for i in range(n)]
    keys = {id: Ed25519PrivateKey.generate() for id in ids}
    signers = {key.public_key().public_bytes_raw(): id for id, key in keys.items()}
    return lambda id: Signer(keys[id].private_bytes_raw(), signers, lambda: ids, check)


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
        rows += _rows(n, steps, rounds)
    rows.append(_signatures(rounds))
    return Result(
        name="receipts",
        title="Weight that both ends sign for, beside the same without, one process",
        rows=tuple(rows),
    )


def _rows(n: int, steps: int, rounds: int) -> list[Row]:
    """A transfer among so many peers, with each way to check receipts, beside none."""
    swarms = {check: _Counted(n, check=check) for check in ("", *RECEIPTS_CHECKS)}
    size_bytes: dict[str, list[float]] = {check: [] for check in swarms}

    def measure(check: str) -> list[float]:
        taken_us, told_bytes = swarms[check].cost(steps, 2)
        size_bytes[check].append(told_bytes)
        return [taken_us]

    found = medians({check: partial(measure, check) for check in swarms}, rounds)
    return [
        Row(
            name=f"a transfer among {n}, checked by {_BY[check]}",
            ours=found[check],
            reference=found[""],
            unit="us",
            note=f"plain; {statistics.mean(size_bytes[check]):.0f} bytes of receipts each",
        )
        for check in RECEIPTS_CHECKS
    ]


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
