"""transformers with its forward pass compiled."""

from peers.transformers_model import Transformers

PEER = Transformers("transformers, compiled", compiled=True)
