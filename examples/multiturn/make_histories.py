"""Writes histories/prompts.jsonl: what the family's reference is asked.

    python3 make_histories.py profile_export_raw.jsonl

The histories are put together from conversations.jsonl and the replies in the export
of a run of this example, one for each turn that depends on an earlier one. The form
is that of a family's prompts, so the program that makes its references answers them.
"""

import json
import sys
from pathlib import Path

here = Path(__file__).parent


def reply(record):
    """The text of a recorded answer, streamed or not."""
    text = ""
    for response in record["responses"]:
        bodies = [p["value"] for p in response.get("packets", ()) if p["name"] == "data"] or [response.get("text", "")]
        for body in bodies:
            if body.startswith("{"):
                for choice in json.loads(body).get("choices", ()):
                    text += (choice.get("delta") or choice.get("message") or {}).get("content") or ""
    return text


def main():
    replies = {}
    for line in Path(sys.argv[1]).read_text("utf-8").splitlines():
        record = json.loads(line)
        replies[record["metadata"]["conversation_id"], record["metadata"]["turn_index"]] = reply(record)
    lines = []
    for line in (here / "conversations.jsonl").read_text("utf-8").splitlines():
        conversation = json.loads(line)
        messages, turn = [], 0
        for t in conversation["turns"]:
            if t["role"] == "assistant":
                messages.append({"role": "assistant", "content": replies.get((conversation["id"], turn - 1))})
                continue
            messages.append({"role": t["role"], "content": t["text"]})
            if t["role"] != "user":
                continue
            if t.get("depends_on") and all(m["content"] for m in messages):
                lines.append({"id": f"{conversation['id']}/{turn}", "task": "chat", "messages": list(messages), "max_tokens": t["max_tokens"]})
            turn += 1
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    (here / "histories" / "prompts.jsonl").write_text(text, "utf-8", newline="\n")


main()
