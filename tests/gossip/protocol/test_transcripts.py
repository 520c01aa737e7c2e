"""Readable scenes; `pytest --rewrite` writes them anew, to be reviewed as a diff."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rumor.gossip.types import ShareId
from rumor.gossip.weight import ONE
from rumor.gossip.wire.messages import Ack, Chunk, Hello, Push

from ..scene import SMALL, WIDE, Scene

FOLDER = Path(__file__).with_name("transcripts")


def push() -> Scene:
    scene = Scene()
    scene.founded("a", "b")
    scene.push("a", "b", ONE // 2)
    scene.deliver()
    scene.wait(0.1)
    scene.mix_all("b")
    scene.deliver()
    return scene


def frames() -> Scene:
    scene = Scene(WIDE)
    scene.founded("a", "b")
    scene.push("a", "b", ONE // 2)
    scene.deliver()
    scene.wait(0.1)
    scene.mix_all("b")
    scene.deliver()
    return scene


def eager() -> Scene:
    scene = frames()
    scene.lines.append(
        "      (the next share goes along with its offer, as far as there is credit)"
    )
    scene.push("a", "b", ONE // 4)
    scene.deliver()
    return scene


def memory() -> Scene:
    scene = Scene(WIDE)
    scene.founded("a", "b", host=b"the-same-machine")
    scene.push("a", "b", ONE // 2)
    scene.deliver()
    scene.attached("b", ShareId("a", 1, 1), usable=True)
    scene.mix_all("b")
    scene.deliver()
    scene.lines.append("      (the next share cannot be read)")
    scene.push("a", "b", ONE // 4)
    scene.deliver()
    scene.attached("b", ShareId("a", 1, 2), usable=False)
    scene.deliver()
    return scene


def shards() -> Scene:
    scene = Scene()
    scene.founded("a", "b", shards=2)
    scene.act("a", lambda context: context.push_shards("b", {0: ONE // 2, 1: ONE // 4}))
    scene.deliver()
    scene.mix_all("b")
    scene.deliver()
    return scene


def exact() -> Scene:
    scene = Scene(replace(SMALL, exact=True))
    scene.founded("a", "b")
    scene.push("a", "b", ONE // 2)
    scene.deliver()
    scene.act("b", lambda context: context.mix(context.shares()[0], weight=ONE // 4))
    scene.deliver()
    scene.lines.append("      (what b did not accept comes back at the next step)")
    scene.step("a")
    return scene


def bandwidth() -> Scene:
    scene = Scene(replace(WIDE, bandwidth_bytes_s=16.0, window_bytes=64))
    scene.founded("a", "b")
    scene.push("a", "b", ONE // 2)
    scene.deliver()
    for _ in range(3):
        scene.wait(1.0)
        scene.wake("a")
        scene.deliver(Chunk)
    return scene


def fence() -> Scene:
    scene = Scene()
    scene.founded("a", "b")
    scene.push("a", "b", ONE // 2)
    lost = scene.mail[-1]
    scene.deliver(lose=(Push,))
    scene.wait(1.0)
    scene.wake("a")
    scene.deliver(lose=(Hello,))
    scene.lines.append("      (the lost share comes after all)")
    scene.receive(lost)
    return scene


def lost_ack() -> Scene:
    scene = Scene()
    scene.founded("a", "b")
    scene.push("a", "b", ONE // 2)
    scene.deliver()
    scene.mix_all("b")
    scene.deliver(lose=(Ack,))
    scene.wait(1.0)
    scene.wake("a")
    scene.deliver(lose=(Hello,))
    return scene


def join() -> Scene:
    scene = Scene()
    scene.enter("a")
    scene.join("a")
    scene.enter("b")
    scene.join("b", "a")
    scene.deliver()
    scene.wait(0.2)
    scene.wake("b")
    scene.deliver()
    scene.step("a")
    scene.deliver()
    scene.step("b", trained=False)
    scene.deliver()
    return scene


def leave() -> Scene:
    scene = Scene()
    scene.founded("a", "b")
    scene.leave("a")
    scene.deliver()
    scene.mix_all("b")
    scene.deliver()
    return scene


def write_off() -> Scene:
    scene = Scene()
    scene.founded("a", "b")
    scene.push("a", "b", ONE // 2)
    scene.deliver()
    scene.lines.append("      (b crashes and starts again)")
    scene.enter("b", incarnation=2)
    scene.wait(1.0)
    scene.wake("a")
    scene.deliver()
    return scene


def strand() -> Scene:
    scene = Scene()
    scene.founded("a", "b")
    scene.push("a", "b", ONE // 2)
    scene.deliver()
    scene.lines.append("      (b falls silent)")
    quiet = len(scene.lines)
    while not scene.peers["a"].account.outstanding["b", 1].stranded:
        del scene.lines[quiet:]
        scene.wait(1.0)
        scene.wake("a")
        scene.mail.clear()
    scene.lines.append("      (b is heard again)")
    scene.wake("b")
    scene.deliver()
    scene.mix_all("b")
    scene.deliver()
    return scene


SCENES = [
    push,
    frames,
    eager,
    memory,
    shards,
    exact,
    bandwidth,
    fence,
    lost_ack,
    join,
    leave,
    write_off,
    strand,
]


@pytest.mark.parametrize("play", SCENES, ids=lambda play: play.__name__)
def test_a_scene_goes_as_written(play: Callable[[], Scene], request: pytest.FixtureRequest) -> None:
    path = FOLDER / f"{play.__name__}.txt"
    text = "\n".join(play().lines) + "\n"
    if request.config.getoption("--rewrite"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()
