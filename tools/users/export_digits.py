#!/usr/bin/env python3
"""Writes the 1,797 handwritten digits that come inside scikit-learn to a file that attentive-vit-digits reads.

    python tools/users/export_digits.py digits.safetensors

Needs scikit-learn and safetensors. images: uint8 (1797, 8, 8) with 0 (paper) to 16 (ink); labels: uint8 (1797).
Source of the data: E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits", UCI repository, 1998.
"""

import sys

from safetensors.numpy import save_file
from sklearn.datasets import load_digits


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    digits = load_digits()
    save_file({"images": digits.images.astype("uint8"), "labels": digits.target.astype("uint8")}, sys.argv[1])
    print(f"{sys.argv[1]}: {len(digits.images)} images of {digits.images.shape[1]} x {digits.images.shape[2]}")


if __name__ == "__main__":
    main()
