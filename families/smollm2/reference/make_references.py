"""Greedy reference answers of a llama-architecture GGUF checkpoint, in NumPy.

The weights are those of the file that is served, dequantised once; everything
after that is this file's own, so an error of an engine is not repeated here.
It reads ../prompts.jsonl and writes ../references.jsonl and, next to it,
references.provenance.json; ../README.md describes them.
"""

import argparse
import datetime
import hashlib
import importlib.metadata
import json
import os
import platform
from pathlib import Path
from typing import Any

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # one order of summation; read when NumPy is imported

import gguf
import jinja2.sandbox
import numpy as np
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence

Array = np.ndarray[Any, np.dtype[Any]]
Json = dict[str, Any]

WINDOW = 1.0  # in nats; the runner-up is written down, and other rivals this close to the chosen token


class Model:
    """The forward pass, with the keys and values of what it has seen."""

    def __init__(self, reader: gguf.GGUFReader, dtype: type[np.floating[Any]]) -> None:
        def number(key: str) -> Any:
            return reader.fields[f"llama.{key}"].contents()

        self.weights: dict[str, Array] = {
            t.name: gguf.quants.dequantize(t.data, t.tensor_type).astype(dtype) for t in reader.tensors
        }
        if "output.weight" in self.weights:
            raise SystemExit("only an output that is tied to the embedding is known here")
        self.layers: int = number("block_count")
        self.heads: int = number("attention.head_count")
        self.kv_heads: int = number("attention.head_count_kv")
        self.epsilon: float = number("attention.layer_norm_rms_epsilon")
        self.width: int = number("rope.dimension_count")  # of a head, all of which is rotated
        self.frequencies = number("rope.freq_base") ** -(np.arange(0, self.width, 2) / self.width)
        self.dtype = dtype
        self.forget()

    def forget(self) -> None:
        self.seen = 0
        empty = np.empty((0, self.kv_heads, self.width), self.dtype)
        self.keys, self.values = [empty] * self.layers, [empty] * self.layers

    def forward(self, ids: list[int]) -> Array:
        """Takes in more tokens; returns the log-probabilities of the next one."""
        w = self.weights
        positions = np.arange(self.seen, self.seen + len(ids))
        x = w["token_embd.weight"][ids]
        for layer in range(self.layers):
            block = f"blk.{layer}"
            x = x + self.attention(layer, self.norm(x, f"{block}.attn_norm"), positions)
            h = self.norm(x, f"{block}.ffn_norm")
            gate, up = (h @ w[f"{block}.ffn_{name}.weight"].T for name in ("gate", "up"))
            x = x + (gate / (1 + np.exp(-gate)) * up) @ w[f"{block}.ffn_down.weight"].T
        self.seen += len(ids)
        logits = (w["token_embd.weight"] @ self.norm(x[-1], "output_norm")).astype(np.float64)
        peak = logits.max()
        return logits - peak - np.log(np.exp(logits - peak).sum())

    def attention(self, layer: int, h: Array, positions: Array) -> Array:
        """Grouped-query attention of h (tokens × model) to all tokens so far."""

        def project(name: str) -> Array:
            return (h @ self.weights[f"blk.{layer}.attn_{name}.weight"].T).reshape(len(h), -1, self.width)

        q, k = (self.rotate(project(name), positions) for name in ("q", "k"))
        self.keys[layer] = np.concatenate([self.keys[layer], k])
        self.values[layer] = np.concatenate([self.values[layer], project("v")])
        group = self.heads // self.kv_heads
        k, v = (np.repeat(past[layer], group, axis=1) for past in (self.keys, self.values))
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(q.shape[-1], dtype=self.dtype)
        scores = np.where(np.arange(len(k)) > positions[:, None], -np.inf, scores)
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        scores /= scores.sum(axis=-1, keepdims=True)
        mixed = np.einsum("hqk,khd->qhd", scores, v).reshape(len(h), -1)
        return mixed @ self.weights[f"blk.{layer}.attn_output.weight"].T

    def rotate(self, x: Array, positions: Array) -> Array:
        """RoPE. Converters to GGUF reorder the rows of q and k for llama, so a
        pair is two neighbours, not two halves as in the original checkpoint."""
        angles = positions[:, None, None] * self.frequencies
        cos, sin = np.cos(angles).astype(self.dtype), np.sin(angles).astype(self.dtype)
        even, odd = x[..., 0::2], x[..., 1::2]
        return np.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1).reshape(x.shape)

    def norm(self, x: Array, name: str) -> Array:
        scale = np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.dtype(self.epsilon))
        return x / scale * self.weights[f"{name}.weight"]


class Text:
    """Text to ids and back, from the metadata of the file alone."""

    def __init__(self, reader: gguf.GGUFReader) -> None:
        def value(key: str) -> Any:
            return reader.fields[f"tokenizer.{key}"].contents()

        if (kind := (value("ggml.model"), value("ggml.pre"))) != ("gpt2", "smollm") or value("ggml.add_bos_token"):
            raise SystemExit(f"tokenizer {kind}, or one that adds a first token, is not known here")
        tokens: list[str] = value("ggml.tokens")
        control = [i for i, t in enumerate(value("ggml.token_type")) if t == gguf.TokenType.CONTROL]
        merges = [tuple(m.split(" ")) for m in value("ggml.merges")]
        self.tokenizer = Tokenizer(BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges))
        self.tokenizer.pre_tokenizer = Sequence([Digits(individual_digits=True), ByteLevel(add_prefix_space=False)])
        self.tokenizer.add_special_tokens([tokens[i] for i in control])
        # A byte-level vocabulary writes printable bytes as themselves and the others from U+0100 on.
        printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
        byte = {chr(b): b for b in printable}
        byte |= {chr(0x100 + i): b for i, b in enumerate(b for b in range(256) if b not in printable)}
        # Control tokens steer; they are no part of an answer.
        self.pieces = [b"" if i in control else bytes(byte[c] for c in t) for i, t in enumerate(tokens)]
        self.ends = {value("ggml.eos_token_id"), tokens.index("<|endoftext|>")}
        environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        self.template = environment.from_string(value("chat_template"))

    def prompt(self, prompt: Json) -> list[int]:
        text = prompt.get("prompt") or self.template.render(**prompt, add_generation_prompt=True)
        return self.tokenizer.encode(text, add_special_tokens=False).ids


def answer(model: Model, text: Text, prompt: Json) -> Json:
    """Decodes greedily and keeps what the choice at each step was between."""
    ids = text.prompt(prompt)
    model.forget()
    tokens: list[int] = []
    top: list[Json] = []
    said = b""
    while not tokens or tokens[-1] not in text.ends and len(tokens) < prompt["max_tokens"]:
        logprobs = model.forward(tokens[-1:] or ids)
        best, *others = np.argsort(-logprobs, kind="stable")[:32].tolist()
        rivals = others[:1] + [t for t in others[1:] if logprobs[best] - logprobs[t] < WINDOW]
        said += text.pieces[best]
        tokens.append(best)
        top.append({"logprob": round(logprobs[best], 4), "end": len(said), "rivals": [
            {"token": t, "logprob": round(logprobs[t], 4), "text": text.pieces[t].decode(errors="ignore")} for t in rivals
        ]})
    try:
        whole = said.decode()
    except UnicodeDecodeError:  # engines differ in what they make of that
        raise SystemExit(f"{prompt['id']}: the answer ends within a character; choose another max_tokens") from None
    digest = hashlib.sha256(",".join(map(str, ids)).encode()).hexdigest()
    return {
        "id": prompt["id"],
        "task": prompt["task"],
        "prompt_tokens": {"count": len(ids), "sha256": digest},
        "tokens": tokens,
        "text": whole,
        "finish_reason": "stop" if tokens[-1] in text.ends else "length",
        "top": top,
    }


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main() -> None:
    family = Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True, help="the GGUF file that is served")
    parser.add_argument("--source", required=True, help="where it comes from, for the provenance")
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float32")
    parser.add_argument("--out", type=Path, default=family / "references.jsonl")
    arguments = parser.parse_args()
    reader = gguf.GGUFReader(arguments.model)
    model, text = Model(reader, getattr(np, arguments.dtype)), Text(reader)
    prompts = family / "prompts.jsonl"
    answers = [answer(model, text, json.loads(line)) for line in prompts.read_text("utf-8").splitlines()]
    arguments.out.write_text("".join(json.dumps(a, ensure_ascii=False) + "\n" for a in answers), "utf-8", newline="\n")
    provenance = {
        "version": 1,
        "model": {"source": arguments.source, "sha256": sha256(arguments.model)},
        "script_sha256": sha256(Path(__file__)),
        "prompts_sha256": sha256(prompts),
        "references_sha256": sha256(arguments.out),
        "dtype": arguments.dtype,
        "packages": {p: importlib.metadata.version(p) for p in ("gguf", "jinja2", "numpy", "tokenizers")},
        "platform": f"Python {platform.python_version()}, {platform.machine()}",
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }
    arguments.out.with_suffix(".provenance.json").write_text(json.dumps(provenance, indent=2) + "\n", newline="\n")


main()
