"""Lengths of prompts by a bundle's own chat template and tokenizer.

Run as: python -I prompts.py DIRECTORY, with a JSON list of message lists on
standard input; prints a JSON list that has, for each, the number of tokens, or
the words with which the template refuses it.
"""

import json
import sys

from jinja2 import TemplateError
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
if not tokenizer.chat_template:
    sys.exit("the bundle has no chat template")


def length(messages):
    try:
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    except TemplateError as refusal:
        return str(refusal)
    return len(tokenizer.encode(text, add_special_tokens=False))


json.dump([length(messages) for messages in json.load(sys.stdin)], sys.stdout)
