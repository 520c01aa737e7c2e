"""Loggers as a user might write them."""

import threading
from collections.abc import Mapping
from typing import Any

from rumor.train.loggers import LoggedRun

from ...waiting import LIMIT_S


class Collected:
    """Records its calls, in order."""

    def __init__(self) -> None:
        self.run: LoggedRun | None = None
        self.rows: list[tuple[str, int, dict[str, Any]]] = []
        self.summaries: list[Mapping[str, Any]] = []
        self.threads: set[int] = set()

    def open(self, run: LoggedRun) -> None:
        assert self.run is None
        self.run = run
        self.threads.add(threading.get_ident())

    def log(self, peer: str, x: int, row: Mapping[str, Any]) -> None:
        self.rows.append((peer, x, dict(row)))
        self.threads.add(threading.get_ident())

    def close(self, summary: Mapping[str, Any]) -> None:
        self.summaries.append(summary)
        self.threads.add(threading.get_ident())


class Stuck(Collected):
    """Blocks at its first row until `may_go` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.may_go = threading.Event(), threading.Event()

    def log(self, peer: str, x: int, row: Mapping[str, Any]) -> None:
        self.entered.set()
        assert self.may_go.wait(LIMIT_S)
        super().log(peer, x, row)


class Failing(Collected):
    """Fails in the given methods."""

    def __init__(self, *at: str) -> None:
        super().__init__()
        self.at = at

    def _do(self, what: str) -> None:
        if what in self.at:
            raise OSError(f"no {what}\nand a second line")

    def open(self, run: LoggedRun) -> None:
        self._do("open")
        super().open(run)

    def log(self, peer: str, x: int, row: Mapping[str, Any]) -> None:
        self._do("log")
        super().log(peer, x, row)

    def close(self, summary: Mapping[str, Any]) -> None:
        self._do("close")
        super().close(summary)
