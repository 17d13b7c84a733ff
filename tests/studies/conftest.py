"""A comparison that takes seconds."""

import pytest

SMALL = """
title = "White noise"
question = "Which scheme carries an update best?"
axis = "snr_db"
values = [0.0, 20.0]
schemes = ["own-update", "perfect", "digital", "baa", "obda"]

[vary]
"channel.snr_db" = [0.0, 20.0]

[settings]
"channel.snr_reference" = "transmit"
"""


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    """Return a challenge's file."""
    path = tmp_path_factory.mktemp("challenge") / "small.toml"
    path.write_text(SMALL)
    return str(path)
