"""A worker to start from: replace Engine with yours and keep the rest.

Run as: python3 worker.py. It speaks version 2 of the worker protocol
(docs/worker-protocol.md) on standard input and output, and needs nothing but
Python's standard library.
"""

import codecs
import hashlib
import json
import os
import queue
import sys
import threading
import time
from typing import Any, Iterator, NoReturn

Json = dict[str, Any]


class Refused(Exception):
    """A request that the client has to change."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Engine:
    """A parrot: it says the prompt over and over. A token is three bytes of UTF-8,
    so tokens end inside characters, as those of a real model do."""

    name, version = "parrot", "1"
    context = 4096  # tokens

    def __init__(self) -> None:
        """Loads the model and warms it up. Import your libraries here, not above:
        they find standard output guarded."""

    def tokenize(self, text: str) -> list[int]:
        data = text.encode()
        return [int.from_bytes(data[i : i + 3], "big") for i in range(0, len(data), 3)]

    def generate(self, prompt: str, limit: int, body: Json) -> Iterator[tuple[bytes, str | None]]:
        """Yields the tokens of the answer, at most limit, the last one with the
        finish reason; is asked for no more when the request is cancelled. body has
        the settings of sampling. Raises Refused for what cannot be done."""
        stops = body.get("stop") or []
        heard = (prompt or "…").encode() + b" "
        whole = said = (heard * limit * 3)[: limit * 3]
        for stop in [stops] if isinstance(stops, str) else stops:
            said = said.partition(stop.encode())[0]
        for at in range(0, len(said), 3) or [0]:
            time.sleep(0.001)  # thinking
            last = at + 3 >= len(said)
            yield said[at : at + 3], ("length" if said == whole else "stop") if last else None


class Frames:
    """The way to the gateway. Nothing else in the process can write there: what a
    library prints goes to standard error."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "wb")
        os.dup2(2, 1)

    def send(self, frame: str, **members: Any) -> None:
        line = json.dumps({"frame": frame, **members}, ensure_ascii=False)
        try:
            self._out.write(line.encode() + b"\n")
            self._out.flush()
        except BrokenPipeError:
            leave(0)  # the gateway is gone


def leave(status: int) -> NoReturn:
    """Ends the process at once, from any thread and in the middle of a request."""
    sys.stderr.flush()
    os._exit(status)


class Request:
    """A request, and whether the gateway has given it up."""

    def __init__(self, frame: Json) -> None:
        self.frame = frame
        self.id: str = frame["id"]
        self.cancelled = threading.Event()


def read_frames(requests: "queue.SimpleQueue[Request]") -> NoReturn:
    """Reads the gateway's frames, also while a request is served. When they end the
    gateway is gone, and so is the worker."""
    latest: Request | None = None
    try:
        for line in sys.stdin.buffer:
            frame = json.loads(line)
            match frame["frame"]:
                case "generate" | "tokenize":
                    latest = Request(frame)
                    requests.put(latest)
                case "cancel":  # may come late, for a request that has ended
                    if latest is not None and latest.id == frame["id"]:
                        latest.cancelled.set()
                case "shutdown":
                    break
                case other:
                    raise ValueError(f"unknown frame {other!r}")
    except Exception as fault:
        print(f"from the gateway: {type(fault).__name__}: {fault}", file=sys.stderr)
        leave(1)
    leave(0)


class Task:
    """The account of one call to the engine: its times, and its text as the engine
    gave it."""

    def __init__(self, stream: bool) -> None:
        self._stream = stream
        self._text = hashlib.sha256()
        self._bytes = self._increments = 0
        self._first: int | None = None
        self._began = time.perf_counter_ns()

    def take(self, text: str) -> None:
        if self._first is None:
            self._first = time.perf_counter_ns() - self._began
        self._text.update(text.encode())
        self._bytes += len(text.encode())
        self._increments += 1

    def end(self) -> Json:
        scope = "public_task_stream_wall_including_backpressure" if self._stream else "public_task_call_wall"
        first = {"first_increment_ns": self._first} if self._stream and self._first is not None else {}
        return {
            "scope": scope,
            "wall_ns": time.perf_counter_ns() - self._began,
            **first,
            "increments": self._increments,
            "text_sha256": self._text.hexdigest(),
            "text_bytes": self._bytes,
        }


def generate(engine: Engine, request: Request, frames: Frames) -> None:
    body, stream = request.frame["body"], request.frame["stream"]
    prompt = prompt_of(request.frame["endpoint"], body)
    used, limit = len(engine.tokenize(prompt)), body["max_tokens"]
    if used >= engine.context:
        raise Refused("context_length_exceeded", f"the prompt ({used} tokens) exceeds the context ({engine.context} tokens)")
    limit = min(limit, engine.context - used)

    # It holds the first bytes of a character back until the last one is there. What
    # is no character at all becomes U+FFFD, as the end of an answer that is cut may.
    characters = codecs.getincrementaldecoder("utf-8")("replace")
    tokens, pieces, finish = 0, [], None  # no reason is invented if the engine breaks off
    task = Task(stream)
    for token, finish in engine.generate(prompt, limit, body):
        tokens += 1
        if text := characters.decode(token, final=finish is not None):
            task.take(text)
            if stream:
                frames.send("delta", id=request.id, text=text)
            else:
                pieces.append(text)
        if request.cancelled.is_set():
            return refuse(frames, request, 499, "cancelled", "cancelled", task=task.end())
    account = task.end()
    frames.send(
        "done",
        id=request.id,
        finish_reason=finish,
        usage={"prompt_tokens": used, "completion_tokens": tokens, "cached_tokens": 0},
        task=account,
        **({} if stream else {"text": "".join(pieces)}),
    )


def prompt_of(endpoint: str, body: Json) -> str:
    """The prompt as the engine gets it. Yours may have a chat template."""
    if endpoint == "completions":
        prompt = body.get("prompt")
        prompt = prompt[0] if isinstance(prompt, list) and len(prompt) == 1 else prompt
        if not isinstance(prompt, str):
            raise Refused("invalid_request", "prompt must be a text")
        return prompt
    messages = body.get("messages")
    if not isinstance(messages, list) or not all(isinstance(m, dict) for m in messages):
        raise Refused("invalid_request", "messages must be a list of objects")
    return "\n".join(text_of(m.get("content")) for m in messages)


def text_of(content: object) -> str:
    if isinstance(content, str) or content is None:
        return content or ""
    if not isinstance(content, list) or not all(isinstance(p, dict) and p.get("type") == "text" for p in content):
        raise Refused("invalid_request", "this model takes text only")
    return "".join(str(part.get("text", "")) for part in content)


def refuse(frames: Frames, request: Request, status: int, code: str, message: str, **more: Any) -> None:
    kind = "invalid_request_error" if status < 499 else "cancelled" if status == 499 else "server_error"
    frames.send("error", id=request.id, status=status, code=code, type=kind, message=message, **more)


def serve(engine: Engine, request: Request, frames: Frames) -> None:
    """Answers a request; its last frame is sent whatever happens."""
    try:
        if request.frame["frame"] == "tokenize":
            frames.send("tokens", id=request.id, tokens=engine.tokenize(request.frame["text"]))
        else:
            generate(engine, request, frames)
    except Refused as refusal:
        refuse(frames, request, 400, refusal.code, str(refusal))
    except Exception as fault:
        refuse(frames, request, 500, "engine_error", f"{type(fault).__name__}: {fault}")


def main() -> NoReturn:
    frames = Frames()
    began = time.perf_counter_ns()
    frames.send(
        "hello",
        protocol=2,
        worker="parrot-worker",
        engine={"name": Engine.name, "version": Engine.version},
        capabilities={"endpoints": ["chat", "completions"], "cancel": True, "max_context": Engine.context, "tokenize": True},
    )
    # From here on the end of the gateway is seen, while the model loads too.
    requests: "queue.SimpleQueue[Request]" = queue.SimpleQueue()
    threading.Thread(target=read_frames, args=(requests,), daemon=True).start()
    try:
        engine = Engine()
    except Exception as fault:
        frames.send("fatal", message=f"{type(fault).__name__}: {fault}")
        leave(1)
    frames.send("ready", load_ms=(time.perf_counter_ns() - began) / 1e6)
    while True:
        serve(engine, requests.get(), frames)


main()
