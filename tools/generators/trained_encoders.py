"""Runs the trained models of the wheel `sceptr` and writes what each of their layers computes, for the C++ tests.

    python tools/generators/trained_encoders.py OUT [VARIANT...]

SCEPTR is a family of encoders of T-cell receptors: sixteen sets of weights for torch.nn.TransformerEncoder, which the wheel
holds as files of torch.save. OUT/<variant>.safetensors has the embedded receptors, the padding and the output of every
layer and of the predictor of hidden residues; its metadata say where the weights are and which names lead to the encoder.
"""

import importlib.resources
import json
import pathlib
import sys

import pandas
import sceptr._model_saves
import torch
from libtcrlm import schema
from libtcrlm.tokeniser.token_indices import DefaultTokenIndex

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "users"))
from attentive_case import options_of, save_safetensors  # noqa: E402

# Receptors from the literature, for influenza's GILGFVFTL, cytomegalovirus's NLVPMVATV and Epstein-Barr's
# GLCTLVAML; one has both chains, one lacks a chain, so the texts differ in length.
RECEPTORS = pandas.DataFrame(
    [
        ("TRAV27*01", "CAGAGSQGNLIF", "TRBV19*01", "CASSIRSSYEQYF"),
        ("TRAV24*01", "CARNTGNQFYF", "TRBV6-5*01", "CASSPVTGGIYGYTF"),
        ("TRAV5*01", "CAEDNNARLMF", "TRBV20-1*01", "CSARDGTGNGYTF"),
        (None, None, "TRBV19*01", "CASSIRSAYEQYF"),
        ("TRAV27*01", "CAGAGSQGNLIF", None, None),
    ],
    columns=["TRAV", "CDR3A", "TRBV", "CDR3B"],
)


def tokens_of(model):
    """One row of indices per token; receptors without the chain that the variant needs are left out."""
    rows = []
    for receptor in schema.generate_tcr_series(RECEPTORS.assign(TRAJ=None, TRBJ=None)):
        try:
            rows.append(model._tokeniser.tokenise(receptor))
        except RuntimeError:
            continue
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=DefaultTokenIndex.NULL)


def encoder_in(bert):
    """The nn.TransformerEncoder of a model, and the prefix of its names."""
    (found,) = [(part, name) for name, part in bert.named_modules() if isinstance(part, torch.nn.TransformerEncoder)]
    return found


def computed(bert, tokens):
    encoder, _ = encoder_in(bert)
    padding = bert._get_padding_mask(tokens)
    x = bert._embed(tokens)
    numbers = {"input.embeddings": x, "input.padding": padding}
    projection = getattr(bert._self_attention_stack, "_initial_projector", None)
    if projection is not None:
        x = projection(x)
    for index, layer in enumerate(encoder.layers):
        x = layer(x, src_key_padding_mask=padding)
        numbers[f"expected.{index}"] = x
    numbers["expected.residues"] = bert._mlm_token_prediction_projector(x)
    whole = bert._self_attention_stack(numbers["input.embeddings"], padding)
    torch.testing.assert_close(whole[~padding], x[~padding], rtol=0, atol=1e-5 * x.abs().max().item())
    return numbers


def main():
    out, chosen = pathlib.Path(sys.argv[1]), sys.argv[2:]
    torch.set_num_threads(1)
    saved = importlib.resources.files(sceptr._model_saves)
    for weights in sorted(saved.glob("*/state_dict.pt")):
        variant = weights.parent.name
        if chosen and variant not in chosen:
            continue
        model = sceptr._model_saves.load_variant(variant)
        with torch.no_grad():
            numbers = computed(model._bert, tokens_of(model))
        encoder, name = encoder_in(model._bert)
        metadata = {"weights": str(weights), "encoder": f"{name}.", "num_layers": str(len(encoder.layers))}
        metadata["layer"] = json.dumps(options_of(encoder.layers[0]))
        save_safetensors(out / f"{variant}.safetensors", numbers, metadata)


if __name__ == "__main__":
    main()
