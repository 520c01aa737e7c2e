"""Readable transcripts of scenes; `pytest --rewrite` regenerates them for review as a diff."""

from collections.abc import Callable
from pathlib import Path

import pytest

from rumor.gossip.config import ProtocolConfig
from rumor.gossip.types import ShareId
from rumor.gossip.weight import ONE
from rumor.gossip.wire.messages import Ack, Hello, Push

from ..scene import SMALL, WIDE, Scene

FOLDER = Path(__file__).with_name("transcripts")


def pushed(config: ProtocolConfig = SMALL, weight: int = ONE // 2, host: bytes = b"") -> Scene:
    scene = Scene(config).founded(host=host)
    scene.push("a", "b", weight)
    return scene


def arrived(config: ProtocolConfig = SMALL, wait_s: float = 0.0, host: bytes = b"") -> Scene:
    scene = pushed(config, host=host)
    scene.deliver()
    scene.wait(wait_s)
    return scene


def mixed(scene: Scene) -> Scene:
    scene.mix_all("b")
    scene.deliver()
    return scene


def push() -> Scene:
    return mixed(arrived(wait_s=0.1))


def frames() -> Scene:
    return mixed(arrived(WIDE, wait_s=0.1))


def eager() -> Scene:
    scene = frames()
    scene.lines.append("      (the next share goes along with its offer, as credit allows)")
    scene.push("a", "b", ONE // 4)
    scene.deliver()
    return scene


def memory() -> Scene:
    scene = arrived(WIDE, host=b"the-same-machine")
    scene.attached("b", ShareId("a", 1, 1), usable=True)
    mixed(scene)
    scene.lines.append("      (the next share cannot be read)")
    scene.push("a", "b", ONE // 4)
    scene.deliver()
    scene.attached("b", ShareId("a", 1, 2), usable=False)
    scene.deliver()
    return scene


def shards() -> Scene:
    scene = Scene().founded(shards=2)
    scene.act("a", lambda context: context.push_shards("b", {0: ONE // 2, 1: ONE // 4}))
    scene.deliver()
    return mixed(scene)


def fence() -> Scene:
    scene = pushed()
    lost = scene.mail[-1]
    scene.deliver(lose=(Push,))
    scene.wake_for("a", 1.0)
    scene.deliver(lose=(Hello,))
    scene.lines.append("      (the lost share comes after all)")
    scene.receive(lost)
    return scene


def lost_ack() -> Scene:
    scene = arrived()
    scene.mix_all("b")
    scene.deliver(lose=(Ack,))
    scene.wake_for("a", 1.0)
    scene.deliver(lose=(Hello,))
    return scene


def join() -> Scene:
    scene = Scene()
    scene.join("a")
    scene.ask("b", "a")
    scene.deliver()
    scene.step("a")
    scene.deliver()
    scene.step("b", trained=False)
    scene.deliver()
    return scene


def leave() -> Scene:
    scene = Scene().founded()
    scene.leave("a")
    scene.deliver()
    return mixed(scene)


def write_off() -> Scene:
    scene = arrived()
    scene.lines.append("      (b crashes and starts again)")
    scene.enter("b", incarnation=2)
    scene.wake_for("a", 1.0)
    scene.deliver()
    return scene


def strand() -> Scene:
    scene = arrived()
    scene.lines.append("      (b falls silent)")
    quiet = len(scene.lines)
    while not scene.peers["a"].account.outstanding["b", 1].stranded:
        del scene.lines[quiet:]
        scene.wake_for("a", 1.0)
        scene.mail.clear()
    scene.lines.append("      (b is heard again)")
    scene.wake("b")
    scene.deliver()
    return mixed(scene)


SCENES = [
    push,
    frames,
    eager,
    memory,
    shards,
    fence,
    lost_ack,
    join,
    leave,
    write_off,
    strand,
]


@pytest.mark.parametrize("play", SCENES, ids=lambda play: play.__name__)
def test_a_scene_matches_its_transcript(
    play: Callable[[], Scene], request: pytest.FixtureRequest
) -> None:
    path = FOLDER / f"{play.__name__}.txt"
    text = "\n".join(play().lines) + "\n"
    if request.config.getoption("--rewrite"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()
