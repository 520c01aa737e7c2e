"""Every attack that was thought of: what is said, and how to see what it has achieved.

An attack is a function that does its worst to the first of two live victims and returns a
`Verdict`. What each achieves is written beside it, and tests hold it against what happens.
"""

import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from rumor.gossip import ONE
from rumor.gossip.membership.dialing import UNKNOWN_MAX
from rumor.gossip.protocol.anti_entropy import OUTLIVED_BY_MAX
from rumor.gossip.protocol.limits import (
    COPIES_MAX,
    FENCES_MAX,
    FOUNDERS_MAX,
    NAMES_MAX,
    NEWCOMERS_MAX,
    OFFERS_MAX,
)
from rumor.gossip.transport.addresses import without_key
from rumor.train.runtime.telling.status import ANSWERS_MAX, ANSWERS_S

from ..waiting import LIMIT_S
from .client import (
    ACK,
    ASK,
    CHUNK,
    FOUNDER,
    GRANT,
    HELLO,
    INQUIRE,
    JOINING,
    LEAVE,
    LEFT,
    OFFER,
    PENDING,
    PUSH,
    QUERY,
    READ,
    REFER,
    STATUS,
    STOP,
    U63,
    member,
    offer,
)
from .listeners import Listeners, endless
from .victims import QUICK, SOON_S, Run, Victim, resident_bytes

__all__ = ["ATTACKS", "Attack", "Verdict"]


class Verdict(Enum):
    """What an attack achieves."""

    NOTHING = "nothing"
    BOUNDED = "bounded"
    WORKS = "works"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """One attack, and what is claimed of it."""

    does: str
    """In words."""
    before: str
    """What it did when nothing bounded it; empty for one that was not tried then."""
    act: Callable[[Run], Verdict]
    open: Verdict
    """What it achieves without keys."""
    member: Verdict
    """What a member achieves by it that has a key, and lies."""
    says: str
    """What is left of it, in words."""
    rule: str = "gosgd:p=0.5"
    """Of the victims."""
    ends: bool = False
    """Whether the victim trains no more."""


_HUGE: Final = struct.pack("<f", 1e30)


def _share_bytes(victim: Victim) -> int:
    """How long a share is; whoever reads the model's schema knows."""
    return victim.look(lambda protocol: protocol._state.schema.share_bytes)


def _names(run: Run, victim: Victim) -> tuple[str, ...]:
    return victim.look(lambda protocol: tuple(m.id for m in protocol.live()))


def _nothing_if(fine: bool) -> Verdict:
    return Verdict.NOTHING if fine else Verdict.WORKS


def _soon_with_keys(run: Run) -> float:
    """How long to watch for what happens without keys, and not with them."""
    return LIMIT_S if run.keys is None else SOON_S


def _bounded_if(fine: bool) -> Verdict:
    return Verdict.BOUNDED if fine else Verdict.WORKS


def clock(run: Run) -> Verdict:
    stranger = run.stranger()
    rows = [("dead", 2**62), (run.w.peer.id, 2**62)]
    stranger.say(HELLO, stranger.hello(member(stranger.name, step=2**62), clock=rows))
    run.heard(stranger)
    run.exchange()
    return _bounded_if(run.v.look(lambda protocol: protocol.clock.total) < 1_000_000)


def weight(run: Run) -> Verdict:
    stranger, size = run.stranger(), _share_bytes(run.v)
    stranger.introduce()
    stranger.say(PUSH, offer(1, U63 >> 1, size), bytes(size))
    accepted = stranger.hear(ACK)[10][1]
    run.exchange()
    return _bounded_if(accepted <= FOUNDERS_MAX * FOUNDER)


def values(run: Run) -> Verdict:
    stranger, size = run.stranger(), _share_bytes(run.v)
    stranger.introduce()
    before = run.v.norm
    stranger.say(PUSH, offer(1, FOUNDER, size), _HUGE * (size // 4))
    stranger.hear(ACK)
    run.exchange()
    return _bounded_if(run.v.norm < 10 * before and run.w.norm < 10 * before)


def not_finite(run: Run) -> Verdict:
    stranger, size = run.stranger(), _share_bytes(run.v)
    stranger.introduce()
    stranger.say(PUSH, offer(1, FOUNDER, size), b"\xff" * size)
    accepted = stranger.hear(ACK)[10][1]
    run.exchange()
    return _nothing_if(accepted == 0 and run.v.norm < 100)


def later_life(run: Run) -> Verdict:
    stranger = run.stranger()
    mine = member(stranger.name)
    later = member(run.v.peer.id, incarnation=stranger.incarnation + 1000)
    for _ in range(20):
        stranger.say(HELLO, stranger.hello(mine, later, reply=False))
    run.heard(stranger)
    run.exchange()
    return _nothing_if(run.v.is_well and run.w.peer.id in _names(run, run.v))


def obituary(run: Run) -> Verdict:
    stranger = run.stranger()
    known = run.v.look(lambda protocol: protocol._state.table.member(run.w.peer.id))
    assert known is not None
    gone = member(known.id, incarnation=known.incarnation, heartbeat=2**61, phase=LEFT)
    for _ in range(20):
        stranger.say(HELLO, stranger.hello(member(stranger.name), gone))
    run.heard(stranger)
    run.exchange()
    return _nothing_if(known.id in _names(run, run.v))


def forged_ack(run: Run) -> Verdict:
    """Settle in another's name what that one has accepted: its weight is there twice."""
    stranger = run.stranger()
    other = run.v.look(lambda protocol: protocol._state.table.member(run.w.peer.id))
    assert other is not None
    for _ in range(40):
        first = run.v.peer.counters.pushes
        for seq in range(first, first + 60):  # numbers of pushes are easily guessed
            stranger.say(ACK, [seq, 0, 0], name=other.id, incarnation=other.incarnation)
        run.heard(stranger)
    return _nothing_if(run.books().balanced)


def goodbye(run: Run) -> Verdict:
    """Say goodbye in another's name."""
    stranger = run.stranger()
    other = run.v.look(lambda protocol: protocol._state.table.member(run.w.peer.id))
    assert other is not None
    stranger.say(LEAVE, [True], name=other.id, incarnation=other.incarnation)
    run.heard(stranger)
    gone = run.happens(lambda: other.id not in _names(run, run.v), _soon_with_keys(run))
    return _nothing_if(not gone or run.happens(lambda: other.id in _names(run, run.v), SOON_S))


def stop(run: Run) -> Verdict:
    """Ask for the end of both, as `rumor stop` does, under no signature and under a made-up one."""
    stranger = run.stranger()
    other = run.v.look(lambda protocol: protocol._state.table.member(run.w.peer.id))
    assert other is not None
    lives = [[stranger.victim, stranger.incarnation], [other.id, other.incarnation]]
    for signature in (b"", bytes(range(64))):
        stranger.say(STOP, [lives, signature])
    run.heard(stranger)
    both = run.happens(
        lambda: bool(run.v.peer.ended_by and run.w.peer.ended_by), _soon_with_keys(run)
    )
    return _nothing_if(not both)


def fence(run: Run) -> Verdict:
    """Ask in another's name about a share that it will only send in a year."""
    stranger = run.stranger()
    other = run.v.look(lambda protocol: protocol._state.table.member(run.w.peer.id))
    assert other is not None
    for _ in range(30):
        # While one of its shares lies there to be mixed, a question about the next is out of order.
        stranger.say(QUERY, [2**62], name=other.id, incarnation=other.incarnation)
        run.heard(stranger)
    # What had come before is mixed still.
    return _nothing_if(all(_goes_on_mixing(run) for _ in range(5)))


def _goes_on_mixing(run: Run) -> bool:
    mixed = run.v.peer.counters.mixed
    within_s = SOON_S if run.keys is None else LIMIT_S
    return run.happens(lambda: run.v.peer.counters.mixed > mixed + 5, within_s)


def newcomers(run: Run) -> Verdict:
    stranger = run.stranger()
    names = [f"{stranger.name}.{index}" for index in range(10 * NEWCOMERS_MAX)]
    for name in names:
        stranger.introduce(name, phase=JOINING)
        stranger.say(ASK, [False], name=name)
    run.heard(stranger)
    run.exchange()
    return _bounded_if(run.v.look(lambda protocol: protocol.weight) > 2 * ONE >> NEWCOMERS_MAX)


def asks_again(run: Run) -> Verdict:
    """One newcomer accepts a copy, and asks for the next, for ever."""
    stranger, copies = run.stranger(), 0
    began_s = time.monotonic()
    stranger.introduce(phase=JOINING)
    asked = 0
    while asked < 60 or not copies:
        asked += 1
        stranger.say(ASK, [False])
        if stranger.socket.poll(30):
            for message in stranger.drain():
                if message[9] == PUSH:
                    copies += 1
                    stranger.say(ACK, [message[10][0], message[10][1], 0])
    lasted_s = time.monotonic() - began_s
    run.exchange()
    return _bounded_if(0 < copies <= COPIES_MAX + 1 + lasted_s / QUICK.stall_s)


def copy(run: Run) -> Verdict:
    """Ask to read the model."""
    stranger = run.stranger()
    stranger.introduce()
    stranger.say(READ, [])
    return _nothing_if(not run.happens(lambda: any(m[9] == PUSH for m in stranger.drain())))


def dials(run: Run) -> Verdict:
    """Tell of a hundred peers, at addresses that the victim is to dial."""
    stranger = run.stranger()
    with Listeners(60) as listeners:
        tells = [
            member(f"{stranger.name}.{index}", heartbeat=heartbeat, addresses=[address])
            for heartbeat in range(1, 4)
            for index, address in enumerate(listeners.addresses)
        ]
        for start in range(0, len(tells), 60):
            stranger.say(HELLO, stranger.hello(member(stranger.name), *tells[start : start + 60]))
        run.heard(stranger)
        run.happens(lambda: listeners.dialled() > 0, _soon_with_keys(run))
        run.happens(lambda: listeners.dialled() > 2 * UNKNOWN_MAX, SOON_S)
        dialled = listeners.dialled()
    if not dialled:
        return Verdict.NOTHING
    # Those that do not answer give way to others after five gossip intervals.
    return _bounded_if(dialled <= 3 * UNKNOWN_MAX)


def questions(run: Run) -> Verdict:
    stranger = run.stranger()
    stranger.introduce()
    began_s = time.monotonic()
    for seq in range(1, 2001):
        stranger.say(QUERY, [seq])
    run.heard(stranger)
    intervals = (time.monotonic() - began_s) / QUICK.gossip_s
    lines = len(run.accepted(run.v, stranger.name))
    return _bounded_if(0 < lines <= FENCES_MAX * (2 + intervals))


def offers(run: Run) -> Verdict:
    """Offer shares and send none: each that ends writes a line."""
    stranger, size = run.stranger(), _share_bytes(run.v)
    stranger.introduce()
    began_s = time.monotonic()
    for seq in range(1, 4 * OFFERS_MAX):
        stranger.say(OFFER, offer(seq, 1, size, frame_bytes=size))
    run.heard(stranger)
    intervals = (time.monotonic() - began_s) / QUICK.gossip_s
    run.exchange()
    lines = len(run.accepted(run.v, stranger.name))
    return _bounded_if(0 < lines <= OFFERS_MAX * (2 + intervals))


def places(run: Run) -> Verdict:
    """Keep all places for shares taken, in so many names."""
    stranger, size = run.stranger(), _share_bytes(run.v)
    names = [f"{stranger.name}.{index}" for index in range(16)]
    for seq in range(1, 4):
        for name in names:
            stranger.introduce(name)
            stranger.say(OFFER, offer(seq, 1, size, frame_bytes=size), name=name)
        run.heard(stranger)
    mixed = run.v.peer.counters.mixed
    stuck = not run.happens(lambda: run.v.peer.counters.mixed > mixed + 20, within_s=0.5)
    return Verdict.WORKS if stuck else Verdict.NOTHING


def hellos(run: Run) -> Verdict:
    stranger = run.stranger()
    body = stranger.hello(member(stranger.name))
    for _ in range(5000):
        stranger.say(HELLO, body)
        stranger.drain()
    run.heard(stranger)
    run.exchange()
    return _nothing_if(run.v.is_well)


def inquiries(run: Run) -> Verdict:
    """Ask how it is doing, in fifty names, and for the whole member table each time."""
    stranger, answers = run.stranger(), 0
    began_s = time.monotonic()
    for number in range(5000):
        stranger.say(INQUIRE, [0, True, ""], name=f"{stranger.name}.{number % 50}")
        answers += sum(message[9] == STATUS for message in stranger.drain())
    run.exchange()
    answers += sum(message[9] == STATUS for message in stranger.drain())
    lasted_s = time.monotonic() - began_s
    fine = run.v.is_well and 0 < answers <= ANSWERS_MAX + ANSWERS_S * lasted_s
    return _bounded_if(fine and stranger.name not in _names(run, run.v))


def names(run: Run) -> Verdict:
    """Fill the member table."""
    stranger = run.stranger()
    began_s = time.monotonic()
    for start in range(0, 8000, 100):
        told = [member(f"{stranger.name}.{index}") for index in range(start, start + 100)]
        stranger.say(HELLO, stranger.hello(member(stranger.name), *told, reply=False))
    run.heard(stranger)
    known = run.v.look(lambda protocol: len(protocol._state.table))
    intervals = (time.monotonic() - began_s) / QUICK.gossip_s
    run.exchange()
    return _bounded_if(known <= NAMES_MAX * (1 + (1 + intervals) / 4))


def replays(run: Run) -> Verdict:
    stranger, size = run.stranger(), _share_bytes(run.v)
    stranger.introduce()
    push = stranger.parts(PUSH, offer(1, FOUNDER, size), bytes(size))
    for _ in range(500):
        stranger.send(push)
    run.heard(stranger)
    run.exchange()
    return _nothing_if(run.accepted(run.v, stranger.name) == [FOUNDER])


def no_messages(run: Run) -> Verdict:
    """Whatever is no message: other magic, nests of arrays, numbers that nothing can hold."""
    stranger = run.stranger()
    whole = stranger.parts(HELLO, stranger.hello(member(stranger.name)))[0]
    errors = run.v.peer.counters.errors
    for parts in (
        *([b""], [b"", b"", b""], [b"RMR"], [b"GET / HTTP/1.1\r\n\r\n"], [b"\0" * 2_000_000]),
        *([whole[:-1]], [whole + b"\0"], [whole[:4] + bytes(4) + whole[8:]], [whole] * 3),
        *([whole[:3] + bytes([version]) + whole[4:]] for version in (0, 3, 5, 255)),
        *(_packed(b"\x91" * 50_000), _packed(b"\xdd\xff\xff\xff\xff"), _packed(b"\xcf" * 9)),
    ):
        stranger.send(parts)
    run.heard(stranger)
    run.exchange()
    return _nothing_if(run.v.peer.counters.errors > errors and run.v.is_well)


def _packed(header: bytes) -> list[bytes]:
    from zlib import crc32

    return [struct.pack("<3sBI", b"RMR", 4, crc32(header)) + header]


def unasked(run: Run) -> Verdict:
    """Answers to what nobody asked, about shares that there never were."""
    stranger, size = run.stranger(), _share_bytes(run.v)
    stranger.introduce()
    for seq in (1, 2, 2**32, U63):
        stranger.say(GRANT, [seq, U63])
        stranger.say(PENDING, [seq])
        stranger.say(ACK, [seq, 0, U63])
        stranger.say(CHUNK, [seq, 0, 0], bytes(size))
    stranger.say(REFER, [[member(run.w.peer.id, incarnation=U63)]])
    run.heard(stranger)
    run.exchange()
    return _nothing_if(run.books().balanced)


def far_future(run: Run) -> Verdict:
    """A life that begins in a hundred years, so that no other of that name is ever heard again."""
    stranger = run.stranger()
    far = stranger.incarnation + 100 * 365 * 86_400_000
    stranger.say(HELLO, stranger.hello(member(stranger.name, incarnation=far)), incarnation=far)
    run.heard(stranger)
    known = run.v.look(lambda protocol: protocol._state.table.incarnation(stranger.name))
    return _nothing_if(known < far)


def endless_message(run: Run) -> Verdict:
    """One message of ever more parts."""
    limit = run.v.peer._running()._transport.limit
    with endless(without_key(run.v.peer.address or "")) as over:
        before = resident_bytes()
        ended = run.happens(lambda: over.is_set() or limit.cut > 0)
        grown = resident_bytes() - before
    run.exchange()
    if not limit.cut:
        return _nothing_if(ended and grown < 16 << 20)
    return _bounded_if(grown < 1 << 30)


def never_done(run: Run) -> Verdict:
    """Be a member that never finishes, so that nobody else ever ends."""
    stranger = run.stranger()
    stranger.introduce(heartbeat=5)
    run.heard(stranger)
    run.end()
    return Verdict.BOUNDED


def impostor(run: Run) -> Verdict:
    """Speak to the victim in its own name."""
    stranger = run.stranger()
    errors = run.v.peer.counters.errors
    stranger.say(HELLO, stranger.hello(member(run.v.peer.id, phase=LEFT)), name=run.v.peer.id)
    stranger.say(LEAVE, [True], name=run.v.peer.id, incarnation=stranger.incarnation)
    run.heard(stranger)
    run.exchange()
    return _nothing_if(run.v.peer.counters.errors >= errors + 2 and run.v.is_well)


def connections(run: Run) -> Verdict:
    """Connect two hundred times, and say nothing but hello."""
    for _ in range(200):
        run.stranger()
    run.exchange()
    return _nothing_if(run.v.is_well)


def chorus(run: Run) -> Verdict:
    """Say in eight made-up names that they have heard a later one of the victim's name."""
    stranger = run.stranger()
    later = member(run.v.peer.id, incarnation=stranger.incarnation + 1000)
    names = [f"{stranger.name}.{index}" for index in range(OUTLIVED_BY_MAX)]
    for name in names:
        stranger.introduce(name)
    for name in names:
        stranger.say(HELLO, stranger.hello(member(name), later, reply=False), name=name)
    return _nothing_if(not run.happens(lambda: not run.v.is_well))


_N, _B, _W = Verdict.NOTHING, Verdict.BOUNDED, Verdict.WORKS

ATTACKS: Final[dict[str, Attack]] = {
    "clock": Attack(
        does="One HELLO with absurd steps, its own, another's and those of one that is dead",
        before="ended training for all, and looked like success",
        act=clock,
        open=_B,
        member=_B,
        says="the clock runs ahead as fast as a peer can that is 16 times as fast",
    ),
    "weight": Attack(
        does="One PUSH that weighs two million times what there is",
        before="with the values of the next row, stopped the victim and its neighbor",
        act=weight,
        open=_B,
        member=_B,
        says=f"at most {FOUNDERS_MAX} founders' weight is accepted",
    ),
    "values": Attack(
        does="One PUSH of finite values of 1e30",
        before="with the weight of the row above, stopped both",
        act=values,
        open=_W,
        member=_W,
        says="**the model is poisoned**: use `--robust` against members, keys against strangers",
    ),
    "values, --robust clip": Attack(
        does="The same, where shares are clipped",
        before="",
        act=values,
        open=_B,
        member=_B,
        says="the model moves by no more than is usual",
        rule="gosgd:p=0.5,robust=clip",
    ),
    "not finite": Attack(
        does="One PUSH of NaN", before="", act=not_finite, open=_N, member=_N, says="it is refused"
    ),
    "later life": Attack(
        does="HELLOs that name the victim at a later incarnation",
        before="made it exit",
        act=later_life,
        open=_N,
        member=_N,
        says="it warns, and trains on",
    ),
    "chorus": Attack(
        does=f"The same as answers, in {OUTLIVED_BY_MAX} names that it made up",
        before="",
        act=chorus,
        open=_W,
        member=_W,
        says="**it halts**: it cannot tell them from members; a machine's names are known by keys",
        ends=True,
    ),
    "obituary": Attack(
        does="HELLOs that say of a running peer that it has left",
        before="buried it for good",
        act=obituary,
        open=_N,
        member=_N,
        says="the peer is asked",
    ),
    "endless message": Attack(
        does="One multipart message without an end",
        before="took 1.5 GB",
        act=endless_message,
        open=_B,
        member=_N,
        says="the connection is cut; with keys, whoever has none gets no further than the greeting",
    ),
    "forged ACK": Attack(
        does="ACKs in another's name, of shares which that one has accepted",
        before="multiplied weight",
        act=forged_ack,
        open=_W,
        member=_N,
        says="**without keys weight is multiplied still**: a message is its sender's word",
    ),
    "newcomers": Attack(
        does="A hundred and sixty newcomers that do not exist ask for copies",
        before="drained the victim's weight and took copies of the model",
        act=newcomers,
        open=_B,
        member=_B,
        says=f"at most {NEWCOMERS_MAX} copies are under way; of small models as many as pushes",
    ),
    "asks again": Attack(
        does="One newcomer accepts a copy and asks for the next, two hundred times",
        before="",
        act=asks_again,
        open=_B,
        member=_B,
        says=f"{COPIES_MAX} copies at once, then one each `stall_s`",
    ),
    "reads": Attack(
        does="Asks to be shown the model",
        before="",
        act=copy,
        open=_W,
        member=_W,
        says="**whoever is let in reads the model**: keep strangers out by keys",
    ),
    "addresses": Attack(
        does="Sixty made-up peers at addresses that the victim is to dial",
        before="opened sockets, and dialled all",
        act=dials,
        open=_B,
        member=_N,
        says=f"at most {UNKNOWN_MAX} at a time; with keys, only machines of the roster are dialled",
    ),
    "questions": Attack(
        does="2,000 QUERYs about shares that never came",
        before="wrote a line of the ledger each",
        act=questions,
        open=_B,
        member=_B,
        says=f"{FENCES_MAX} lines for each gossip interval",
    ),
    "offers": Attack(
        does=f"{4 * OFFERS_MAX:,} OFFERs of shares of which no byte follows",
        before="",
        act=offers,
        open=_B,
        member=_B,
        says=f"{OFFERS_MAX:,} lines for each gossip interval",
    ),
    "places": Attack(
        does="Takes all places for shares on their way, in sixteen names, and sends none",
        before="",
        act=places,
        open=_W,
        member=_W,
        says="**nothing is mixed until they have stalled** (`stall_s`); weight comes back",
    ),
    "hellos": Attack(
        does="5,000 HELLOs that want an answer",
        before="",
        act=hellos,
        open=_N,
        member=_N,
        says="all are answered, and training goes on",
    ),
    "inquiries": Attack(
        does="5,000 INQUIREs, in fifty names",
        before="",
        act=inquiries,
        open=_B,
        member=_B,
        says=f"{ANSWERS_MAX} are answered at once, then {ANSWERS_S:g} per second, whoever asks",
    ),
    "names": Attack(
        does="HELLOs that tell of 8,000 peers that do not exist",
        before="",
        act=names,
        open=_B,
        member=_B,
        says=f"{NAMES_MAX:,} are learnt from one peer at once, then a quarter in each interval",
    ),
    "goodbye": Attack(
        does="LEAVE in another's name",
        before="",
        act=goodbye,
        open=_W,
        member=_N,
        says="**without keys that one is out for this incarnation**",
    ),
    "stop": Attack(
        does="A request to stop both, as of `rumor stop`, that nobody has signed",
        before="",
        act=stop,
        open=_W,
        member=_N,
        says="**without keys it is obeyed**, unless peers are told `--no-remote-stop`",
    ),
    "fence": Attack(
        does="A QUERY in another's name, of a number yet to come",
        before="",
        act=fence,
        open=_W,
        member=_N,
        says="**without keys that one's shares are refused from then on**",
    ),
    "replays": Attack(
        does="One PUSH, 500 times",
        before="",
        act=replays,
        open=_N,
        member=_N,
        says="it is accepted once",
    ),
    "no messages": Attack(
        does="Truncated and damaged messages, deep nests, numbers beyond 64 bits, other versions",
        before="",
        act=no_messages,
        open=_N,
        member=_N,
        says="each is dropped and counted",
    ),
    "unasked": Attack(
        does="GRANT, PENDING, ACK, CHUNK and REFER that nobody waits for",
        before="",
        act=unasked,
        open=_N,
        member=_N,
        says="passed over",
    ),
    "far future": Attack(
        does="A HELLO of an incarnation that begins in a hundred years",
        before="",
        act=far_future,
        open=_N,
        member=_N,
        says="it is refused",
    ),
    "impostor": Attack(
        does="Messages to the victim in its own name",
        before="",
        act=impostor,
        open=_N,
        member=_N,
        says="dropped and counted",
    ),
    "connections": Attack(
        does="Two hundred connections",
        before="",
        act=connections,
        open=_N,
        member=_N,
        says="each takes a file; training goes on",
    ),
    "never done": Attack(
        does="A member that never finishes",
        before="",
        act=never_done,
        open=_B,
        member=_B,
        says="the others wait for it for `linger_s` at most",
    ),
}
