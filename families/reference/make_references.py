"""Greedy reference answers of a GGUF checkpoint, by PyTorch.

The weights are those of the file that is served, dequantised to FP32 once; the
model is that of the transformers library, which shares no code with an engine.
For a family's folder it reads prompts.jsonl and writes references.jsonl and, next
to it, references.provenance.json; ../../docs/families.md describes them.
"""

import argparse
import datetime
import hashlib
import importlib.metadata
import json
import platform
from pathlib import Path
from typing import Any

import gguf
import jinja2.sandbox
import sentencepiece
import torch
from sentencepiece import sentencepiece_model_pb2 as spm
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence
from transformers import AutoModelForCausalLM

Json = dict[str, Any]

ALTERNATIVES = 10  # that are written down of each step, the chosen token among them
CONTROL, USER_DEFINED, BYTE = 3, 4, 6  # token types (llama_token_type)


class Text:
    """Text to ids and back, from the metadata of the file alone."""

    def __init__(self, path: Path) -> None:
        self.fields = gguf.GGUFReader(path).fields
        self.tokens: list[str] = self.value("ggml.tokens")
        self.types: list[int] = self.value("ggml.token_type")
        kind = (self.value("ggml.model"), self.value("ggml.pre"))
        if kind == ("gpt2", "smollm"):
            self.byte_level()
        elif kind[0] == "llama" and not self.value("ggml.add_space_prefix"):
            self.sentence_piece()
        else:
            raise SystemExit(f"a tokenizer of kind {kind} is not known here")
        self.first = [self.value("ggml.bos_token_id")] if self.value("ggml.add_bos_token") else []
        self.ends = {self.value("ggml.eos_token_id")}
        self.ends |= {i for i, t in enumerate(self.tokens) if t in ("<|endoftext|>", "<end_of_turn>")}
        self.template = None
        if "tokenizer.chat_template" in self.fields:
            environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
            self.template = environment.from_string(self.value("chat_template"))

    def value(self, key: str) -> Any:
        field = self.fields.get(f"tokenizer.{key}")
        return field.contents() if field else None

    def byte_level(self) -> None:
        merges = [tuple(m.split(" ")) for m in self.value("ggml.merges")]
        tokenizer = Tokenizer(BPE(vocab={t: i for i, t in enumerate(self.tokens)}, merges=merges))
        tokenizer.pre_tokenizer = Sequence([Digits(individual_digits=True), ByteLevel(add_prefix_space=False)])
        tokenizer.add_special_tokens([t for t, kind in zip(self.tokens, self.types) if kind == CONTROL])
        self.encode = lambda text: tokenizer.encode(text, add_special_tokens=False).ids
        # A byte-level vocabulary writes printable bytes as themselves and the others from U+0100 on.
        printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
        byte = {chr(b): b for b in printable}
        byte |= {chr(0x100 + i): b for i, b in enumerate(b for b in range(256) if b not in printable)}
        self.bytes_of = lambda i: bytes(byte[c] for c in self.tokens[i])

    def sentence_piece(self) -> None:
        model = spm.ModelProto()
        for token, score, kind in zip(self.tokens, self.value("ggml.scores"), self.types):
            # Converters write the spaces of user-defined pieces as spaces.
            piece = token.replace(" ", "\u2581") if kind == USER_DEFINED else token
            model.pieces.add(piece=piece, score=score, type=kind)
        model.trainer_spec.model_type = spm.TrainerSpec.BPE
        model.trainer_spec.byte_fallback = True
        for name in ("unk", "bos", "eos", "pad"):
            key = {"unk": "unknown", "pad": "padding"}.get(name, name)
            setattr(model.trainer_spec, f"{name}_id", self.value(f"ggml.{key}_token_id"))
        normalizer = model.normalizer_spec
        normalizer.name = "identity"
        normalizer.add_dummy_prefix = normalizer.remove_extra_whitespaces = False
        processor = sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())
        self.encode = processor.encode

        def bytes_of(i: int) -> bytes:
            if self.types[i] == BYTE:
                return bytes([int(self.tokens[i][1:-1], 16)])
            return self.tokens[i].replace("\u2581", " ").encode()

        self.bytes_of = bytes_of

    def piece(self, i: int) -> bytes:
        """What a token adds to an answer. Control tokens steer; they are no part of it."""
        return b"" if self.types[i] == CONTROL else self.bytes_of(i)

    def prompt(self, prompt: Json) -> list[int]:
        if "prompt" in prompt:
            text = prompt["prompt"]
        elif self.template is not None:
            text = self.template.render(**prompt, add_generation_prompt=True)
        else:
            raise SystemExit(f"{prompt['id']}: the checkpoint has no chat template")
        return self.first + self.encode(text)


@torch.inference_mode()
def answer(model: Any, text: Text, prompt: Json) -> Json:
    """Decodes greedily and keeps what the choice at each step was between."""
    ids = text.prompt(prompt)
    cache, fed = None, ids
    tokens: list[int] = []
    top: list[Json] = []
    said = b""
    while not tokens or tokens[-1] not in text.ends and len(tokens) < prompt["max_tokens"]:
        out = model(torch.tensor([fed]), past_key_values=cache, use_cache=True)
        cache = out.past_key_values
        values, indices = out.logits[0, -1].double().log_softmax(0).topk(ALTERNATIVES)
        (best, logprob), *rivals = zip(indices.tolist(), values.tolist())
        said += text.piece(best)
        tokens.append(best)
        fed = [best]
        top.append({"logprob": round(logprob, 4), "end": len(said), "rivals": [
            {"token": i, "logprob": round(p, 4), "text": text.piece(i).decode(errors="ignore")} for i, p in rivals
        ]})
    try:
        whole = said.decode()
    except UnicodeDecodeError:  # engines differ in what they make of that
        raise SystemExit(f"{prompt['id']}: the answer ends within a character; choose another max_tokens") from None
    return {
        "id": prompt["id"],
        "task": prompt["task"],
        "prompt_tokens": {"count": len(ids), "sha256": hashlib.sha256(",".join(map(str, ids)).encode()).hexdigest()},
        "tokens": tokens,
        "text": whole,
        "finish_reason": "stop" if tokens[-1] in text.ends else "length",
        "top": top,
    }


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--family", type=Path, required=True, help="the family's folder")
    parser.add_argument("--model", type=Path, required=True, help="the GGUF file that is served")
    parser.add_argument("--source", required=True, help="where it comes from, for the provenance")
    parser.add_argument("--revision", default="", help="the upstream revision that is claimed for it, 40 hex digits")
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float32")
    parser.add_argument("--out", type=Path, help="default: references.jsonl in the family's folder")
    arguments = parser.parse_args()
    out = arguments.out or arguments.family / "references.jsonl"
    prompts = arguments.family / "prompts.jsonl"
    torch.set_num_threads(1)  # one order of summation
    text = Text(arguments.model)
    model = AutoModelForCausalLM.from_pretrained(
        arguments.model.parent, gguf_file=arguments.model.name, dtype=torch.float32, attn_implementation="eager",
    ).eval().to(getattr(torch, arguments.dtype))
    answers = [answer(model, text, json.loads(line)) for line in prompts.read_text("utf-8").splitlines()]
    out.write_text("".join(json.dumps(a, ensure_ascii=False) + "\n" for a in answers), "utf-8", newline="\n")
    packages = ("gguf", "jinja2", "sentencepiece", "tokenizers", "torch", "transformers")
    provenance = {
        "version": 1,
        "model": {"source": arguments.source, "sha256": sha256(arguments.model)}
        | ({"revision": arguments.revision} if arguments.revision else {}),
        "script_sha256": sha256(Path(__file__)),
        "prompts_sha256": sha256(prompts),
        "references_sha256": sha256(out),
        "dtype": arguments.dtype,
        "packages": {p: importlib.metadata.version(p) for p in packages},
        "platform": f"Python {platform.python_version()}, {platform.machine()}",
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }
    out.with_suffix(".provenance.json").write_text(json.dumps(provenance, indent=2) + "\n", newline="\n")


main()
