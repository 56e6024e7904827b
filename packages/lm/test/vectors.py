"""Records the logits of transformers for the tiny checkpoints: the vectors that vectors.test.ts replays.

  node tooling/run-source.mjs packages/lm/test/write-checkpoints.ts /tmp/tiny
  python3 packages/lm/test/vectors.py /tmp/tiny packages/lm/test/vectors.safetensors

It needs transformers, torch and safetensors.
"""
import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import AutoModel, AutoModelForCausalLM, AutoModelForSequenceClassification

TOKENS = [(i * 37 + 11) % 256 for i in range(24)]
POSITIONS = [0, 7, 15, 23]


def encoder(folder: Path, config: dict) -> torch.Tensor:
    """The last vectors of an embedder, or the score of a reranker, whose second half is another text."""
    classifies = config["architectures"][0].endswith("ForSequenceClassification")
    kind = AutoModelForSequenceClassification if classifies else AutoModel
    model = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    types = torch.tensor([[0] * 12 + [1] * 12]) if config["type_vocab_size"] > 1 else None
    with torch.no_grad():
        out = model(torch.tensor([TOKENS]), token_type_ids=types)
    return (out.logits if classifies else out.last_hidden_state[0][POSITIONS]).float().contiguous()


def main(root: str, out: str) -> None:
    torch.manual_seed(0)
    vectors = {}
    for folder in sorted(Path(root).iterdir()):
        config = json.loads((folder / "config.json").read_text())
        if config["model_type"] in ("bert", "roberta", "xlm-roberta"):
            vectors[folder.name] = encoder(folder, config)
            continue
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
        with torch.no_grad():
            logits = model(torch.tensor([TOKENS]), use_cache=False).logits[0]
        vectors[folder.name] = logits[POSITIONS].float().contiguous()
        print(folder.name, float(logits.std()))
    save_file(vectors, out)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
