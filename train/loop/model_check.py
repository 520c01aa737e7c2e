"""Notices what would part a model from the vector that peers average."""

from typing import Final

from torch import Tensor, nn

from ...gossip.errors import TrainingError
from ..model import plain_names
from ..tensors.vector import Vector

__all__ = ["ModelCheck"]

# A check of a hundred parameters takes a tenth of a millisecond.
_CHECK_EVERY_STEPS: Final = 10

# Snapshots are looked at as they are taken, and a peer without neighbors takes none. One look reads
# the parameters once and a step several times: every hundredth step it costs less than 1 %.
_LOOK_EVERY_STEPS: Final = 100


class ModelCheck:
    """Compares a module with what it was when it was laid into a vector.

    What is replaced afterwards trains alone, and what other peers send does not reach it.

    Args:
        vector: The module's values.
        wire: How they are to travel.
        frozen_may_differ: See `PeerConfig.frozen_may_differ`.

    Raises:
        TrainingError: They lie on several devices, which this format cannot do with.
    """

    def __init__(self, vector: Vector, wire: str, frozen_may_differ: bool = False) -> None:
        vector.layout.require_one_device(wire)
        self._module = vector.layout.module
        self._vector, self._frozen_may_differ = vector, frozen_may_differ
        self._shared = {id(tensor) for tensor in vector.layout.travelling}
        named = _named(self._module).items()
        self._tensors = {name: tensor for name, tensor in named if id(tensor) in self._shared}
        self._is_new = True

    def begin(self) -> None:
        """Check the model before anything of it is compared with others'.

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
        """Make sure that frozen parameters have the bits that they had in `begin`, by reading them.

        Raises:
            TrainingError: One has others.
        """
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
        """Check the model, and read it, now and then.

        Raises:
            TrainingError: As for `require_sound`.
        """
        if self._is_new or steps % _CHECK_EVERY_STEPS == 0:
            self.require_whole()
        # A loop that changes frozen parameters mostly does so in each step.
        if self._is_new or steps % _LOOK_EVERY_STEPS == 0:
            self.require_constant()
        if steps % _LOOK_EVERY_STEPS == 0:
            self._vector.require_finite()
        self._is_new = False

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
        # model.to(...) makes buffers anew, too: what it says of parameters comes first.
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


def _named(module: nn.Module) -> dict[str, Tensor]:
    """All tensors of a module, tied ones under each of their names."""
    return {
        **dict(module.named_parameters(remove_duplicate=False)),
        **dict(module.named_buffers(remove_duplicate=False)),
    }
