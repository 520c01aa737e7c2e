"""Notices, step by step, what would part a model from the vector that peers average."""

import logging
from collections.abc import Collection, ValuesView
from itertools import chain
from operator import attrgetter, is_
from typing import Any, Final

from torch import Tensor, nn

from ...gossip.errors import TrainingError
from ..model import local_tensor, plain_names, reshard
from ..tensors.vector import Vector

__all__ = ["ModelCheck"]

_log = logging.getLogger("rumor")

# Snapshots are looked at as they are taken, and a peer without neighbors takes none. One look reads
# the parameters once and a step several times: every hundredth step it costs less than 1 %.
_LOOK_EVERY_STEPS: Final = 100

# Of a step of 20 ms, a check of a hundred parameters is half a percent.
_SHORT_S: Final = 0.02
_CHECK_EVERY_STEPS: Final = 10

# Suffixes that functions of torch.nn.utils leave in place of a parameter.
_COMPUTED: Final = {
    ("_orig", "_mask"): "pruned",
    ("_orig", "_u"): "parametrized (spectral_norm)",
    ("_g", "_v"): "parametrized (weight_norm)",
}

_requires_grad = attrgetter("requires_grad")


class ModelCheck:
    """Compares a module with what it was when it was laid into a vector.

    What is replaced afterwards trains alone, and what other peers send does not reach it. A check
    takes less than a microsecond for each module with its parameters.

    Args:
        vector: The module's values.
        wire: How they are to travel.
        frozen_may_differ: See `PeerConfig.frozen_may_differ`.

    Raises:
        TrainingError: They lie on several devices, which this format cannot do with.
    """

    def __init__(self, vector: Vector, wire: str, frozen_may_differ: bool = False) -> None:
        vector.layout.require_one_device(wire)
        self._module = module = vector.layout.module
        self._vector, self._frozen_may_differ = vector, frozen_may_differ
        self._shared = {id(tensor) for tensor in vector.layout.travelling}
        self._trained = {id(p) for p in module.parameters() if p.requires_grad}
        self._warned = False
        self._steps = 0
        self._frozen: list[Tensor] = []
        self._marks: list[object] | None = None
        self._remember()

    def begin(self) -> None:
        """Look at the model before anything of it is compared with others'.

        Raises:
            TrainingError: As for `require_whole`, or a frozen parameter has no values.
        """
        self.require_whole()
        if not (self._frozen_may_differ or self._vector.schema.frozen):
            self._vector.compare_frozen()
        self.require_constant()

    def require_constant(self) -> None:
        """Make sure that frozen parameters have the bits that they had in `begin`, by reading them.

        Raises:
            TrainingError: One has others.
        """
        if self._frozen_may_differ and self._steps:
            return
        frozen = self._vector.constants.frozen()
        changed = self._vector.constants.changed(frozen)
        if self._frozen_may_differ:
            return
        for name in changed:
            raise TrainingError(
                f"{name} is frozen, and was changed after the peer started: neither newcomers nor "
                f"checkpoints would have its values. Name it in PeerConfig("
                f"local=({_module_of(name, self._module, frozen)!r},)) at all peers; or set "
                "frozen_may_differ at all peers, and each keeps its own"
            )
        self._frozen = list(frozen.values())
        self._marks = list(map(_mark, self._frozen))

    def after_step(self, steps: int, pace_s: float) -> None:
        """Look at the model where that is a small part of a step, else now and then.

        Args:
            steps: How many were taken.
            pace_s: How long one takes, seconds.

        Raises:
            TrainingError: As for `require_sound`.
        """
        # What FSDP2 has gathered must go each time, or the next step would not see what is mixed.
        if pace_s >= _SHORT_S or steps % _CHECK_EVERY_STEPS == 0 or self._managed:
            self.require_whole()
        self._steps += 1
        if self._steps == 1:
            # A loop that changes them mostly does so in each step: better to say so now.
            self.require_constant()
        if steps % _LOOK_EVERY_STEPS == 0:
            self.require_constant()
            self._vector.require_finite()

    def require_sound(self) -> None:
        """Make sure that the module is what peers average, and that all numbers are finite.

        Raises:
            TrainingError: As for `require_whole`, or one is not.
        """
        self.require_whole()
        self.require_constant()
        self._vector.require_finite()

    def require_whole(self) -> None:
        """Make sure that the module still consists of the tensors that peers average.

        Raises:
            TrainingError: A tensor was replaced, taken away or moved, or there is one more to be
                trained; it is named.
        """
        if not self._is_same() and not (reshard(self._module) and self._is_same()):
            self._require_travelling()
            self._remember()
            if self._marks is not None:
                self.require_constant()
        if list(map(_requires_grad, self._parameters)) != self._flags:
            self._require_shared()
        for name, parameter, local in self._managed:
            if local_tensor(name, parameter) is not local:
                raise TrainingError(
                    f"FSDP has moved {name} after the peer was made: one process needs neither "
                    "CPU offloading nor padding"
                )
        self._vector.layout.require_in_place()
        # Changed by .data in place, neither moves: that is found by `require_constant` alone.
        if self._marks is not None and list(map(_mark, self._frozen)) != self._marks:
            self.require_constant()

    def _remember(self) -> None:
        parts = list(self._module.modules())
        # They show what is in a module at any time.
        self._views: list[ValuesView[object]] = []
        for part in parts:
            self._views += part._parameters.values(), part._modules.values()
        self._members = list(chain.from_iterable(self._views))
        found = [(part._buffers, *item) for part in parts for item in part._buffers.items()]
        self._buffers = [each for each in found if id(each[2]) in self._shared]
        self._parameters = list(self._module.parameters())
        self._flags = list(map(_requires_grad, self._parameters))
        self._tensors = {
            name: tensor
            for name, tensor in _named(self._module).items()
            if id(local_tensor(name, tensor)) in self._shared
        }
        self._managed = [
            (name, tensor, local)
            for name, tensor in self._tensors.items()
            if (local := local_tensor(name, tensor)) is not tensor
        ]

    def _is_same(self) -> bool:
        """Whether all modules have the members that they had, and the buffers that travel."""
        return (
            sum(map(len, self._views)) == len(self._members)
            and all(map(is_, chain.from_iterable(self._views), self._members))
            and all(buffers.get(name) is buffer for buffers, name, buffer in self._buffers)
        )

    def _require_travelling(self) -> None:
        # model.to(...) makes buffers anew, too.
        self._vector.layout.require_in_place()
        now = _named(self._module)
        for name, tensor in self._tensors.items():
            if now.get(name) is not tensor:
                raise TrainingError(self._parted(name, is_there=name in now))
        self._require_shared()

    def _parted(self, name: str, *, is_there: bool) -> str:
        what, plain = "assigned anew" if is_there else "taken away", plain_names(self._module)(name)
        told = "write into it with copy_, which keeps the buffer that peers average"
        if isinstance(self._tensors[name], nn.Parameter):
            told = (
                "it is not the parameter that peers average any more. Call load_state_dict without "
                "assign=True, and change the model before Peer(model)"
            )
        if (how := _reparametrized(self._module, name)) is not None:
            what, told = how, "do so before Peer(model)"
        return f"{plain} was {what} after the peer was made: {told}"

    def _require_shared(self) -> None:
        """Make sure that all that is trained travels; what was frozen since goes on travelling."""
        plain = plain_names(self._module)
        for name, parameter in self._module.named_parameters():
            if parameter.requires_grad:
                if id(local_tensor(name, parameter)) in self._shared:
                    continue
                raise TrainingError(
                    f"{plain(name)} was added or unfrozen after the peer was made, and would be "
                    "trained alone: do so before Peer(model), and freeze what is to rest afterwards"
                )
            if id(parameter) in self._trained and not self._warned:
                self._warned = True
                _log.warning(
                    "%s was frozen after the peer was made: it is averaged as before", plain(name)
                )
        self._flags = list(map(_requires_grad, self._parameters))


def _reparametrized(module: nn.Module, name: str) -> str | None:
    """Name how torch.nn.utils computes a parameter from others; None if it does not."""
    path, _, own = name.rpartition(".")
    try:
        part: Any = module.get_submodule(path)
    except AttributeError:
        return None
    if own in getattr(part, "parametrizations", ()):
        kinds = ", ".join(type(each).__name__.lstrip("_") for each in part.parametrizations[own])
        return f"parametrized ({kinds})"
    here = {*part._parameters, *part._buffers}
    for suffixes, how in _COMPUTED.items():
        if {own + suffix for suffix in suffixes} <= here:
            return how
    return None


def _mark(tensor: Tensor) -> object:
    # A tensor made of others, such as codes and scales, has no address.
    place = tensor.data_ptr() if type(tensor) in (Tensor, nn.Parameter) else 0
    return place, None if tensor.is_inference() else tensor._version


def _module_of(name: str, module: nn.Module, frozen: Collection[str]) -> str:
    """The largest module around a frozen parameter that has no other ones; else its own name."""
    plain = plain_names(module)
    others = {plain(each) for each, _ in module.named_parameters()} - {*frozen}
    parts = name.split(".")
    for depth in range(1, len(parts)):
        path = ".".join(parts[:depth])
        if not any(other.startswith(f"{path}.") for other in others):
            return path
    return name


def _named(module: nn.Module) -> dict[str, Tensor]:
    """All tensors of a module, tied ones under each of their names."""
    return {
        **dict(module.named_parameters(remove_duplicate=False)),
        **dict(module.named_buffers(remove_duplicate=False)),
    }
