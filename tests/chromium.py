"""A real headless browser, driven over WebDriver, which is plain HTTP."""

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

__all__ = ["Browser", "browser", "missing_program"]

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


def missing_program() -> str | None:
    """Say which program is missing; None if a browser can be started."""
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
        capabilities = {
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL"},
        }
        session = self._ask("POST", "", {"capabilities": {"alwaysMatch": capabilities}})
        self._at += f"/{session['sessionId']}"

    def close(self) -> None:
        """End the session."""
        self._ask("DELETE", "")

    def look(self, *, width: int, dark: bool) -> None:
        """Emulate a screen of this width, with a dark or a light color scheme."""
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
        """Run a function body on the page and return its result; it can read ``arguments``."""
        return self._ask("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def tell(self, command: str, **parameters: Any) -> Any:
        """Send a command of the DevTools protocol."""
        return self._ask("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def console_messages(self) -> list[str]:
        """Return messages and errors on the page's console since the last call."""
        return [entry["message"] for entry in self._ask("POST", "/se/log", {"type": "browser"})]

    def click(self, selector: str) -> None:
        """Click the first element that matches; it must exist."""
        self.run("document.querySelector(arguments[0]).click()", selector)

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = Request(
            self._at + path, data, {"content-type": "application/json"}, method=method
        )
        try:
            with urlopen(request, timeout=LIMIT_S) as response:
                return json.load(response)["value"]
        except HTTPError as error:
            message = json.load(error)["value"]["message"]
            raise AssertionError(f"{path}: {message.splitlines()[0]}") from None


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """Start a browser with its own profile in *folder*, and close it after the block."""
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
    raise OSError("chromedriver ended without printing its port")
