"""Finished cells, each in a file of its own that is there whole or not at all."""

import json
from collections.abc import Collection, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from ...train.durable import DRAFT, publish, remove_drafts
from .sources import DIGEST_BYTES

__all__ = ["CELLS", "Store"]

CELLS: Final = "cells"
"""Their folder inside a study's."""

_FORMAT: Final = 1
_PARTS: Final = {"summary": dict, "series": dict, "facts": dict, "wall_s": float,
                 "peak_rss_mib": float}  # fmt: skip


class Store:
    """The finished cells of a study.

    Args:
        folder: Of the study; it need not exist before something is put.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / CELLS
        self.torn: list[Path] = []
        """Files that were met and are no cell's, or not whole: these cells count as missing."""

    def get(self, key: str) -> dict[str, Any] | None:
        """What is kept of a cell: the parts of `compute`; None for nothing, or nothing whole.

        Args:
            key: The cell's name.
        """
        path = self._folder / f"{key}.json"
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError):
            content = None
        if _is_whole(content, key):
            record: dict[str, Any] = content["record"]
            return record
        if path not in self.torn:
            self.torn.append(path)
        return None

    def put(self, key: str, record: Mapping[str, Any]) -> None:
        """Keep a cell; when this returns, the disk has it.

        Args:
            key: The cell's name.
            record: The parts of `compute`.

        Raises:
            OSError: The disk is full, or the like; nothing is left behind.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{key}.json"
        draft = path.with_name(path.name + DRAFT)
        content = {"format": _FORMAT, "key": key, "digest": _digest(key, record), "record": record}
        try:
            draft.write_text(json.dumps(content, allow_nan=False) + "\n", encoding="utf-8")
            publish(draft, path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise

    def tidy(self) -> None:
        """Remove what a killed process left unfinished."""
        remove_drafts(self._folder)

    def others(self, keys: Collection[str]) -> int:
        """Count finished cells beside these: of other arguments, files or code."""
        known = set(keys)
        return sum(path.stem not in known for path in self._folder.glob("*.json"))


def _is_whole(content: Any, key: str) -> bool:
    if not isinstance(content, dict) or not isinstance(content.get("record"), dict):
        return False
    record = content["record"]
    return (
        (content.get("format"), content.get("key")) == (_FORMAT, key)
        and all(isinstance(record.get(part), kind) for part, kind in _PARTS.items())
        and content.get("digest") == _digest(key, record)
    )


def _digest(key: str, record: Mapping[str, Any]) -> str:
    # Numbers are written so that they are read back to the bit.
    text = json.dumps([_FORMAT, key, record], sort_keys=True)
    return blake2b(text.encode(), digest_size=DIGEST_BYTES).hexdigest()
