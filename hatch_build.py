"""Build hook: compiles the engine into the wheel where there is a C compiler; without one the wheel is pure Python."""

from __future__ import annotations

import runpy
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompiledEngine(BuildHookInterface[Any]):
    """The library links to no CPython, so one wheel serves every version on its platform."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the library to a standard wheel; an editable install compiles when it first simulates."""
        if version == "editable":
            return
        library = runpy.run_path(str(Path(self.root) / "simulator/engine/library.py"))
        self._folder = tempfile.TemporaryDirectory()
        try:
            made = library["compile_library"](Path(self._folder.name) / library["file_name"]())
        except library["NoLibraryError"]:
            return
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"
        build_data["pure_python"] = False
        build_data["force_include"][str(made)] = f"simulator/engine/{made.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was compiled."""
        if version != "editable":
            self._folder.cleanup()
