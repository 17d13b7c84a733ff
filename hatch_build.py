"""Compile the kernels when the package is built or installed; without a compiler it is built without them."""

import importlib.util
import os
import platform
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import sys_tags


class KernelsHook(BuildHookInterface):
    """Put the library of the kernels beside their source, where an editable install finds it and a wheel takes it from."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and name the platform in the wheel's tag."""
        root = Path(self.root)
        kernels = _builder(root)
        library = root / kernels.LIBRARY
        library.unlink(missing_ok=True)  # no wheel takes that of another source or machine
        try:
            kernels.build(root)
        except (kernels.NotBuilt, OSError) as why:
            self.app.display_warning(f"the kernels are not compiled, so decoding takes longer: {why}")
            return
        build_data["artifacts"].append(kernels.LIBRARY.as_posix())
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{_platform()}"


def _platform() -> str:
    """Return the platform that the compiler made the kernels for; auditwheel says which other Linux they fit."""
    oldest = os.environ.get("MACOSX_DEPLOYMENT_TARGET")
    if sys.platform == "darwin" and oldest:
        return f"macosx_{oldest.replace('.', '_')}_{platform.machine()}"
    platforms = (tag.platform for tag in sys_tags())
    return next(name for name in platforms if "manylinux" not in name and "musllinux" not in name)


def _builder(root: Path) -> ModuleType:
    path = root / "tools" / "build_kernels.py"
    spec = importlib.util.spec_from_file_location("build_kernels", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
