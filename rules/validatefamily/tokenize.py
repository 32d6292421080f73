"""Token ids by the exported tokenizer, loaded as AIPerf loads it.

Run as: python -I tokenize.py DIRECTORY, with a JSON list of texts on standard
input; prints a JSON list of lists of ids, without special tokens around a text.
"""

import json
import sys

from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
json.dump([tokenizer.encode(text, add_special_tokens=False) for text in json.load(sys.stdin)], sys.stdout)
