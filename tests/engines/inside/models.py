"""Makes the tiny models: `models.py CORPUS DIRECTORY`, in the environment of vllm 0.6.3, whose files all engines read.

A llama, a qwen2 and an opt of 256 hidden units and two layers with random weights, and a byte-level BPE tokenizer that
is trained on the corpus. Random logits lie close together: of arbitrary prompts every second one meets two tokens that
rounding can swap. So each model comes with the prompts, out of some hundreds, whose greedy continuations are the least
ambiguous, at the model's own softmax scale and at half of it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from greedy import decode, scale_scores
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    OPTConfig,
    OPTForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)

VOCABULARY = 512
SPECIAL = ("<unk>", "<s>", "</s>", "<pad>")
TOKENS = 16  # as recipe.TOKENS: the prompts are chosen for so many
LENGTHS = (4, 7, 12)
"""The lengths of the prompts, in tokens; one prompt each."""
CANDIDATES = 96
"""Windows of the corpus that are tried for each length; the best eighth of them to the end."""
SCALES = (1.0, 0.5)
SPREAD = 4.0
"""What the initial weights are multiplied by: continuations then depend on every token of the prompt."""

_SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 1024,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 3,
}
_GROUPED = {"intermediate_size": 512, "num_key_value_heads": 2, "tie_word_embeddings": False}


def build_models() -> dict[str, torch.nn.Module]:
    torch.manual_seed(0)
    return {
        "llama": LlamaForCausalLM(LlamaConfig(**_SHAPE, **_GROUPED)),
        "qwen2": Qwen2ForCausalLM(Qwen2Config(**_SHAPE, **_GROUPED)),
        "opt": OPTForCausalLM(OPTConfig(**_SHAPE, word_embed_proj_dim=256, ffn_dim=512)),
    }


def train_tokenizer(corpus: str) -> PreTrainedTokenizerFast:
    """Return a tokenizer of ASCII tokens only: whatever is generated is text, and all detokenizers agree on it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    letters = sorted({*map(chr, range(33, 127)), "Ġ", "Ċ"})
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=list(SPECIAL), initial_alphabet=letters)
    tokenizer.train_from_iterator(corpus.splitlines(), trainer)
    assert tokenizer.get_vocab_size() == VOCABULARY
    unknown, begin, end, pad = SPECIAL
    named = {"unk_token": unknown, "bos_token": begin, "eos_token": end, "pad_token": pad}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, clean_up_tokenization_spaces=False, **named)


def spread_weights(model: torch.nn.Module) -> None:
    """Multiply the matrices and keep special tokens from being the likeliest; in bfloat16, as it is stored."""
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.mul_(SPREAD)
        model.get_output_embeddings().weight[: len(SPECIAL)] = 0.0
    model.to(torch.bfloat16)


def candidates(tokenizer: PreTrainedTokenizerFast, corpus: str) -> dict[int, list[str]]:
    """Return windows of whole words, by their length in tokens."""
    words = [word for word in corpus.split() if word.isalpha()]
    found: dict[int, list[str]] = {length: [] for length in LENGTHS}
    for width in range(1, 10):
        for begin in range(len(words) - width):
            text = " ".join(words[begin : begin + width])
            length = len(tokenizer(text).input_ids)
            if length in found and len(found[length]) < CANDIDATES and text not in found[length]:
                found[length].append(text)
        if all(len(texts) == CANDIDATES for texts in found.values()):
            break
    return found


def choose_prompts(
    model: torch.nn.Module, tokenizer: PreTrainedTokenizerFast, texts: dict[int, list[str]]
) -> list[str]:
    """Return of each length the text whose least lead, over both scales, is the largest."""
    chosen = []
    for same_length in texts.values():
        prompts = torch.tensor([tokenizer(text).input_ids for text in same_length])
        kept = least_leads(model, prompts, 3).topk(len(same_length) // 8).indices
        leads = least_leads(model, prompts[kept], TOKENS)
        chosen.append(same_length[int(kept[leads.argmax()])])
        sys.stderr.write(f"  {chosen[-1]!r}: least lead {float(leads.max()):.3f}\n")
    return chosen


def least_leads(model: torch.nn.Module, prompts: torch.Tensor, count: int) -> torch.Tensor:
    """Return for each prompt the least lead of its first tokens, over the scales."""
    found = []
    for factor in SCALES:
        scale_scores(model, factor)
        found.append(decode(model, prompts, count)[2].amin(dim=1))
        scale_scores(model, 1 / factor)
    return torch.stack(found).amin(dim=0)


def main() -> None:
    corpus, directory = Path(sys.argv[1]).read_text(), Path(sys.argv[2])
    tokenizer = train_tokenizer(corpus)
    texts = candidates(tokenizer, corpus)
    for name, model in build_models().items():
        spread_weights(model)
        tokenizer.save_pretrained(directory / name)
        model.save_pretrained(directory / name, safe_serialization=True)
        # As a reader of the files gets it: what is not stored, such as rotary frequencies, was never rounded.
        stored = AutoModelForCausalLM.from_pretrained(directory / name, torch_dtype=torch.float32)
        prompts = choose_prompts(stored.eval(), tokenizer, texts)
        (directory / name / "prompts.json").write_text(json.dumps(prompts, indent=1) + "\n")


if __name__ == "__main__":
    main()
