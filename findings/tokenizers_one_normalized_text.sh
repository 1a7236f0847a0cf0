#!/bin/bash
# tokenizers 0.23.3: of two added tokens that normalize to one text, which one a text becomes changes from one
# tokenizer object to the next, made of the same tokenizer.json: a tokenizer trained with one and served with the
# other encodes the same text to other ids. (The order of a hash map decides, with a new seed for each object.)
#
# Seen with Python 3.11: ids [2, 3] over 40 loads of one file.
# Status 0: the behaviour is as described. 1: it has changed.
set -e
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check tokenizers==0.23.3
"$folder/venv/bin/python" - <<'P'
import json, sys, tokenizers
token = dict(single_word=False, lstrip=False, rstrip=False, normalized=True, special=False)
text = json.dumps({"normalizer": {"type": "Lowercase"},
                   "model": {"type": "WordLevel", "vocab": {"u": 0, "a": 1}, "unk_token": "u"},
                   "added_tokens": [dict(token, id=2, content="TAG"), dict(token, id=3, content="Tag")]})
ids = sorted({tokenizers.Tokenizer.from_str(text).encode("tag").ids[0] for _ in range(40)})
print("tokenizers", tokenizers.__version__, "ids of \"tag\" over 40 loads of one file:", ids)
sys.exit(ids != [2, 3])
P
