"""A real browser without a window, told what to do over WebDriver, that is plain HTTP."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from .waiting import LIMIT_S

__all__ = ["Browser", "browser", "why_not"]

_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-default-apps",
    "--no-default-browser-check",
    "--hide-scrollbars",
)


def why_not() -> str | None:
    """What is missing here, in words; None where a browser can be started."""
    for program in ("chromium", "chromedriver"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    return None


class Browser:
    """One window with one page."""

    def __init__(self, port: int, folder: Path) -> None:
        self._at = f"http://127.0.0.1:{port}/session"
        options = {
            "args": [*_FLAGS, f"--user-data-dir={folder}"],
            "binary": shutil.which("chromium"),
        }
        wanted = {
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL"},
        }
        made = self._ask("POST", "", {"capabilities": {"alwaysMatch": wanted}})
        self._at += f"/{made['sessionId']}"

    def close(self) -> None:
        """End it."""
        self._ask("DELETE", "")

    def look(self, *, width: int, dark: bool) -> None:
        """Be a screen of that width, of somebody who likes it dark or light."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.tell("Emulation.setEmulatedMedia", features=[scheme])
        self.tell(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=900, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip

    def open(self, page: Path | str) -> None:
        """Load a page from a file or an address, and wait until it has loaded."""
        self._ask("POST", "/url", {"url": page if isinstance(page, str) else page.as_uri()})

    def run(self, script: str, *arguments: Any) -> Any:
        """What a function body returns on the page; ``arguments`` is what it is given."""
        return self._ask("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def tell(self, command: str, **parameters: Any) -> Any:
        """Give a command of the DevTools protocol."""
        return self._ask("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def complaints(self) -> list[str]:
        """What the page has written on the console, or failed in, since the last call."""
        return [entry["message"] for entry in self._ask("POST", "/se/log", {"type": "browser"})]

    def click(self, selector: str) -> None:
        """Click the first element that fits, as a finger would: it must be there to be seen."""
        self.run("document.querySelector(arguments[0]).click()", selector)

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = Request(
            self._at + path, data, {"content-type": "application/json"}, method=method
        )
        try:
            with urlopen(request, timeout=LIMIT_S) as answer:
                return json.load(answer)["value"]
        except HTTPError as error:
            said = json.load(error)["value"]["message"]
            raise AssertionError(f"{path}: {said.splitlines()[0]}") from None


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """A browser with a profile of its own in *folder*; ended in the end."""
    with subprocess.Popen(
        ["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as driver:
        try:
            found = Browser(_port(driver), folder)
            try:
                yield found
            finally:
                found.close()
        finally:
            driver.terminate()


def _port(driver: subprocess.Popen[str]) -> int:
    assert driver.stdout is not None
    for line in driver.stdout:
        if "started successfully on port" in line:
            return int(line.rstrip(" .\n").rpartition(" ")[2])
    raise OSError("chromedriver ended without having said where it listens")
