"""What the official openai client sees of the native server.

    client.py URL CASE...

talks to the server at URL and prints one line of JSON for each case. The server
has the model "m", also called "alias", with two workers that follow script.json,
and the model "scores", with two that follow scores.json.

A line is the same in every run: requests carry the name of their case as
X-Request-ID, and the time of creation is left out. Every answer is also checked
against the client's own types, strictly: by itself the client takes whatever
comes. What does not fit is shown as "misfits".
"""

import asyncio
import json
import re
import sys

import openai
import pydantic
from openai import AsyncOpenAI, OpenAI
from openai.types import Completion

URL = sys.argv[1]
SAY_HELLO = [{"role": "user", "content": "say hello"}]

UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

CASES = {}


def case(run):
    CASES[run.__name__] = run
    return run


def options(name):
    # Nothing is retried: the cases show what the server says.
    return dict(base_url=URL + "/v1", api_key="open sesame", max_retries=0, default_headers={"X-Request-ID": name})


def connect(name):
    transport = openai.DefaultHttpxClient(trust_env=False)  # no proxy
    return OpenAI(**options(name), http_client=transport)


def show(answer):
    """An answer as a plain value, checked."""
    value = answer.model_dump(exclude_unset=True)
    try:
        type(answer).model_validate(value, strict=True)
    except pydantic.ValidationError as e:
        misfits = [".".join(map(str, p["loc"])) + ": " + p["msg"] for p in e.errors() if not unfinished(answer, p)]
        if misfits:
            value["misfits"] = misfits
    del value["created"]
    return value


def unfinished(answer, problem):
    # In a stream of completions, OpenAI's own finish_reason is null up to the
    # last chunk. The client has one type for the chunks and the whole answer, in
    # which it must not be.
    return isinstance(answer, Completion) and problem["loc"][-1] == "finish_reason" and problem["input"] is None


def collect(stream):
    """The chunks of a stream, with what all have in common given once."""
    return merge([show(chunk) for chunk in stream])


def merge(chunks):
    common = {k: v for k, v in chunks[0].items() if all(c.get(k) == v for c in chunks)}
    return common | {"chunks": [{k: v for k, v in c.items() if k not in common} for c in chunks]}


def told(e):
    """An error, as the client's exception holds it."""
    value = {"raised": type(e).__name__, "type": e.type, "code": e.code, "param": e.param, "message": e.message}
    if isinstance(e, openai.APIStatusError):
        value |= {"status": e.status_code, "request_id": e.request_id}
    return value


# Answers


@case
def models(client):
    return {"models": [show(model) for model in client.models.list()]}


@case
def model(client):
    return show(client.models.retrieve("m"))


@case
def chat(client):
    return show(client.chat.completions.create(model="m", messages=SAY_HELLO))


@case
def chat_stream(client):
    return collect(client.chat.completions.create(
        model="m", messages=SAY_HELLO, stream=True, stream_options={"include_usage": True}))


@case
def chat_stream_without_usage(client):
    return collect(client.chat.completions.create(model="m", messages=SAY_HELLO, max_tokens=1, stream=True))


@case
def chat_stream_without_obfuscation(client):
    return collect(client.chat.completions.create(
        model="m", messages=SAY_HELLO, max_tokens=1, stream=True, stream_options={"include_obfuscation": False}))


@case
def chat_stream_helper(client):
    """The helper puts the chunks together again."""
    with client.chat.completions.stream(model="m", messages=SAY_HELLO) as stream:
        events = [event.type for event in stream if event.type != "chunk"]
        return {"events": events, "final": show(stream.get_final_completion())}


@case
def completion(client):
    return show(client.completions.create(model="m", prompt="say hello"))


@case
def completion_stream(client):
    return collect(client.completions.create(
        model="m", prompt="say hello", stream=True, stream_options={"include_usage": True}))


@case
def completion_of_tokens(client):
    return show(client.completions.create(model="m", prompt=[1, 2, 3], max_tokens=1))


@case
def counts_unknown(client):
    return collect(client.completions.create(
        model="m", prompt="count nothing", stream=True, stream_options={"include_usage": True}))


@case
def history(client):
    """The worker sees the whole conversation: prompt_tokens counts its words."""
    return show(client.chat.completions.create(model="m", max_tokens=1, messages=[
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "one two"},
        {"role": "assistant", "content": "three"},
        {"role": "user", "content": "four five six"},
    ]))


@case
def text_parts(client):
    return show(client.chat.completions.create(model="m", max_tokens=1, messages=[
        {"role": "user", "content": [{"type": "text", "text": "one two"}, {"type": "text", "text": "three"}]},
    ]))


@case
def sampling(client):
    return show(client.chat.completions.create(
        model="m", messages=SAY_HELLO, stop=["\n", "END"], seed=7, temperature=0.5, top_p=0.9,
        frequency_penalty=0.1, presence_penalty=0.1, user="somebody", n=1, max_tokens=2))


@case
def max_completion_tokens(client):
    return show(client.chat.completions.create(model="m", messages=SAY_HELLO, max_completion_tokens=3))


@case
def another_name(client):
    return show(client.chat.completions.create(model="alias", messages=SAY_HELLO, max_tokens=1))


# The model "scores" gives log-probabilities and takes images; "m" does neither.


@case
def logprobs(client):
    return show(client.chat.completions.create(
        model="scores", messages=SAY_HELLO, max_tokens=2, logprobs=True, top_logprobs=1))


@case
def logprobs_stream(client):
    return collect(client.chat.completions.create(
        model="scores", messages=SAY_HELLO, max_tokens=2, logprobs=True, stream=True))


@case
def logprobs_completion(client):
    return show(client.completions.create(model="scores", prompt="say hello", max_tokens=2, logprobs=1))


@case
def logprobs_completion_stream(client):
    return collect(client.completions.create(
        model="scores", prompt="say hello", max_tokens=2, logprobs=1, stream=True))


@case
def logprobs_not_wanted(client):
    return show(client.chat.completions.create(model="scores", messages=SAY_HELLO, max_tokens=1, logprobs=False))


@case
def logprobs_not_offered(client):
    return show(client.chat.completions.create(model="m", messages=SAY_HELLO, logprobs=True))


IMAGE = [{"role": "user", "content": [
    {"type": "text", "text": "what is this"},
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
]}]


@case
def image(client):
    return show(client.chat.completions.create(model="scores", messages=IMAGE, max_tokens=1))


@case
def image_not_taken(client):
    return show(client.chat.completions.create(model="m", messages=IMAGE))


# Request ids


@case
def request_id(client):
    raw = client.chat.completions.with_raw_response.create(
        model="m", messages=SAY_HELLO, max_tokens=1, extra_headers={"X-Request-ID": "mine:1"})
    answer = raw.parse()
    return {"header": raw.headers["x-request-id"], "_request_id": answer._request_id, "id": answer.id}


@case
def request_id_of_the_server(client):
    answer = client.chat.completions.create(
        model="m", messages=SAY_HELLO, max_tokens=1, extra_headers={"X-Request-ID": openai.Omit()})
    return {"a UUID": UUID.fullmatch(answer._request_id) is not None,
            "in the answer's id": answer.id == "chatcmpl-" + answer._request_id}


@case
def bad_request_id(client):
    try:
        return show(client.chat.completions.create(
            model="m", messages=SAY_HELLO, extra_headers={"X-Request-ID": "not an id"}))
    except openai.BadRequestError as e:
        return told(e) | {"request_id": UUID.fullmatch(e.request_id) is not None and "a UUID"}


# Keys


@case
def wrong_key(client):
    return show(client.with_options(api_key="another").chat.completions.create(model="m", messages=SAY_HELLO))


@case
def no_key(client):
    return show(client.chat.completions.create(
        model="m", messages=SAY_HELLO, extra_headers={"Authorization": openai.Omit()}))


@case
def wrong_key_for_the_models(client):
    return {"models": [show(model) for model in client.with_options(api_key="another").models.list()]}


# Refusals


@case
def unknown_model(client):
    return show(client.chat.completions.create(model="other", messages=SAY_HELLO))


@case
def unknown_model_retrieved(client):
    return show(client.models.retrieve("other"))


@case
def unknown_path(client):
    return show(client.responses.create(model="m", input="say hello"))


@case
def bad_parameter(client):
    return show(client.chat.completions.create(model="m", messages=SAY_HELLO, max_tokens=-1))


@case
def bad_parameter_of_a_stream(client):
    return collect(client.chat.completions.create(model="m", messages=SAY_HELLO, n=2, stream=True))


@case
def tools(client):
    function = {"name": "f", "parameters": {"type": "object", "properties": {}}}
    return show(client.chat.completions.create(
        model="m", messages=SAY_HELLO, tools=[{"type": "function", "function": function}]))


@case
def too_long(client):
    """A refusal of the engine, before a stream has begun."""
    return collect(client.completions.create(model="m", prompt="be too long", stream=True))


@case
def engine_fails(client):
    return show(client.completions.create(model="m", prompt="break off"))


# Streams that break


@case
def error_in_a_stream(client):
    return until_it_breaks(client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": "break off"}], stream=True))


@case
def stream_without_an_end(client):
    """The client raises nothing: only the finish_reason, which never comes, tells."""
    return until_it_breaks(client.completions.create(model="m", prompt="end without a reason", stream=True))


def until_it_breaks(stream):
    text, finish = "", None
    try:
        for chunk in stream:
            choice = chunk.choices[0]
            text += (choice.delta.content if hasattr(choice, "delta") else choice.text) or ""
            finish = choice.finish_reason
    except openai.APIError as e:
        return {"text": text, "finish_reason": finish} | told(e)
    return {"text": text, "finish_reason": finish, "raised": None}


# Lanes. A lane is free a moment after its client has left, or has the answer;
# what must find one comes again.


def patient(client):
    return client.with_options(max_retries=10)


def next_answer(client):
    return patient(client).completions.create(model="m", prompt="say hello").choices[0].text


@case
def client_gives_up(client):
    try:
        shown = show(client.with_options(timeout=0.5).completions.create(model="m", prompt="take an hour"))
    except openai.APITimeoutError as e:
        shown = told(e)
    return shown | {"next": next_answer(client)}


@case
def two_at_once(client):
    """Neither stream is read before both are open."""

    async def one(client, barrier, prompt):
        stream = await patient(client).chat.completions.create(
            model="m", messages=[{"role": "user", "content": prompt}], stream=True,
            extra_headers={"X-Request-ID": prompt.replace(" ", "-")})
        await barrier.wait()
        return merge([show(chunk) async for chunk in stream])

    async def both():
        transport = openai.DefaultAsyncHttpxClient(trust_env=False)
        barrier = asyncio.Barrier(2)
        async with AsyncOpenAI(**options("two_at_once"), http_client=transport) as client:
            return await asyncio.gather(*(one(client, barrier, p) for p in ("count up", "count down")))

    return {"streams": asyncio.run(both())}


@case
def busy(client):
    """Two streams hold both lanes. A third request is refused, and served when
    they are closed and it comes again."""
    held = [patient(client).completions.create(model="m", prompt="hold on", stream=True) for _ in range(2)]
    texts = [next(stream).choices[0].text for stream in held]
    try:
        shown = show(client.chat.completions.create(model="m", messages=SAY_HELLO))
    except openai.RateLimitError as e:
        shown = told(e) | {"retry-after": e.response.headers["retry-after"]}
    for stream in held:
        stream.close()
    return {"held": texts} | shown | {"again": next_answer(client)}


@case
def worker_dies(client):
    shown = until_it_breaks(patient(client).completions.create(model="m", prompt="die", stream=True))
    return shown | {"next": next_answer(client)}


print(json.dumps({"openai": openai.__version__}))
for name in sys.argv[2:] or CASES:
    with connect(name) as client:
        try:
            shown = CASES[name](client)
        except openai.APIError as e:
            shown = told(e)
    print(json.dumps({"case": name} | shown, ensure_ascii=False), flush=True)
