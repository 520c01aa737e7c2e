"""Draw the pictures of runs and screens in docs/images again, each from the commands of its page.

``make pictures``, from the root of the repository; PICTURES="tutorial web" picks some. Screens need
a browser (``make chromium``). ``demo`` shows measured times: draw it on an otherwise idle
machine.
"""

import base64
import importlib
import io
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.request import urlopen

from PIL import Image
from rich.console import Console

from rumor.cli.live.top import observing, screen_of

__all__ = ["PICTURES", "main"]

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"
RUMOR = Path(sys.executable).with_name("rumor")
WATCHED = (
    *("launch", "--peers", "6", "--task", "digits", "--total-steps", "1000000"),
    *("--set", "step_s_min=0.05", "--timing", "local", "--faults", "faults.json", "--out", "run"),
)
KILL = [{"at_s": 60, "kind": "crash", "peer": 4}]


def tutorial(folder: Path) -> None:
    """Draw the swarm that survives a kill."""
    page = (ROOT / "docs/tutorial/README.md").read_text(encoding="utf-8")
    (faults,) = re.findall(r"^```json\n(.*?)^```", page, re.M | re.S)
    (folder / "kill.json").write_text(faults)
    _run(_commands("docs/tutorial/README.md", "rumor launch ")[0], folder)
    _keep((folder / "runs/kill/training.png").read_bytes(), "tutorial.png")


def storm(folder: Path) -> None:
    """Draw the simulated run of the README."""
    _run(_commands("docs/how-to/simulate.md", "rumor simulate -n 32 ")[0], folder)
    _keep((folder / "runs/storm/training.png").read_bytes(), "storm.png")


def demo(folder: Path) -> None:
    """Draw gossip and all-reduce under the same faults, and print their figures into the README."""
    _run("rumor demo --out demo > printed.txt", folder)
    _keep((folder / "demo/demo.png").read_bytes(), "demo.png")
    printed, _, _ = (folder / "printed.txt").read_text(encoding="utf-8").rpartition("Picture:")
    lines = "".join(f"{line.rstrip()}\n" for line in printed.rstrip().splitlines())
    readme = ROOT / "README.md"
    before, begin, rest = readme.read_text(encoding="utf-8").partition("$ rumor demo\n")
    after = rest[rest.index("```") :]
    readme.write_text(f"{before}{begin}{lines}{after}", encoding="utf-8")


def web(folder: Path) -> None:
    """Draw the page of a swarm with a killed member."""
    with _swarm(folder) as address, _browser(folder / "profile") as page:
        command = [RUMOR, "top", "--web", address]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                at = server.stdout.readline().strip()
                page.look(width=1056, dark=False)
                page.open(at)
                _await(lambda: _dead(at))
                page.run("document.querySelector('#graph [data-id=\"peer-0\"] .hit')"
                         ".dispatchEvent(new MouseEvent('click', {bubbles: true}))")  # fmt: skip
                time.sleep(20)
                _keep(_shot(page, "body"), "web.png")
            finally:
                server.terminate()


def top(folder: Path) -> None:
    """Draw the terminal of the same swarm."""
    with _swarm(folder) as address, observing([address], None, None) as observer:
        _await(lambda: any(peer.state in ("dead", "left") for peer in observer.poll().peers))
        console = Console(record=True, width=96, file=io.StringIO())
        console.print(screen_of(observer.poll(), 96, 22))
        # Without a page around it, an SVG would be as high as the window.
        drawn = folder / "top.html"
        svg = console.export_svg(title="rumor top 127.0.0.1:7700")
        drawn.write_text(f'<body style="margin: 0">{svg}', encoding="utf-8")
    with _browser(folder / "profile") as page:
        page.look(width=1000, dark=False)
        page.open(drawn)
        _keep(_shot(page, "svg"), "top.png")


PICTURES: dict[str, Callable[[Path], None]] = {
    each.__name__: each for each in (tutorial, storm, web, top, demo)
}


def main(names: list[str]) -> None:
    """Draw some, or all."""
    for name in names or PICTURES:
        with TemporaryDirectory() as folder:
            PICTURES[name](Path(folder))
        print(f"docs/images: {name}")


def _commands(page: str, *begins: str) -> list[str]:
    """Return the lines of a page with these beginnings, with or without a prompt."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [re.findall(rf"^(?:\$ )?({re.escape(each)}.*)$", text, re.M)[0] for each in begins]


def _run(command: str, folder: Path) -> None:
    path = f"{RUMOR.parent}{os.pathsep}{os.environ['PATH']}"
    given = os.environ | {"PATH": path, "OMP_NUM_THREADS": "1"}
    subprocess.run(command, shell=True, cwd=folder, env=given, check=True)


@contextmanager
def _swarm(folder: Path) -> Iterator[str]:
    """Yield the address of a swarm that trains meanwhile."""
    (folder / "faults.json").write_text(json.dumps(KILL))
    given = os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen([RUMOR, *WATCHED], cwd=folder, env=given) as swarm:
        try:
            where = folder / "run" / "rendezvous"
            _await(lambda: len(list(where.glob("*.addr"))) == 6)
            address = min(where.glob("*.addr")).read_text().split()[0]
            yield address
            subprocess.run([RUMOR, "stop", address], check=True)
        finally:
            swarm.terminate()


def _dead(address: str) -> bool:
    with urlopen(f"{address}status.json", timeout=60) as answer:
        return any(peer["state"] in ("dead", "left") for peer in json.load(answer)["peers"])


def _await(is_so: Callable[[], bool]) -> None:
    give_up_s = time.monotonic() + 300
    while not is_so():
        assert time.monotonic() < give_up_s
        time.sleep(0.5)


def _browser(folder: Path) -> Any:
    """Return the browser of the tests."""
    sys.path.insert(0, str(ROOT))
    module = importlib.import_module("tests.chromium")
    return module.browser(folder)


def _shot(page: Any, selector: str) -> bytes:
    """Return all of an element, as PNG."""
    box = page.run(
        "const box = document.querySelector(arguments[0]).getBoundingClientRect();"
        "return {x: box.x, y: box.y, width: box.width, height: box.height, scale: 1}",
        selector,
    )
    told = page.tell("Page.captureScreenshot", format="png", clip=box, captureBeyondViewport=True)
    return base64.b64decode(told["data"])


def _keep(drawn: bytes, name: str) -> None:
    """Write a PNG with few colors, which looks the same and takes a third of the bytes."""
    few = Image.open(io.BytesIO(drawn)).convert("RGB").quantize(128, dither=Image.Dither.NONE)
    few.save(IMAGES / name, optimize=True)


if __name__ == "__main__":
    main(sys.argv[1:])
