"""llama.cpp's own HTTP server, in a process of its own.

Run as: python -I server.py --config FILE --port PORT, with a JSON object of
    model         path of the GGUF file
    name          what the model is called in requests
    context       tokens of context, for each slot
    slots         requests served at the same time
    threads       threads of the engine
    prompt_cache  whether the engine may reuse an earlier prompt's work

It listens on 127.0.0.1. The API key that requests must give is in the variable
LLAMA_API_KEY. It ends when its standard input does.
"""

import argparse
import json
import os
import sys
import traceback
from typing import Any


def start(config: dict[str, Any], port: int, key: str) -> object:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.verbosity = 2  # warnings, as in worker.py
    open(config["model"], "rb").close()  # the engine does not say why it cannot
    params.model.path = config["model"]
    params.model_alias = {config["name"]}
    params.n_parallel = config["slots"]
    params.n_ctx = config["context"] * config["slots"]  # it divides them
    params.cpuparams.n_threads = config["threads"]
    params.cpuparams_batch.n_threads = config["threads"]
    params.cache_prompt = config["prompt_cache"]
    params.cache_ram_mib = 0
    params.ctx_shift = False  # it would drop old tokens silently
    params.hostnames = ["127.0.0.1"]
    params.port = port
    params.api_keys = [key]
    return xllamacpp.Server(params)


def main() -> None:
    parser = argparse.ArgumentParser(description="llama.cpp server")
    parser.add_argument("--config", required=True, metavar="FILE")
    parser.add_argument("--port", required=True, type=int)
    arguments = parser.parse_args()
    with open(arguments.config, encoding="utf-8") as file:
        config = json.load(file)
    server = start(config, arguments.port, os.environ["LLAMA_API_KEY"])
    while sys.stdin.buffer.read(1 << 16):
        pass
    del server  # it has lived until here


status = 0
try:
    main()
except BaseException:
    traceback.print_exc()
    status = 1
sys.stderr.flush()
os._exit(status)  # an orderly end would destroy the engine, which can hang
