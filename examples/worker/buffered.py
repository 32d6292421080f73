"""The simplest worker: version 1 of the worker protocol, whole answers only.

Run as: python3 buffered.py. Replace answer() with your engine.
"""

import hashlib
import json
import os
import sys
import time

# Nothing but frames goes to standard output, whatever a library prints.
frames = os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)


def answer(prompt: str, max_tokens: int) -> tuple[str, str]:
    """The text and the finish reason. A token is a word here."""
    words = f"You said: {prompt}".split()
    return " ".join(words[:max_tokens]), "stop" if len(words) <= max_tokens else "length"


def send(frame: str, **members: object) -> None:
    frames.write(json.dumps({"frame": frame, **members}, ensure_ascii=False).encode() + b"\n")
    frames.flush()


def prompt_of(body: dict) -> str:
    if "prompt" in body:
        texts = [body["prompt"]]
    else:
        texts = [message["content"] for message in body["messages"]]
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("this model takes text only")
    return "\n".join(texts)


def serve(id: str, body: dict) -> None:
    try:
        prompt = prompt_of(body)
    except (LookupError, TypeError) as fault:
        send("error", id=id, status=400, code="invalid_request", type="invalid_request_error", message=f"the prompt: {fault!r}")
        return
    began = time.perf_counter_ns()
    try:
        text, finish = answer(prompt, body["max_tokens"])
    except Exception as fault:
        send("error", id=id, status=500, code="engine_error", type="server_error", message=repr(fault))
        return
    wall = time.perf_counter_ns() - began
    data = text.encode()
    task = {"scope": "public_task_call_wall", "wall_ns": wall, "increments": 1, "text_sha256": hashlib.sha256(data).hexdigest(), "text_bytes": len(data)}
    # A count that the engine does not give is null, never 0.
    usage = {"prompt_tokens": None, "completion_tokens": len(text.split()), "cached_tokens": None}
    send("done", id=id, finish_reason=finish, usage=usage, task=task, text=text)


send("hello", protocol=1, worker="echo-worker", engine={"name": "echo", "version": "1"}, capabilities={"endpoints": ["chat", "completions"]})
# Load the model here.
send("ready", load_ms=0)
for line in sys.stdin.buffer:  # it ends when the gateway is gone
    request = json.loads(line)
    if request["frame"] == "shutdown":
        break
    serve(request["id"], request["body"])
