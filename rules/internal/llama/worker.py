"""A worker that holds a model in llama.cpp and calls it in-process.

Run as: python -I worker.py --config FILE, with a JSON object of
    model         path of the GGUF file
    context       tokens of context
    threads       threads of the engine
    prompt_cache  whether the engine may reuse an earlier prompt's work
    mmproj        path of the projector for media, optional

It speaks version 2 of the worker protocol on standard input and output.
"""

import argparse
import hashlib
import importlib.metadata
import json
import os
import queue
import secrets
import sys
import threading
import time
import urllib.request
from typing import Any, NoReturn

PROTOCOL = 2
MAX_REQUEST = 64 << 20  # bytes in a line from the gateway

Json = dict[str, Any]
# Scopes of the task: of a buffered and of a streamed call.
SCOPES = ("public_task_call_wall", "public_task_stream_wall_including_backpressure")
# What a projector may be for. The engine itself refuses what it is not.
MEDIA = ["image_url", "video_url", "input_audio"]


class Frames:
    """The way to the gateway. Nothing else in the process can write there: the
    engine prints to file descriptor 1, which becomes standard error."""

    def __init__(self) -> None:
        self._fd = os.dup(1)
        os.dup2(2, 1)

    def send(self, frame: str, **members: Any) -> None:
        line = json.dumps({"frame": frame, **members}, ensure_ascii=False, separators=(",", ":"))
        data = memoryview(line.encode() + b"\n")
        try:
            while data:
                data = data[os.write(self._fd, data):]
        except BrokenPipeError:
            leave(0)  # the gateway is gone


def leave(status: int) -> NoReturn:
    """Ends the process at once. An orderly end would destroy the engine, which
    can hang, and would wait for a generation that nobody wants."""
    sys.stderr.flush()
    os._exit(status)


class Call:
    """One request, and what is known of the engine's answer."""

    def __init__(self, request: Json) -> None:
        self.id: str = request["id"]
        self.chat: bool = request["endpoint"] == "chat"
        self.stream: bool = request["stream"]
        self.body: Json = request["body"]
        self.cancelled = threading.Event()
        self.fault: BaseException | None = None  # of our own, inside the callback
        self.error: Json | None = None  # the engine's
        self.finish: str | None = None
        self.usage: Json = {}
        self.timings: Json = {}
        self.whole: Json = {}  # the text of a buffered answer, and so on
        self.increments = 0
        self.bytes = 0
        self.reasoning_bytes = 0
        self.began = 0
        self.wall = 0
        self.first: int | None = None
        self._sha = hashlib.sha256()

    def take(self, answer: Json) -> Json:
        """Takes in a chunk or a whole answer and returns its text, and its
        log-probabilities if there are any."""
        self.error = answer.get("error") or self.error
        self.usage = answer.get("usage") or self.usage
        self.timings = answer.get("timings") or self.timings
        text, logprobs = "", None
        for choice in answer.get("choices") or ():
            part = choice.get("delta") or choice.get("message") or choice
            text += part.get("content" if self.chat else "text") or ""
            self.reasoning_bytes += len((part.get("reasoning_content") or "").encode())
            self.finish = choice.get("finish_reason") or self.finish
            logprobs = choice.get("logprobs") or logprobs
        if text:
            if self.first is None:
                self.first = time.perf_counter_ns() - self.began
            data = text.encode()
            self._sha.update(data)
            self.bytes += len(data)
            self.increments += 1
        return {"text": text} if logprobs is None else {"text": text, "logprobs": logprobs}

    def task(self) -> Json:
        engine = {k: v for k, v in self.timings.items() if isinstance(v, (int, float))}
        if self.reasoning_bytes:
            engine["reasoning_bytes"] = self.reasoning_bytes
        return {
            "scope": SCOPES[self.stream],
            "wall_ns": self.wall,
            "first_increment_ns": self.first if self.stream else None,
            "increments": self.increments,
            "text_sha256": self._sha.hexdigest(),
            "text_bytes": self.bytes,
            "engine": engine,
        }


class Tokenization:
    """A request for the token ids of a text."""

    def __init__(self, request: Json) -> None:
        self.id: str = request["id"]
        self.text: str = request["text"]


class Engine:
    """llama.cpp with a model loaded, for one request at a time."""

    def __init__(self, config: Json) -> None:
        import xllamacpp

        params = xllamacpp.CommonParams()
        params.verbosity = 2  # warnings: several lines a request would be work in the measured path
        open(config["model"], "rb").close()  # the engine does not say why it cannot
        params.model.path = config["model"]
        if config.get("mmproj"):
            params.mmproj.path = config["mmproj"]
        params.n_ctx = config["context"]
        params.n_parallel = 1
        params.cpuparams.n_threads = config["threads"]
        params.cpuparams_batch.n_threads = config["threads"]
        params.cache_prompt = config["prompt_cache"]
        params.cache_ram_mib = 0
        params.ctx_shift = False  # it would drop old tokens silently
        # The engine opens a port of its own, past the gateway: nobody is to use it.
        params.hostnames = ["127.0.0.1"]
        params.port = 0
        self._key = secrets.token_urlsafe(32)
        params.api_keys = [self._key]
        self._cache_prompt: bool = config["prompt_cache"]
        self._server = xllamacpp.Server(params)
        # The first request pays for what the engine sets up late.
        self._server.handle_completions({"prompt": "a", "max_tokens": 1, "cache_prompt": False})

    def tokenize(self, text: str) -> list[int]:
        """The engine's token ids. The engine offers them on its own port only."""
        request = urllib.request.Request(
            self._server.listening_address + "/tokenize",
            data=json.dumps({"content": text, "add_special": False, "parse_special": True}).encode(),
            headers={"Content-Type": "application/json", "Authorization": "Bearer " + self._key},
        )
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
            return json.load(answer)["tokens"]

    def run(self, call: Call, frames: Frames) -> None:
        body = {**call.body, "stream": call.stream, "cache_prompt": self._cache_prompt}
        handle = self._server.handle_chat_completions if call.chat else self._server.handle_completions

        def chunk(piece: Json) -> bool:
            """Passes on an increment; True stops the generation. The engine
            swallows exceptions, so they are kept."""
            try:
                delta = call.take(piece)
                if delta != {"text": ""}:
                    frames.send("delta", id=call.id, **delta)
            except BaseException as fault:
                call.fault = fault
                return True
            return call.cancelled.is_set()

        call.began = time.perf_counter_ns()
        try:
            if call.stream:
                handle({**body, "stream_options": {"include_usage": True}}, chunk)
            else:
                answer = handle(body)
        finally:
            call.wall = time.perf_counter_ns() - call.began
        if not call.stream:
            call.whole = call.take(answer)


def tokenize(engine: Engine, request: Tokenization, frames: Frames) -> None:
    try:
        frames.send("tokens", id=request.id, tokens=engine.tokenize(request.text))
    except Exception as fault:
        message = f"{type(fault).__name__}: {fault}"
        frames.send("error", id=request.id, status=500, code="engine_error", type="server_error", message=message)


def serve(engine: Engine, call: Call, frames: Frames) -> None:
    """Runs a request and sends its last frame."""

    def error(status: int, code: str, kind: str, message: str) -> None:
        frames.send("error", id=call.id, status=status, code=code, type=kind, message=message, task=call.task())

    try:
        engine.run(call, frames)
    except Exception as fault:
        if isinstance(fault, ValueError):  # how the engine refuses a body
            return error(400, "invalid_request", "invalid_request_error", str(fault))
        return error(500, "engine_error", "server_error", f"{type(fault).__name__}: {fault}")
    if call.fault is not None:
        return error(500, "worker_error", "server_error", f"{type(call.fault).__name__}: {call.fault}")
    if call.error is not None:
        kind, status = str(call.error.get("type")), call.error.get("code")
        code = "context_length_exceeded" if kind == "exceed_context_size_error" else kind
        status = status if isinstance(status, int) and 400 <= status <= 599 else 500
        return error(status, code, "invalid_request_error" if status < 500 else "server_error", str(call.error.get("message")))
    if call.cancelled.is_set() and call.finish is None:
        return error(499, "cancelled", "cancelled", "cancelled")
    usage = {
        "prompt_tokens": call.usage.get("prompt_tokens"),
        "completion_tokens": call.usage.get("completion_tokens"),
        "cached_tokens": (call.usage.get("prompt_tokens_details") or {}).get("cached_tokens"),
    }
    frames.send("done", id=call.id, finish_reason=call.finish, usage=usage, task=call.task(), **call.whole)


def read_requests(calls: "queue.SimpleQueue[Call | Tokenization]") -> NoReturn:
    """Reads the gateway's frames, also while a request is served. When they end
    the gateway is gone, and so is the worker."""
    current: Call | None = None
    try:
        while line := sys.stdin.buffer.readline(MAX_REQUEST + 1):
            if len(line) > MAX_REQUEST:
                raise ValueError(f"a line of more than {MAX_REQUEST} bytes")
            request = json.loads(line)
            match request["frame"]:
                case "generate":
                    current = Call(request)
                    calls.put(current)
                case "tokenize":
                    calls.put(Tokenization(request))
                case "cancel":
                    if current is not None and current.id == request["id"]:
                        current.cancelled.set()
                case "shutdown":
                    break
                case other:
                    raise ValueError(f"unknown frame {other!r}")
    except Exception as fault:
        print(f"from the gateway: {type(fault).__name__}: {fault}", file=sys.stderr)
        leave(1)
    leave(0)


def read_config(path: str) -> Json:
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    kinds = {"model": str, "context": int, "threads": int, "prompt_cache": bool, "mmproj": str}
    if wrong := set(config) - set(kinds) | set(kinds) - set(config) - {"mmproj"}:
        raise ValueError(f"missing or unknown: {', '.join(sorted(wrong))}")
    for name, value in config.items():
        if type(value) is not kinds[name]:
            raise ValueError(f"{name} must be of type {kinds[name].__name__}")
    return config


def main() -> NoReturn:
    parser = argparse.ArgumentParser(description="llama.cpp worker")
    parser.add_argument("--config", required=True, metavar="FILE")
    path: str = parser.parse_args().config

    frames = Frames()
    began = time.perf_counter_ns()
    try:
        config = read_config(path)
        frames.send(
            "hello",
            protocol=PROTOCOL,
            worker="assay-llama",
            engine={"name": "xllamacpp", "version": importlib.metadata.version("xllamacpp")},
            capabilities={
                "endpoints": ["chat", "completions"], "cancel": True, "max_context": config["context"],
                "tokenize": True, "logprobs": True, "content": MEDIA if config.get("mmproj") else [],
            },
        )
        calls: "queue.SimpleQueue[Call | Tokenization]" = queue.SimpleQueue()
        threading.Thread(target=read_requests, args=(calls,), daemon=True).start()
        engine = Engine(config)
    except Exception as fault:
        frames.send("fatal", message=f"{type(fault).__name__}: {fault}")
        leave(1)
    frames.send("ready", load_ms=(time.perf_counter_ns() - began) / 1e6)
    while True:
        match calls.get():
            case Tokenization() as request:
                tokenize(engine, request, frames)
            case call:
                serve(engine, call, frames)


main()
