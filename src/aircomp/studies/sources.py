"""What a scheme of the user's own is made of: its file, and all of the user's files that it imports, however far.

Imports are read from the sources, those inside of functions, too, and nothing is imported for it. What belongs to Python, to
installed packages or to this one is left out. A module whose name is put together while the program runs is not seen, nor
is a file that is no module.
"""

import ast
import hashlib
import importlib.util
import inspect
import sys
import sysconfig
import uuid
from collections.abc import Iterator
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

import aircomp
from aircomp.errors import ConfigError

_SEEN: dict[type, dict[str, str]] = {}
"""Of every class that was asked for: the hashes of its files then, by module."""
_IMPORTED: dict[str, tuple[ModuleSpec | None, str]] = {}
"""Of every module that was imported: what a reload replaces, and the hash of its file when it was first asked for."""


def source_hash(scheme: type) -> str:
    """Return a hash of the files that a class is made of; a class without a file has a new one in every process.

    Raises:
        ConfigError: If a file has changed since it was first hashed here: what was imported is still the old one.
    """
    files = own_files(scheme)
    if not files:
        return _SEEN.setdefault(scheme, {"": uuid.uuid4().hex})[""]
    found = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}
    seen = _SEEN.setdefault(scheme, found)
    for name, path in files.items():
        spec = getattr(sys.modules.get(name), "__spec__", None)
        before, then = _IMPORTED.get(name, (None, ""))
        if seen.get(name) != found[name] or (before is spec is not None and then != found[name]):
            raise ConfigError(f"{path} has changed since it was imported; start Python anew, or use importlib.reload")
        if spec is not None:
            _IMPORTED[name] = (spec, found[name])
    return hashlib.sha256(repr(sorted(found.items())).encode()).hexdigest()[:16]


def own_files(scheme: type) -> dict[str, Path]:
    """Return the files that a class is made of, by module; nothing if it has none."""
    try:
        first = Path(inspect.getsourcefile(scheme) or "")
    except (TypeError, OSError):
        return {}
    if not first.is_file():
        return {}
    main = scheme.__module__
    found: dict[str, Path] = {main: first}
    packages: dict[str, list[str]] = {}
    waiting, seen = [*_above(main), *_imported(main, first)], {main, "aircomp"}
    while waiting:
        name = waiting.pop(0)
        above = name.rpartition(".")[0]
        if name in seen or (above and above not in packages):
            continue
        seen.add(name)
        spec = _spec(name, packages.get(above))
        places = [] if spec is None else [spec.origin] if spec.has_location else spec.submodule_search_locations or []
        theirs = name.partition(".")[0] != main.partition(".")[0] and any(map(_is_installed, places))
        if spec is None or not places or theirs:
            continue
        if spec.submodule_search_locations is not None:
            packages[name] = list(spec.submodule_search_locations)
        if spec.origin and spec.has_location:
            found[name] = Path(spec.origin)
            waiting += _imported(name, found[name])
    return found


def _above(name: str) -> list[str]:
    """Return the packages that a module lies in, the outermost first."""
    parts = name.split(".")
    return [".".join(parts[:i]) for i in range(1, len(parts))]


def _imported(module: str, path: Path) -> Iterator[str]:
    """Yield what a module may import, each after the packages that it lies in; some are no modules but what these hold."""
    if path.suffix != ".py":
        return
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return  # whoever imports it is told
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(tree):
        for name in _named(node, package):
            yield from (*_above(name), name)


def _named(node: ast.AST, package: str) -> list[str]:
    match node:
        case ast.Import():
            return [alias.name for alias in node.names]
        case ast.ImportFrom():
            around = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*around, *([node.module] if node.module else [])])
            return [base, *(f"{base}.{alias.name}" for alias in node.names)]
        case ast.Call(
            func=ast.Attribute(attr="import_module") | ast.Name(id="import_module" | "__import__"),
            args=[ast.Constant(value=str(name)), *_],
        ):
            return [name]
    return []


def _spec(name: str, inside: list[str] | None) -> ModuleSpec | None:
    """Find a module without importing it, nor the package that it lies in."""
    if name in sys.modules:
        return getattr(sys.modules[name], "__spec__", None)
    try:
        return importlib.util.find_spec(name) if inside is None else PathFinder.find_spec(name, inside)
    except (ImportError, ValueError):  # no module of that name
        return None


def _is_installed(path: str | None) -> bool:
    """Tell whether a file belongs to Python, to an installed package or to this one."""
    places = [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), str(Path(aircomp.__file__).parent)]
    places += filter(_holds_packages, sys.path)
    return any(Path(path or "").resolve().is_relative_to(Path(place).resolve()) for place in places)


@cache
def _holds_packages(directory: str) -> bool:
    return any(Path(directory).glob("*.dist-info"))
