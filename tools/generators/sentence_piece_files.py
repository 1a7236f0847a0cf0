"""Reads SentencePiece's models, and the map of characters ("precompiled_charsmap") of its usual rule, for the comparison of tokenizers."""

import io
import struct

import sentencepiece


def charsmap():
    """The map of the rule nmt_nfkc, out of a model that is trained for it."""
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(["a b"]), model_writer=out, vocab_size=8, hard_vocab_limit=False,
                                             minloglevel=2, normalization_rule_name="nmt_nfkc")
    return read_model(out.getvalue())[2][2]


def varint(data, at):
    value, shift = 0, 0
    while True:
        byte = data[at]
        value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
        if byte < 128:
            return value, at


def fields(data):
    """Number and value of the fields of a message: an integer, a float or bytes."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind == 5:
            (value,), at = struct.unpack_from("<f", data, at), at + 4
        elif kind == 1:
            (value,), at = struct.unpack_from("<d", data, at), at + 8
        else:
            size, at = varint(data, at)
            value, at = bytes(data[at : at + size]), at + size
        yield key >> 3, value


def read_model(data):
    """Pieces as (text, score, type), and the fields of the trainer and the normalizer by number."""
    pieces, trainer, normalizer = [], {}, {}
    for number, value in fields(data):
        if number == 1:
            piece = dict(fields(value))
            pieces.append((piece.get(1, b"").decode(), piece.get(2, 0.0), piece.get(3, 1)))
        elif number == 2:
            trainer.update(fields(value))
        elif number == 3:
            normalizer.update(fields(value))
    return pieces, trainer, normalizer
