"""One measurement of gossipy-dfl at the work of ``sim``: run as a script, in a process of its own.

Nothing of rumor is imported, only gossipy's packages and those that it shares with us. Ready-made
parts that would do more than the work needs are replaced, always in its favor, with a comment.
"""

import json
import resource
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector, vector_to_parameters

__all__ = ["measure"]

# Ticks of its clock in a round, as in its examples; with fewer, its peers act at the same time.
_TICKS = 100
_WARM_N = 8


def measure(
    work: str, *, n: int, hidden: int, lr: float, batch_size: int, rounds: int, threads: int
) -> dict[str, Any]:
    """Simulate, and time only the simulation: no set-up, no evaluation.

    In every round each node pushes its model once, to a random neighbor; the receiver averages it
    with its own and takes one step of SGD with momentum 0.9 on one batch.

    Args:
        work: An npz file with ``edges`` (int64, axes ``(n_edges, 2)``), ``start`` (float32, the
            network's parameters one after another), ``train_inputs`` and ``test_inputs``
            (float32, axes ``(n_samples, n_inputs)``), ``train_targets`` and ``test_targets``
            (int64, ``(n_samples,)``).
        n: Number of nodes.
        hidden: Units of the network's one hidden layer.
        lr: Learning rate.
        batch_size: Samples per step.
        rounds: Turns of every node.
        threads: Threads of torch, for one operation.

    Returns:
        ``rate``, steps of the optimizer per second, over all nodes; ``accuracy`` of the mean of all
        nodes' models; ``loaded_mb`` and ``peak_mb``, peak resident memory before the simulation and
        in all, in 10**6 bytes.
    """
    torch.set_num_threads(threads)
    _silence()
    with np.load(work) as arrays:
        given = {name: arrays[name] for name in arrays.files}
    # A small simulation first does everything that happens only once.
    around = np.arange(_WARM_N)
    warm = given | {"edges": np.stack([around, np.roll(around, 1)], axis=1)}
    _run(*_simulator(warm, _WARM_N, hidden, lr, batch_size), rounds=2)
    loaded_mb = _peak_mb()
    simulator, taken = _simulator(given, n, hidden, lr, batch_size)
    wall_s, steps = _run(simulator, taken, rounds)
    return {
        "rate": steps / wall_s,
        "accuracy": _accuracy(simulator, given),
        "loaded_mb": loaded_mb,
        "peak_mb": _peak_mb(),
    }


def _silence() -> None:
    # It imports torchvision without declaring it, for a data set that is not used here.
    sys.modules.setdefault("torchvision", ModuleType("torchvision"))
    import gossipy
    import gossipy.simul

    gossipy.LOG.disabled = True
    # A progress bar is drawn by a separate thread.
    gossipy.simul.track = _ticks


def _ticks(ticks: Iterable[int], description: str) -> Iterator[int]:
    """Replace rich's bar: gossipy closes it at the end, so it must be a generator."""
    yield from ticks


def _simulator(
    given: dict[str, NDArray[Any]], n: int, hidden: int, lr: float, batch_size: int
) -> tuple[Any, list[int]]:
    """Make a simulator, not started, and a list whose length will be the number of steps."""
    from gossipy import set_seed
    from gossipy.core import AntiEntropyProtocol, ConstantDelay, CreateModelMode, StaticP2PNetwork
    from gossipy.node import GossipNode
    from gossipy.simul import GossipSimulator

    set_seed(0)
    taken: list[int] = []
    handler = _handler_class(taken)(
        net=_network(given, hidden),
        optimizer=torch.optim.SGD,
        optimizer_params={"lr": lr, "momentum": 0.9},
        # Not nn.CrossEntropyLoss: a module is copied with every message, a function is not.
        criterion=cross_entropy,
        local_epochs=0,
        batch_size=batch_size,
        create_model_mode=CreateModelMode.MERGE_UPDATE,
    )
    samples = _Samples(n, given)
    linked, (one, other) = np.zeros((n, n), np.int8), given["edges"].T
    linked[one, other] = linked[other, one] = 1
    nodes = GossipNode.generate(
        data_dispatcher=samples,
        p2p_net=StaticP2PNetwork(n, linked),
        model_proto=handler,
        round_len=_TICKS,
        sync=True,
    )
    # No report is attached: its own counts all parameters of a message each time.
    simulator = GossipSimulator(
        nodes=nodes,
        data_dispatcher=samples,
        delta=_TICKS,
        protocol=AntiEntropyProtocol.PUSH,
        delay=ConstantDelay(1),
    )
    # Not init_nodes(): every node would draw parameters of its own, and take a step at once.
    simulator.initialized = True
    return simulator, taken


def _network(given: dict[str, NDArray[Any]], hidden: int) -> Any:
    from gossipy.model.nn import TorchMLP

    n_inputs, n_classes = given["train_inputs"].shape[1], int(given["train_targets"].max()) + 1
    network = TorchMLP(n_inputs, n_classes, (hidden,))
    vector_to_parameters(torch.from_numpy(given["start"]), network.parameters())
    return network


def _handler_class(taken: list[int]) -> Any:
    """Return its handler of torch models, changed to take one batch and count."""
    from gossipy.model.handler import TorchModelHandler

    def update(self: Any, data: tuple[Tensor, Tensor]) -> None:
        # Its own way to a single batch copies all samples of the node in another order.
        inputs, targets = data
        batch = torch.randint(len(inputs), (self.batch_size,))
        self._local_step(inputs[batch], targets[batch])
        self.n_updates += 1
        taken.append(1)

    return type("OneBatch", (TorchModelHandler,), {"_update": update})


class _Samples:
    """Shared samples for all nodes, without a test set: its own class copies them for each."""

    def __init__(self, n: int, given: dict[str, NDArray[Any]]) -> None:
        self._n = n
        self._train = tuple(
            torch.from_numpy(given[name]) for name in ("train_inputs", "train_targets")
        )

    def __getitem__(self, node: int) -> tuple[tuple[Tensor, ...], None]:
        return self._train, None

    def size(self) -> int:
        return self._n

    def has_test(self) -> bool:
        return False


def _run(simulator: Any, taken: list[int], rounds: int) -> tuple[float, int]:
    """Return seconds, and steps of the optimizer."""
    start_s = time.perf_counter()
    simulator.start(n_rounds=rounds)
    return time.perf_counter() - start_s, len(taken)


def _accuracy(simulator: Any, given: dict[str, NDArray[Any]]) -> float:
    models = [node.model_handler.model for node in simulator.nodes.values()]
    with torch.no_grad():
        mean = torch.zeros(len(given["start"]))
        for model in models:
            mean += parameters_to_vector(model.parameters()) / len(models)
        vector_to_parameters(mean, models[0].parameters())
        outputs = models[0](torch.from_numpy(given["test_inputs"]))
    return float((outputs.argmax(dim=1).numpy() == given["test_targets"]).mean())


def _peak_mb() -> float:
    """Return the peak resident memory of this process so far, in 10**6 bytes."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        # In bytes on macOS; on Linux it would include the parent process.
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    (peak,) = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
    return int(peak) * 1024 / 1e6


if __name__ == "__main__":
    print(json.dumps(measure(**json.loads(sys.argv[1]))))
