"""A `Trainer` of transformers as one peer of a swarm.

Start four of them on this machine:

    rumor run -n 4 --out runs/gpt -- python examples/train_transformers.py

or two on two machines:

    python examples/train_transformers.py --bind tcp://0.0.0.0:7700 --out a
    python examples/train_transformers.py --join tcp://node-a:7700 --out b

Kill one, start it again with --resume, and it resumes from its last checkpoint. The model is a tiny
GPT-2 that learns to count, so nothing is downloaded.
"""

import argparse

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from rumor.gossip import GoSGD
from rumor.train import environment
from rumor.train.integrations.transformers import RumorCallback

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--bind", help="where to listen, such as tcp://0.0.0.0:7700")
parser.add_argument("--join", action="append", help="address of any member")
parser.add_argument("--out", help="folder for checkpoints (default: that of `rumor run`)")
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--resume", action="store_true", help="resume from the last checkpoint")
arguments = parser.parse_args()
# Arguments override the settings of `rumor run`.
place = {name: vars(arguments)[name] for name in ("bind", "join") if vars(arguments)[name]}

told = environment()  # by `rumor run`; else process 0 of 1
out = arguments.out or told.out or "out"


def counting(samples: int, seed: int) -> list[dict[str, torch.Tensor]]:
    starts = torch.randint(0, 16, (samples, 1), generator=torch.Generator().manual_seed(seed))
    return [{"input_ids": ids, "labels": ids} for ids in (starts + torch.arange(12)) % 16]


model = GPT2LMHeadModel(
    GPT2Config(
        vocab_size=16,
        n_positions=16,
        n_embd=32,
        n_layer=2,
        n_head=2,
        bos_token_id=None,
        eos_token_id=None,
    )
)
callback = RumorCallback(rule=GoSGD(p=0.1), **place)
trainer = Trainer(
    model,
    TrainingArguments(
        output_dir=f"{out}/trainer",
        max_steps=arguments.steps,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=2,
        learning_rate=1e-2,
        seed=told.seed + told.index,  # else all peers would draw the same batches
        eval_strategy="steps",
        eval_steps=50,
        save_steps=50,
        save_total_limit=2,
        logging_steps=10,
        report_to="none",
        disable_tqdm=True,
    ),
    train_dataset=counting(1000, seed=told.index),  # this process's part of the data
    eval_dataset=counting(100, seed=1000),
    callbacks=[callback],
)
trainer.train(resume_from_checkpoint=arguments.resume or None)
print(f"loss {trainer.evaluate()['eval_loss']:.3f} after {callback.peer.steps} steps")
