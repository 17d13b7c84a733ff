"""Decoders by name: their options are settings, their codebooks fit them."""

import pytest
import torch

from aircomp.decoders.settings import NnlsSettings
from aircomp.errors import ConfigError
from aircomp.schemes.digital.decoders import (
    DecoderChoice,
    counting_schemes,
    decoder_and_codebook,
    decoder_names,
    make_decoder,
)

BOOK = torch.eye(8)


@pytest.mark.parametrize("name", list(counting_schemes()))
def test_every_option_is_a_setting_with_a_meaning_and_a_default(name):
    options = counting_schemes()[name].settings_class.model_fields.get("decoder")
    for field in () if options is None else options.annotation.model_fields.values():
        assert field.description
        assert not field.is_required()


def test_options_reach_the_decoder_by_name_and_by_settings():
    assert make_decoder("nnls", BOOK, num_steps=7).settings.num_steps == 7  # pyright: ignore[reportAttributeAccessIssue]
    choice = DecoderChoice(decoder="nnls", settings=NnlsSettings(num_steps=7))
    assert decoder_and_codebook(choice)[0].settings.num_steps == 7  # pyright: ignore[reportAttributeAccessIssue]


def test_an_option_out_of_range_is_refused():
    with pytest.raises(ConfigError, match=r"agreement = 1\.0: expected 0 to less than 1"):
        make_decoder("gamp", BOOK, agreement=1.0)


@pytest.mark.parametrize("name", decoder_names())
def test_every_decoder_comes_with_the_codebook_it_was_designed_for(name):
    decoder, codebook, kind = decoder_and_codebook(DecoderChoice(decoder=name))
    assert kind == (counting_schemes()[name].designed_codebook if name != "genie" else "two-bases")
    assert codebook.shape == (128, 64)
    if name != "genie":
        assert torch.equal(decoder.codebook, codebook)  # pyright: ignore[reportAttributeAccessIssue]


def test_the_power_that_devices_transmit_leaves_a_receiver_one_noise_variance():
    received = torch.randn(20, 8, generator=torch.Generator().manual_seed(0)) * torch.arange(1.0, 21)[:, None]
    noise = {
        reference: make_decoder("gamp", BOOK, snr_reference=reference).decode(received, torch.ones(8)).noise_var
        for reference in ("round", "transmit", "slot")
    }
    assert torch.equal(noise["round"], noise["transmit"])
    assert not torch.equal(noise["round"], noise["slot"])
