"""``python -m benchmarks NAME ...``, from the root of the repository: ``make bench`` runs it.

An option such as ``--peers 4`` goes to each named benchmark that has such a parameter; ``--write
FILE`` also writes the tables there, as Markdown.
"""

import argparse
import inspect
import logging
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import torch

from . import gpu, protocol, simulator, topology
from .harness import Result, as_markdown, machine
from .live import exchange, joining, node, soak, stall, start, straggler

__all__ = ["BENCHMARKS", "main"]

BENCHMARKS: Final[dict[str, Callable[..., Result]]] = {
    "protocol": protocol.measure_protocol,
    "exchange": exchange.measure_exchange,
    "stall": stall.measure_stall,
    "straggler": straggler.measure_straggler,
    "node": node.measure_node,
    "start": start.measure_start,
    "topology": topology.measure_topology,
    "simulator": simulator.measure_simulator,
    "joining": joining.measure_joining,
    "soak": soak.measure_soak,
    "gpu-copies": gpu.measure_copies,
    "gpu-workers": gpu.measure_workers,
}
"""Benchmarks by name.

Most take a minute or two; exchange, stall, node and joining about four, simulator and soak ten.
stall and simulator install rivals the first time.
"""

_USUAL: Final = ("protocol", "exchange", "stall", "straggler", "start")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmarks that *arguments* (default: those of the process) name."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}")
    parser.add_argument("--write", type=Path, metavar="FILE", help="also write them as Markdown")
    known, others = parser.parse_known_args(arguments)
    names = known.names or _USUAL
    if unknown := set(names) - set(BENCHMARKS):
        parser.error(f"unknown benchmarks: {', '.join(sorted(unknown))}")
    given = vars(_parser_of(names).parse_args(others))
    if given.get("device", "cpu") != "cpu" and not torch.cuda.is_available():
        parser.error(f"--device {given['device']}: torch {torch.__version__} finds no CUDA device")
    logging.basicConfig(stream=sys.stderr, format="%(message)s", level=logging.WARNING)
    logging.getLogger("benchmarks").setLevel(logging.INFO)
    results: list[Result] = []
    where = f"{machine()}, {datetime.now(UTC).date().isoformat()}"
    for name in names:
        start_s = time.perf_counter()
        takes = inspect.signature(BENCHMARKS[name]).parameters
        result = BENCHMARKS[name](**{key: given[key] for key in given if key in takes})
        results.append(replace(result, wall_s=time.perf_counter() - start_s))
        print(as_markdown(results[-1]), flush=True)
        if known.write:  # after each, as the next one may be interrupted
            tables = "\n\n".join(map(as_markdown, results))
            known.write.parent.mkdir(parents=True, exist_ok=True)
            known.write.write_text(f"# Performance\n\n{where}.\n\n{tables}\n", encoding="utf-8")
    print(f"\n{where}")


def _parser_of(names: Sequence[str]) -> argparse.ArgumentParser:
    """Make options for all numbers, texts, and lists of them among these benchmarks' parameters."""
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks {' '.join(names)}", argument_default=argparse.SUPPRESS
    )
    for name in names:
        for each in inspect.signature(BENCHMARKS[name]).parameters.values():
            default = each.default
            kind: Any = type(default[0] if isinstance(default, tuple) and default else default)
            option = "--" + each.name.replace("_", "-")
            if kind in (int, float, str) and option not in parser._option_string_actions:
                nargs = "*" if isinstance(default, tuple) else None
                parser.add_argument(option, dest=each.name, type=kind, nargs=nargs)
    return parser


if __name__ == "__main__":
    # Measured peers leave one another without a merge, and each would warn of that.
    logging.getLogger("rumor").setLevel(logging.ERROR)
    main()
