"""Peers' models on disk: merged, compared, and grouped by swarm."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch import Tensor, nn

from rumor.gossip.errors import ConfigError, TrainingError
from rumor.gossip.weight import UNIT, Units
from rumor.train import Peer, PeerConfig
from rumor.train.storage.merge import (
    SavedModel,
    consensus_distance,
    digest,
    merge,
    merge_models,
    merging_weights,
    open_model,
    save_model,
    swarms_of,
)


def save(
    folder: Path,
    peer: str,
    units: Units,
    header: Mapping[str, str] = MappingProxyType({}),
    /,
    **tensors: Tensor,
) -> SavedModel:
    path = folder / f"{peer}.safetensors"
    save_model(path, tensors, {"peer": peer, "weight_units": str(units), **header})
    return open_model(path)


def ones(value: float, n: int = 3) -> Tensor:
    return torch.full((n,), value)


def two_models(folder: Path, units: tuple[int, int] = (1, 1), **more: Tensor) -> list[SavedModel]:
    """Two saved models, all of whose numbers are 1 and 5."""
    numbers = zip("ab", units, (1.0, 5.0), strict=True)
    return [save(folder, peer, held, x=ones(x), **more) for peer, held, x in numbers]


@pytest.mark.parametrize(("units", "mean"), [((3, 1), 2.0), ((0, 1), 5.0), ((0, 0), 3.0)])
def test_models_are_averaged_by_weight(tmp_path: Path, units: tuple[int, int], mean: float) -> None:
    """If no model holds weight, all models count equally."""
    models = two_models(tmp_path, units)
    assert torch.equal(merge(models)["x"], ones(mean))
    if units == (0, 1):
        assert merging_weights(models) == {"b": UNIT}


def test_the_mean_is_rounded_once_from_float64(tmp_path: Path) -> None:
    # In float32, 1 + 2**-25 is 1, and the sum would lose it.
    values = [1.0, 2.0**-25, 2.0**-25]
    models = [save(tmp_path, str(i), 1, x=ones(v)) for i, v in enumerate(values)]
    expected = torch.tensor(values, dtype=torch.float64).mean().float()
    assert torch.equal(merge(models)["x"], expected.expand(3))


def test_the_order_of_the_models_does_not_matter(tmp_path: Path) -> None:
    torch.manual_seed(0)
    models = [save(tmp_path, f"p{i}", i + 1, x=torch.randn(100)) for i in range(5)]
    assert digest(merge(models)) == digest(merge(models[::-1]))


def test_weights_far_below_a_unit_count_in_proportion(tmp_path: Path) -> None:
    whole = [save(tmp_path, f"w{i}", i + 1, x=ones(0.1 + i)) for i in range(3)]
    units = ("1/2^940", "1/2^939", "3/2^940")
    fine = [save(tmp_path, f"f{i}", weight, x=ones(0.1 + i)) for i, weight in enumerate(units)]
    assert list(merging_weights(fine).values()) == [2**20, 2**21, 3 * 2**20]
    assert digest(merge(fine)) == digest(merge(whole))


def test_integers_and_local_tensors_come_from_the_heaviest_model(tmp_path: Path) -> None:
    models, local = [], {"schema": '[[["queue",[3],"float32",false]],1]'}
    for peer, units, value in (("a", 1, 7), ("b", 3, 9), ("c", 3, 21)):
        tensors = {"n": torch.tensor(value), "x": ones(0.0), "queue": ones(float(value))}
        models.append(save(tmp_path, peer, units, local, **tensors))
    merged = merge(models)
    assert merged["n"] == 9 and torch.equal(merged["queue"], ones(9.0))
    assert consensus_distance(models) == 0


def test_equal_tensors_are_merged_unchanged(tmp_path: Path) -> None:
    mask = torch.tensor([0.1, -torch.inf], dtype=torch.float64)
    models = [save(tmp_path, str(i), 10**12 + i, mask=mask) for i in range(3)]
    assert torch.equal(merge(models)["mask"], mask)


@pytest.mark.parametrize(
    ("tensors", "difference"),
    [
        ({"x": ones(0.0, 4)}, r"tensor 0 is x \(3,\) F32 in the first and x \(4,\) F32"),
        ({"x": ones(0.0).double()}, r"x \(3,\) F64 in the second"),
        ({"y": ones(0.0)}, r"y \(3,\) F32 in the second"),
        ({"x": ones(0.0), "y": ones(0.0)}, r"tensor 1 is absent in the first and y"),
    ],
)
def test_the_error_names_the_first_difference(
    tmp_path: Path, tensors: dict[str, Tensor], difference: str
) -> None:
    models = [save(tmp_path, "a", 1, x=ones(0.0)), save(tmp_path, "b", 1, **tensors)]
    with pytest.raises(ConfigError, match=difference):
        merge(models)


def test_duplicate_peers_and_empty_lists_are_refused(tmp_path: Path) -> None:
    model = save(tmp_path, "a", 1, x=ones(0.0))
    with pytest.raises(ConfigError, match="peer a was given twice"):
        merge([model, model])
    with pytest.raises(ConfigError, match="no model"):
        merge([])


@pytest.mark.parametrize("content", [b"", b"not a model", b"\xff" * 100])
def test_a_file_that_is_not_a_model_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(TrainingError, match="cannot be read"):
        open_model(path)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"weight_units": "-5"}, "'-5' is not a weight"),
        ({"weight_units": "1/2^961"}, ""),
        ({"weight_units": "9" * 350}, "more than all peers can hold"),
        ({"weight_units": "9" * 9000}, r"'9{12}\.\.\.9{13}' is not a weight"),
        ({"shard_units": "1,x"}, "'x' is not a weight"),
        ({"peer": "../up\n"}, r"'\.\./up\\n' is not a peer's name"),
        ({"schema": "5"}, ""),
        ({"schema": '[[["x",[4],"float32",true]],1]'}, "another shape of x"),
        ({"schema": '[[["x",[3],"float33",true]],1]'}, "a dtype that can travel"),
        ({"schema": '[[["x",[1,3],"float32",true,[1,1]]],1]'}, "another shape of x"),
        ({"schema": '[[["x",[3],"float32",true,[1]]],1]'}, "order of axes is not that of x"),
        ({"schema": '[[["x",[1024],"float32",true]],2]'}, "1 weights for 2 shards"),
        ({"met": '[["a",1e999]]'}, "1e999"),
    ],
)
def test_an_invalid_header_is_refused(tmp_path: Path, header: dict[str, str], message: str) -> None:
    assert save(tmp_path, "a", 1, x=ones(1.0)).weight == UNIT
    with pytest.raises(TrainingError, match=f"cannot be read as a model: .*{message}"):
        save(tmp_path, "a", 1, header, x=ones(1.0))


def test_a_model_without_metadata_has_its_folder_name_and_no_weight(tmp_path: Path) -> None:
    (tmp_path / "peer-3").mkdir()
    path = tmp_path / "peer-3" / "model.safetensors"
    save_model(path, {"x": ones(1.0)}, {})
    model = open_model(path)
    assert (model.id, model.weight) == ("peer-3", 0)


def test_consensus_distance_is_the_spread_around_the_mean_over_its_norm(tmp_path: Path) -> None:
    # The mean is (3, 3, 3), and both are 2 away from it in each coordinate, whatever they weigh.
    assert consensus_distance(two_models(tmp_path, (99, 1))) == pytest.approx(2 / 3)
    # Masks and counters do not count; with a schema, only what is exchanged counts.
    masked = two_models(tmp_path, mask=ones(-torch.inf))
    assert consensus_distance(masked) == pytest.approx(2 / 3)
    numbers = (("a", 1.0, 0), ("b", 5.0, 1))
    counted = [save(tmp_path, p, 1, x=ones(x), n=torch.tensor(n)) for p, x, n in numbers]
    assert consensus_distance(counted) == pytest.approx(2 / 3)
    frozen = two_models(tmp_path, frozen=ones(100.0))
    assert consensus_distance(frozen) == pytest.approx(2 / (3**2 + 100**2) ** 0.5)
    header = {"schema": '[[["x",[3],"float32",true]],1]'}
    frozen_too = {"frozen": ones(100.0)}
    known = [save(tmp_path, p, 1, header, x=ones(x), **frozen_too) for p, x, _ in numbers]
    assert consensus_distance(known) == pytest.approx(2 / 3)


def test_the_digest_depends_on_content_but_not_on_order() -> None:
    one = {"a": ones(1.0), "b": torch.tensor(2)}
    assert digest(one) == digest(dict(reversed(one.items())))
    assert digest(one) != digest(one | {"b": torch.tensor(3)})
    assert digest(one) != digest({"a": ones(1.0).reshape(3, 1), "b": torch.tensor(2)})


@pytest.mark.live
@pytest.mark.parametrize(
    ("shards", "rule"), [(2, "gosgd"), (5, "gosgd"), (5, "sparta:fraction=0.2")]
)
def test_merged_shards_equal_shards_mixed_by_vectors(
    tmp_path: Path, shards: int, rule: str
) -> None:
    torch.manual_seed(0)
    models, weights = [], ([1] * shards, [3 * (shard % 2) for shard in range(shards)])
    for index in range(2):
        layers = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(9, 5).double()
        model: Any = nn.Sequential(nn.Conv2d(5, 7, 3), *layers)
        model.to(memory_format=torch.channels_last)
        model[1].weight = nn.Parameter(torch.randn(4, 4).t())
        model[2].weight = model[1].weight
        peer = Peer(model, PeerConfig(shards=shards, rule=rule, linger_s=0))
        path = tmp_path / f"{index}.safetensors"
        with peer:
            peer.save_model(path)
        with safe_open(path, "pt") as file:
            header, state = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}
        header |= {"peer": f"p{index}", "weight_units": str(sum(weights[index]))}
        header |= {"shard_units": ",".join(map(str, weights[index]))}
        save_model(path, state, header)
        models.append((open_model(path), peer._vector))
    (one, ours), (two, theirs) = models
    assert one.schema is not None
    orders = {tensor.name: tensor.order for tensor in one.schema.tensors if tensor.order}
    assert orders == {"0.weight": (0, 2, 3, 1), "1.weight": (1, 0)}
    for shard in range(shards):
        first, second = weights[0][shard], weights[1][shard]
        payload = theirs.snapshot(shard=shard)
        ours.mix(payload, second / (first + second), shard=shard)
    merged, expected = merge([one, two]), ours.layout.state_dict(ours.flats)
    assert merged.keys() == expected.keys()
    for name, value in merged.items():
        torch.testing.assert_close(value, expected[name], rtol=1e-6, atol=1e-7)
        assert value.is_contiguous()


Incarnations = list[tuple[str, int]]
K = (("k", 1),)


def save_trained(
    folder: Path, peer: str, swarm: str = "", met: Incarnations | None = None
) -> SavedModel:
    header = {"swarm": swarm} | ({} if met is None else {"met": json.dumps(met)})
    return save(folder, peer, 0, header, x=ones(1.0))


@pytest.mark.parametrize(
    ("records", "swarms"),
    [
        ({"a": ("x", None), "b": ("x", None), "c": ("", None)}, ["abc"]),
        ({"a": ("x", None), "b": ("y", None), "c": ("x", None)}, ["ac", "b"]),
        # Both began with the same model, and never met.
        ({"a": ("x", [("a", 1)]), "b": ("x", [("b", 1)])}, ["a", "b"]),
        ({"a": ("x", [("a", 1), ("b", 1)]), "b": ("x", [("b", 1)])}, ["ab"]),
        # Peer a left before c joined, but both met k, which was killed.
        ({p: ("x", [(p, 1), *k]) for p, k in (("a", K), ("b", ()), ("c", K))}, ["ac", "b"]),
        # An earlier incarnation of b was in another swarm.
        ({"a": ("x", [("a", 1), ("b", 1)]), "b": ("x", [("b", 2)])}, ["a", "b"]),
    ],
)
def test_models_belong_to_one_swarm_if_their_peers_have_met(
    tmp_path: Path, records: dict[str, tuple[str, Incarnations | None]], swarms: list[str]
) -> None:
    models = [save_trained(tmp_path, id, *more) for id, more in records.items()]
    for order in (models, models[::-1]):
        assert ["".join(m.id for m in swarm) for swarm in swarms_of(order)] == swarms
    if len(swarms) > 1:
        with pytest.raises(TrainingError, match="trained in 2 swarms") as refused:
            merge_models(models)
        assert "; ".join(", ".join(swarm) for swarm in swarms) in str(refused.value)


def test_a_model_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    shared = ones(1.0)
    path = tmp_path / "model.safetensors"
    with pytest.raises(OSError):
        save_model(tmp_path / "missing" / path.name, {"x": shared}, {})
    save_model(path, {"x": shared}, {"peer": "a"})
    assert [child.name for child in tmp_path.iterdir()] == [path.name]
