"""Detect changes that would separate a model from the vector that peers average."""

from typing import Final

from torch import Tensor, nn

from ...gossip.errors import TrainingError
from ..model import plain_names
from ..tensors.vector import Vector

__all__ = ["ModelCheck"]

# A check of a hundred parameters takes a tenth of a millisecond.
_CHECK_EVERY_STEPS: Final = 10

# Snapshots are checked when they are taken, but a peer without neighbors takes none. A check reads
# the parameters once, a step several times: every hundredth step, it costs less than 1 %.
_LOOK_EVERY_STEPS: Final = 100


class ModelCheck:
    """Compares a module with its state when it was laid into a vector: a tensor that is replaced
    afterwards trains alone, without the values that other peers send."""

    def __init__(self, vector: Vector, frozen_may_differ: bool = False) -> None:
        self._module = vector.layout.module
        self._vector, self._frozen_may_differ = vector, frozen_may_differ
        self._shared = {id(tensor) for tensor in vector.layout.travelling}
        named = _named(self._module).items()
        self._tensors = {name: tensor for name, tensor in named if id(tensor) in self._shared}
        self._buffers = {id(module): _saved_buffers(module) for module in self._module.modules()}
        self._is_new = True

    def begin(self) -> None:
        """Check the model before any of it is compared with those of other peers.

        Raises:
            TrainingError: As for `require_whole`, or a frozen parameter has no values.
        """
        self.require_whole()
        if not (self._frozen_may_differ or self._vector.schema.frozen):
            self._vector.compare_frozen()
        constants = self._vector.constants
        constants.changed(constants.frozen())  # what they are at first
        self.require_constant()

    def require_constant(self) -> None:
        """Read frozen parameters, and raise `TrainingError` if any has changed since `begin`."""
        if self._frozen_may_differ:
            return
        constants = self._vector.constants
        for name in constants.changed(constants.frozen()):
            raise TrainingError(
                f"{name} is frozen, and was changed after the peer started: neither newcomers nor "
                "checkpoints would have its values. Name it, or the module that it is in, in "
                f"PeerConfig(local=({name!r},)) at all peers; or set frozen_may_differ at all "
                "peers, and each keeps its own"
            )

    def after_step(self, steps: int) -> None:
        """Check the model, and read its numbers, once every so often; raise as `require_sound`."""
        if self._is_new or steps % _CHECK_EVERY_STEPS == 0:
            self.require_whole()
        # A loop that changes frozen parameters usually does so in each step.
        if self._is_new or steps % _LOOK_EVERY_STEPS == 0:
            self.require_constant()
        if steps % _LOOK_EVERY_STEPS == 0:
            self._vector.refresh()
            self._vector.require_finite()
        self._is_new = False

    def require_sound(self) -> None:
        """Raise `TrainingError` unless the module still is what peers average, and finite."""
        self.require_whole()
        self.require_constant()
        self._vector.require_finite()

    def require_whole(self) -> None:
        """Raise `TrainingError` if a tensor was replaced, removed or moved, or is new to train."""
        # model.to() also creates new buffers: report the parameters first.
        self._vector.layout.require_in_place()
        now, plain = _named(self._module), plain_names(self._module)
        for name, tensor in self._tensors.items():
            if now.get(name) is tensor:
                continue
            hint = "write into it with copy_, which keeps the buffer that peers average"
            if isinstance(tensor, nn.Parameter):
                hint = (
                    "it is not the parameter that peers average any more. Call load_state_dict "
                    "without assign=True, and change the model (pruning and parametrizations, too) "
                    "before Peer(model)"
                )
            what = "assigned anew" if name in now else "taken away"
            raise TrainingError(f"{plain(name)} was {what} after the peer was made: {hint}")
        for name, tensor in now.items():
            if tensor.requires_grad and id(tensor) not in self._shared:
                raise TrainingError(
                    f"{plain(name)} was added or unfrozen after the peer was made, and would be "
                    "trained alone: do so before Peer(model), and freeze what is to rest afterwards"
                )
        for path, module in self._module.named_modules():
            # A module that was added later rests: it has no parameters to train.
            for name in _saved_buffers(module) - self._buffers.get(id(module), {*module._buffers}):
                raise TrainingError(
                    f"{plain(f'{path}.{name}'.lstrip('.'))} was added after the peer was made, and "
                    "would be neither averaged nor sent to newcomers: register it before "
                    "Peer(model), or with persistent=False"
                )


def _saved_buffers(module: nn.Module) -> set[str]:
    """Return the names of a module's own buffers that its state_dict has."""
    names = {name for name, buffer in module._buffers.items() if buffer is not None}
    return names - module._non_persistent_buffers_set


def _named(module: nn.Module) -> dict[str, Tensor]:
    """Return all tensors of a module, tied ones under each of their names."""
    parameters = module.named_parameters(remove_duplicate=False)
    return {**dict(parameters), **dict(module.named_buffers(remove_duplicate=False))}
