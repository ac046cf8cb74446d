"""An argument parser whose complaints are one line, and which takes no shortened options."""

from __future__ import annotations

import argparse
from typing import Any, NoReturn


class OneLineParser(argparse.ArgumentParser):
    """An ArgumentParser that ends with code 2 and one line, without its usage, on arguments it does not take."""

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **{**keywords, "allow_abbrev": False})

    def error(self, message: str) -> NoReturn:
        line = " ".join(message.split())
        self.exit(2, f"{self.prog}: {line}; {self.prog} --help shows how\n")
