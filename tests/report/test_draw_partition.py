import sys

import pytest
import torch

from aircomp.data.partition import Partition, split
from aircomp.data.settings import PartitionSettings
from aircomp.errors import ConfigError
from aircomp.report.partition import draw_partition

DIGITS = [str(digit) for digit in range(10)]


@pytest.fixture
def labels() -> torch.Tensor:
    return torch.arange(650) % 10


@pytest.fixture
def partition(labels, rng) -> Partition:
    return split(labels, 12, PartitionSettings(), rng=rng)


def test_a_png_is_written_where_asked(partition, labels, tmp_path):
    path = tmp_path / "new" / "holders.png"
    assert draw_partition(partition, labels, DIGITS, path) == path
    assert path.read_bytes().startswith(b"\x89PNG")
    assert [p.name for p in path.parent.iterdir()] == ["holders.png"]


def test_an_svg_is_written_where_asked(partition, labels, tmp_path):
    path = draw_partition(partition, labels, DIGITS, tmp_path / "holders.svg")
    assert "<svg" in path.read_text()


@pytest.mark.seconds
def test_a_thousand_devices_of_a_hundred_named_classes_fit(rng, tmp_path):
    labels = torch.arange(20_000) % 100
    partition = split(labels, 1000, PartitionSettings(), rng=rng)
    path = draw_partition(partition, labels, [f"class {c}" for c in range(100)], tmp_path / "many.png")
    width, height = (int.from_bytes(path.read_bytes()[at : at + 4], "big") for at in (16, 20))  # the PNG header
    assert width < 2500
    assert 1000 < height < 2500  # at least a pixel a device, and still a page


def test_one_device_of_one_class_can_be_drawn(rng, tmp_path):
    labels = torch.zeros(10, dtype=torch.long)
    partition = split(labels, 1, PartitionSettings(kind="iid"), rng=rng)
    assert draw_partition(partition, labels, ["only"], tmp_path / "one.png").is_file()


def test_another_format_is_refused(partition, labels, tmp_path):
    with pytest.raises(ConfigError, match=r"cannot draw holders\.bmp"):
        draw_partition(partition, labels, DIGITS, tmp_path / "holders.bmp")


def test_drawing_does_not_import_pyplot(partition, labels, tmp_path):
    before = "matplotlib.pyplot" in sys.modules
    draw_partition(partition, labels, DIGITS, tmp_path / "holders.png")
    assert ("matplotlib.pyplot" in sys.modules) == before
