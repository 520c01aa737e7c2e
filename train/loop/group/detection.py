"""Find the processes that train one model together, from the model itself."""

from typing import Any, Final

import torch
from torch import Tensor, nn

from ....gossip.errors import TrainingError
from ...model import plain_names

__all__ = ["is_spread", "ranks_of", "require_placed"]

_FSDP1: Final = "FullyShardedDataParallel"


def is_spread(tensor: Tensor) -> bool:
    """True for a DTensor, of which each process holds a part or a copy."""
    return hasattr(tensor, "device_mesh") and hasattr(tensor, "placements")


def ranks_of(model: nn.Module, group: Any = None) -> tuple[int, ...]:
    """Return the ranks of the processes that train *model* together, in order.

    They are those of *group*, of its DTensors' meshes, or of its `DistributedDataParallel`. The
    result is empty for a plain model that this process trains alone.

    Raises:
        TrainingError: Its groups overlap in part, *group* does not include one of them, or the
            model cannot be trained by a group.
    """
    dist = torch.distributed
    if not (dist.is_available() and dist.is_initialized()):
        return ()
    plain, found, trains = plain_names(model), dict[tuple[int, ...], str](), False
    has_parts = False
    for path, module in model.named_modules():
        groups = [each for each in vars(module).values() if isinstance(each, dist.ProcessGroup)]
        is_statistics = isinstance(module, nn.SyncBatchNorm)
        if is_statistics and not groups and dist.group.WORLD is not None:
            groups = [dist.group.WORLD]
        for each in groups:
            ranks = tuple(sorted(dist.get_process_group_ranks(each)))
            if len(ranks) > 1 and any(kind.__name__ == _FSDP1 for kind in type(module).__mro__):
                raise TrainingError(
                    f"{path or 'the model'} is a {_FSDP1} over {len(ranks)} processes, which has "
                    "no names for its parameters: use fully_shard (FSDP2)"
                )
            found.setdefault(ranks, f"{path or 'the model'} ({type(module).__name__})")
            trains |= not is_statistics and len(ranks) > 1
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if is_spread(tensor):
            mesh: Any = getattr(tensor, "device_mesh")  # noqa: B009
            ranks = tuple(sorted(mesh.mesh.flatten().tolist()))
            found.setdefault(ranks, plain(name))
            has_parts = True
            trains |= len(ranks) > 1
    if group is not None:
        whole, trains = tuple(sorted(dist.get_process_group_ranks(group))), True
    else:
        whole = max(found, key=len, default=())
    for ranks, where in found.items():
        if not {*ranks} <= {*whole}:
            raise TrainingError(
                f"{where} is trained by the processes {_said(ranks)}, and the model by "
                f"{_said(whole)}: name all of a peer's processes with Peer(model, group=...)"
            )
    if len(whole) > 1 and not trains:
        raise TrainingError(
            f"{found[whole]} waits for {len(whole)} processes in each step, which share no "
            "gradients: give Peer the plain model, so that each process is a peer of its own, or "
            "wrap it in DistributedDataParallel"
        )
    return whole if len(whole) > 1 or has_parts else ()


def require_placed(name: str, tensor: Any) -> None:
    """Raise `TrainingError` unless each process holds a block of a DTensor."""
    for placement in tensor.placements:
        if type(placement).__name__ not in ("Shard", "Replicate"):
            raise TrainingError(
                f"{name} is placed as {placement}: a peer's processes can hold parts by Shard and "
                "copies by Replicate only"
            )


def _said(ranks: tuple[int, ...]) -> str:
    return ", ".join(map(str, ranks))
