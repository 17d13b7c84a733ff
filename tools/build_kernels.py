"""Compile the package's kernels into the one library that a wheel or an editable install carries.

    python tools/build_kernels.py            # beside their source, for a clone that is not installed

Every source is compiled once for each class of processors that this compiler knows, and `choose.c` tells at load which of
them this processor is. The library holds a hash of its sources, so that one of older sources is not used, and ends with a
hash of itself, so that a damaged one is not.
"""

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

FOLDER = Path("src", "aircomp", "decoders", "kernels")
LIBRARY = FOLDER / "kernels.library"
CHOOSE = "choose.c"
COMPILERS = ("cc", "gcc", "clang")
FLAGS = ("-O3", "-std=gnu11", "-fPIC", "-fno-math-errno", "-fno-trapping-math", "-Wno-psabi")
X86 = {"avx512": "-march=x86-64-v4", "avx2": "-march=x86-64-v3"}
"""Classes of processors beyond the baseline, the best first, and what the compiler calls them."""
PATIENCE = 300  # seconds; compiling takes some five


class NotBuilt(Exception):
    """Why there is no library."""


def build(root: Path, library: Path | None = None, extra: Sequence[str] = ()) -> list[str]:
    """Compile the kernels and return the classes of processors that the library has code for.

    Args:
        root: Of the repository.
        library: Where to write; by default beside the source.
        extra: Flags of the compiler.

    Raises:
        NotBuilt: If there is no compiler, or it fails.
    """
    library = library or root / LIBRARY
    compiler, folder = _compiler(), root / FOLDER
    sources = sorted(path for path in folder.glob("*.c") if path.name != CHOOSE)
    parts = sorted(path for path in folder.glob("*.[ch]") if path.name != CHOOSE)
    key = hashlib.sha256(b"".join(path.read_bytes() for path in parts)).hexdigest()
    with tempfile.TemporaryDirectory(dir=library.parent) as scratch:
        made, objects, built = Path(scratch) / library.name, [], []
        for variant, flags in _variants().items():
            targets = [Path(scratch) / f"{source.stem}-{variant}.o" for source in sources]
            try:
                for source, target in zip(sources, targets, strict=True):
                    _run([*compiler, *FLAGS, *flags, *extra, f"-DVARIANT={variant}", "-c", "-o", target, source])
            except NotBuilt:
                if variant == "baseline":
                    raise
                continue  # an older compiler knows fewer processors
            objects += targets
            built.append(variant)
        names = [f"-DHAS_{variant}" for variant in built] + [f'-DKEY="{key}"']
        choose = Path(scratch) / "choose.o"
        _run([*compiler, *FLAGS, *extra, *names, "-c", "-o", choose, folder / CHOOSE])
        _run([*compiler, *extra, "-shared", "-o", made, *objects, choose])
        content = made.read_bytes()
        made.write_bytes(content + hashlib.sha256(content).digest())  # a cut library is told before it is loaded
        made.replace(library)  # processes that use the old one keep it
    return built


def _variants() -> dict[str, tuple[str, ...]]:
    on_x86 = platform.machine().lower() in ("x86_64", "amd64")
    return ({name: (flag,) for name, flag in X86.items()} if on_x86 else {}) | {"baseline": ()}


def _compiler() -> list[str]:
    if os.name != "posix":
        raise NotBuilt(f"kernels are compiled on Linux and macOS, not on {platform.system()}")
    chosen = os.environ.get("CC")
    if chosen:
        try:
            return shlex.split(chosen)
        except ValueError as error:
            raise NotBuilt(f"CC is {chosen!r}, which is no command: {error}") from None
    found = next(filter(None, map(shutil.which, COMPILERS)), None)
    if found is None:
        raise NotBuilt(f"there is no C compiler ({', '.join(COMPILERS)})")
    return [found]


def _run(command: Sequence[str | Path]) -> None:
    try:
        subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.CalledProcessError as error:
        said = error.stderr.strip().splitlines()
        raise NotBuilt(f"{command[0]} failed: {said[0] if said else f'exit {error.returncode}'}") from None
    except (OSError, subprocess.SubprocessError) as error:
        raise NotBuilt(f"{command[0]} failed: {error}") from None


if __name__ == "__main__":
    try:
        print(", ".join(build(Path(__file__).resolve().parents[1])))
    except NotBuilt as why:
        sys.exit(str(why))
