"""The trained communication layer: codebook and decoder as one object, its export."""

from aircomp.layer.communication import CommunicationLayer
from aircomp.layer.zoo import layer_names, pick_layer

__all__ = ["CommunicationLayer", "layer_names", "pick_layer"]
