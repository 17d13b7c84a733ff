import pytest
import torch

from aircomp.decoders.base import BaseDecoder, Decoded, Decoder, Observation


class Listener(BaseDecoder):
    """Keeps what it is given and hears nobody."""

    def infer(self, seen: Observation) -> Decoded:
        self.seen, self.learns = seen, torch.is_grad_enabled()
        nothing = torch.zeros(len(seen.received), len(seen.popularity))
        return Decoded(nothing.long(), nothing, 0.0, nothing[:, 0])


def test_a_decoder_writes_one_method_and_sees_all_that_is_known():
    listener, received, popularity = Listener(), torch.randn(3, 4), torch.ones(8)
    known = {
        "num_active": 5.0,
        "noise_var": torch.ones(3),
        "bs_indices": torch.tensor([1, 2, 3]),
        "slot_layers": torch.tensor([0, 0, 1]),
        "quant_codebook": torch.randn(8, 2),
    }
    listener.decode(received, popularity, **known)
    assert listener.seen == Observation(received, popularity, **known)
    assert not listener.learns


def test_what_is_not_known_is_none():
    listener = Listener()
    listener.decode(torch.randn(3, 4), torch.ones(8))
    seen = listener.seen
    assert (seen.num_active, seen.noise_var, seen.bs_indices, seen.slot_layers, seen.quant_codebook) == (None,) * 5


def test_a_keyword_that_no_decoder_has_is_refused():
    with pytest.raises(TypeError, match="num_activ"):
        Listener().decode(torch.randn(3, 4), torch.ones(8), num_activ=5)  # pyright: ignore[reportCallIssue]


def test_any_object_with_the_method_is_a_decoder():
    class Own:
        def decode(self, received, popularity, *, num_active=None, **side_information):
            raise NotImplementedError

    assert isinstance(Own(), Decoder)
    assert not isinstance(object(), Decoder)
