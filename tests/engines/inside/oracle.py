"""What transformers says: each prompt by itself, in float32, the whole sequence for every token."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from exchange import answer, asked
from greedy import decode, scale_scores
from transformers import AutoModelForCausalLM, AutoTokenizer


def run(one: dict, count: int) -> dict:
    tokenizer = AutoTokenizer.from_pretrained(one["model"])
    model = AutoModelForCausalLM.from_pretrained(one["model"], torch_dtype=torch.float32, attn_implementation="eager")
    scale_scores(model.eval(), one["qk_scale"])
    outputs = []
    for prompt in json.loads(Path(one["model"], "prompts.json").read_text()):
        given = tokenizer(prompt, return_tensors="pt").input_ids
        tokens, logprobs, leads = decode(model, given, count)
        outputs.append(
            {
                "prompt": prompt,
                "prompt_tokens": given[0].tolist(),
                "tokens": tokens[0].tolist(),
                "logprobs": logprobs[0].tolist(),
                "text": tokenizer.decode(tokens[0]),
                "least_lead": float(leads.min()),
            }
        )
    return {"outputs": outputs}


if __name__ == "__main__":
    question = asked()
    answer({"runs": [run(one, question["tokens"]) for one in question["runs"]]})
