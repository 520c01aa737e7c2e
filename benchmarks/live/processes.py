"""Other processes of a benchmark: started, controlled, watched, ended."""

import logging
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor, nn

from rumor.gossip import RuleContext
from rumor.gossip.weight import ONE
from rumor.train import Peer

__all__ = ["Flat", "OnDemand", "Partner", "Pipe", "admit", "partner", "partners", "settled"]

if TYPE_CHECKING:
    Pipe = Connection[Any, Any]
else:
    # At run time, Connection is not generic.
    Pipe = Connection
"""A process's end of the pipe to its parent."""

_SPAWN: Final = multiprocessing.get_context("spawn")
_EXIT_S: Final = 20.0
_PATIENCE_S: Final = 120.0
_ADMIT_POLL_S: Final = 0.002
_WEIGHT: Final = ONE >> 20


class OnDemand:
    """A rule that pushes almost no weight when asked."""

    name = "on-demand"
    registers: tuple[str, ...] = ()
    outstanding_max = 1

    def __init__(self) -> None:
        self.is_asked = False
        """True to push at the next step at which a peer can be drawn."""
        self.decided_s = 0.0
        """Time of the last decision, right before a snapshot; seconds, monotonic."""

    def step(self, turn: RuleContext) -> None:
        """Take one turn."""
        if self.is_asked and (peer := turn.draw()) is not None:
            turn.push(peer, _WEIGHT)
            self.is_asked, self.decided_s = False, turn.now


class Flat(nn.Module):
    """A model with nothing but float32 parameters."""

    def __init__(self, n_params: int, device: str = "cpu") -> None:
        super().__init__()
        self.flat = nn.Parameter(torch.ones(n_params, device=device))

    @torch.no_grad()
    def drift(self) -> None:
        """Change every number a little, as training would."""
        noise = torch.empty_like(self.flat).uniform_(-0.01, 0.01)
        self.flat.add_(noise)


def settled(numbers: Tensor) -> Tensor:
    """Return *numbers*, once their device has finished the work that this thread started."""
    if numbers.is_cuda:
        torch.cuda.current_stream(numbers.device).synchronize()
    return numbers


class Partner:
    """Another process, and our end of the pipe to it.

    The process runs ``serve(pipe, *arguments)``, until that reads None.
    """

    def __init__(self, serve: Callable[..., None], *arguments: Any, context: Any = _SPAWN) -> None:
        ours, theirs = context.Pipe()
        self._pipe: Pipe = ours
        given = (serve, theirs, *arguments)
        self._process: BaseProcess = context.Process(target=_run, args=given, daemon=True)
        self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        """Number of the process."""
        return self._process.pid or 0

    def say(self, words: Any) -> None:
        """Send it a message."""
        self._pipe.send(words)

    def speaks(self, timeout_s: float = 0.0) -> bool:
        """True if it has sent a message, or does within *timeout_s*, seconds."""
        return self._pipe.poll(timeout_s)

    def hear(self, timeout_s: float = _PATIENCE_S) -> Any:
        """Wait for its next message."""
        try:
            if self._pipe.poll(timeout_s):
                return self._pipe.recv()
        except (EOFError, ConnectionError):
            raise TimeoutError("another process of the benchmark has ended") from None
        raise TimeoutError("another process of the benchmark does not answer")

    def ask(self, words: Any) -> Any:
        """Send it a message, and wait for its answer."""
        self.say(words)
        return self.hear()

    def kill(self) -> None:
        """Kill it as a power cut would."""
        self._process.kill()
        self._process.join()

    def dismiss(self) -> None:
        """Ask it to end, unless it has."""
        if self._process.is_alive():
            try:
                self.say(None)
            except BrokenPipeError:
                pass

    def end(self, patience_s: float) -> None:
        """Wait for its end, and kill it after *patience_s*."""
        self._process.join(patience_s)
        self.kill()
        self._pipe.close()


@contextmanager
def partner(serve: Callable[..., None], *arguments: Any) -> Iterator[Partner]:
    """Run ``serve(pipe, *arguments)`` in a process of its own, as `partners` does."""
    with partners(serve, [arguments]) as (other,):
        yield other


@contextmanager
def partners(
    serve: Callable[..., None], arguments: Sequence[Sequence[Any]]
) -> Iterator[list[Partner]]:
    """Run ``serve(pipe, *given)`` in a process for each of *arguments*, until it reads None."""
    patience_s = 0.0
    with ExitStack() as stack:
        started = []
        for given in arguments:
            started.append(Partner(serve, *given))
            stack.callback(lambda one: one.end(patience_s), started[-1])
        yield started
        # After an error no process needs an orderly end.
        patience_s = _EXIT_S
        for one in started:
            one.dismiss()


def _run(serve: Callable[..., None], pipe: Pipe, *arguments: Any) -> None:
    torch.set_num_threads(1)
    logging.getLogger("rumor").setLevel(logging.ERROR)
    serve(pipe, *arguments)


def admit(peer: Peer, newcomer: Partner) -> Any:
    """Step until a newcomer has its copy and sends a message; return the message."""
    while not newcomer.speaks(_ADMIT_POLL_S):
        peer.step()
    return newcomer.hear()
