"""Fine-tune a language model on Python source as one peer of a swarm: only adapters travel.

    rumor run -n 3 --wire bfloat16 --rule gosgd:p=0.5 -- python examples/lora/train.py \
        --model build/smollm2

MODEL is a folder in Hugging Face's format; weights.py makes one without a network. Peers train and
average adapters of rank 8 (LoRA) on the query and value projections. Each peer has the base model,
which is frozen and never sent. At the end, each peer's folder has an adapter/ that PEFT loads.
Started again in the same folder, a peer resumes from its last checkpoint.
"""

import argparse
import os
import time
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported

import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from rumor.train import CheckpointConfig, Peer, PeerConfig, environment
from rumor.train.tasks.code import standard_library

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--model", type=Path, required=True, help="folder of the model to begin with")
parser.add_argument("--out", type=Path, default="lora", help="where to, unless `rumor run` says")
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--tokens", type=int, default=128, help="of a sample")
parser.add_argument("--batch", type=int, default=1, help="samples of a step")
parser.add_argument("--held-out", type=int, default=32, help="samples that the loss is measured on")
parser.add_argument("--lr", type=float, default=1e-3, help="falls to 0 as the swarm takes steps")
parser.add_argument("--checkpoint-every", default="20s", help="as in 20s or 100steps")
arguments = parser.parse_args()

told = environment()  # by `rumor run`; else process 0 of 1
out = told.out or arguments.out
device = told.device
torch.manual_seed(told.seed + told.index)

tokenizer = AutoTokenizer.from_pretrained(arguments.model)
base = AutoModelForCausalLM.from_pretrained(arguments.model, dtype="auto")
lora = LoraConfig(task_type="CAUSAL_LM", r=8, lora_alpha=16, target_modules=["q_proj", "v_proj"])
model = get_peft_model(base, lora).to(device)  # adapters are float32, whatever the base
adapters = [parameter for parameter in model.parameters() if parameter.requires_grad]
optimizer = torch.optim.AdamW(adapters, lr=arguments.lr)


def samples(text: bytes, n: int, random: torch.Generator | None = None) -> Tensor:
    """Return random pieces of a text: tokens, axes ``(n, arguments.tokens)``."""
    found: list[list[int]] = []
    while len(found) < n:
        start = int(torch.randint(len(text), (), generator=random))
        piece = text[start : start + 16 * arguments.tokens].decode(errors="ignore")
        tokens = tokenizer(piece)["input_ids"][: arguments.tokens]
        if len(tokens) == arguments.tokens:
            found.append(tokens)
    return torch.tensor(found, device=device)


@torch.no_grad()
def held_out_loss() -> tuple[float, float]:
    """Nats a token and a byte, on the same pieces of held-out packages wherever it is measured."""
    model.eval()
    pieces = samples(held_out, arguments.held_out, torch.Generator().manual_seed(0))
    nats = [model(input_ids=each[None], labels=each[None]).loss.item() for each in pieces]
    mean = sum(nats) / len(nats)
    n_bytes = sum(len(tokenizer.decode(each[1:]).encode()) for each in pieces)
    model.train()
    return mean, mean * (arguments.tokens - 1) * len(pieces) / n_bytes


def written(prompt: str = "def read_lines(path):") -> str:
    """Return the model's continuation of a prompt, taking the likeliest token at each step."""
    model.eval()
    tokens = tokenizer(prompt, return_tensors="pt").to(device)
    whole = model.generate(**tokens, max_new_tokens=48, do_sample=False)
    model.train()
    return tokenizer.decode(whole[0], skip_special_tokens=True)


def report(when: str) -> None:
    a_token, a_byte = held_out_loss()
    print(f"{when}: {a_token:.4f} nats a token, {a_byte:.4f} a byte, held out", flush=True)
    print("\n".join(f"    | {line}" for line in written().splitlines()), flush=True)


corpus = standard_library()
names = sorted(corpus.train)[told.index % told.count :: told.count]  # of this peer only
own = b"\n".join(corpus.train[name] for name in names)
held_out = b"\n".join(corpus.test.values())
config = PeerConfig(
    out=out,
    checkpoint=CheckpointConfig(folder=out / "checkpoints", every=arguments.checkpoint_every),
    save_frozen=False,
)
peer = Peer(model, config)
peer.register(optimizer=optimizer)
is_back = peer.resume()
if told.index == 0 and not is_back:
    report("before")

with peer:
    began_s, before = time.monotonic(), peer.steps
    came = peer.stats().counters.bytes_received
    print(f"{peer.id} trains from step {before} on, {came} bytes received", flush=True)
    while peer.steps < arguments.steps:
        progress = peer.swarm_steps / (arguments.steps * told.count)
        optimizer.param_groups[0]["lr"] = arguments.lr * max(0.0, 1 - progress)
        batch = samples(own, arguments.batch)
        loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        peer.step(loss=loss)
    step_s = (time.monotonic() - began_s) / max(1, peer.steps - before)
    sent = peer.stats().counters
    print(
        f"{step_s:.2f} s a step; {sent.bytes_sent} bytes sent, with {sent.pushes} shares",
        flush=True,
    )

# Leaving the block has merged: the model is now the swarm's average.
model.save_pretrained(out / "adapter")
if told.index == 0:
    report("after" if peer.merged else "after, while others still train")
