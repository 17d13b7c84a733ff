"""The trained communication layer: codebook and decoder as one object, its export."""

from aircomp.layer.communication import CommunicationLayer, has_bundled_layer

__all__ = ["CommunicationLayer", "has_bundled_layer"]
