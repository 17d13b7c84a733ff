"""One name, one meaning: every field is defined once."""

from aircomp.measure.fields import FIELDS, columns_of


def test_headings_tell_fields_apart():
    labels = [field.label for field in FIELDS.values()]
    assert len(set(labels)) == len(labels)
    assert columns_of(["snr_db", "own_field"]) == {"snr_db": "SNR (dB)", "own_field": "own field"}
