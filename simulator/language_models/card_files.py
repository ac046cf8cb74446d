"""Model cards by name, as people write it, or from a file: a card of ours, or a model's config.json."""

from __future__ import annotations

import re
from pathlib import Path

from simulator import file_gate
from simulator.errors import InputError, UnknownNameError
from simulator.files import Shipped, is_path, library, read_yaml
from simulator.language_models.huggingface_config import card_of_config, is_config
from simulator.language_models.model_card import ModelCard

CARDS = Shipped("model card (and no such file)", "simulator.language_models", "cards", ".yaml")
LONGEST_CONFIG = 2**20
"""Bytes of a config.json; profiles, which are JSON too, may be longer."""
NAMES = {
    "llama3.1-8b": "llama3-8b", "llama3.1-70b": "llama3-70b", "llama3.3-70b": "llama3-70b",
    "llama3.1-405b": "llama3-405b", "llama3.2-1b": "llama3-1b", "llama3.2-3b": "llama3-3b",
    "llama4-scout-17b-16e": "llama4-scout", "gpt2-small": "gpt2", "gpt2-124m": "gpt2", "gpt2-355m": "gpt2-medium",
    "gpt2-774m": "gpt2-large", "gpt2-1.5b": "gpt2-xl", "bloom": "bloom-176b", "bloom-7b": "bloom-7b1",
    "olmo2-1124-7b": "olmo2-7b", "olmo2-1124-13b": "olmo2-13b", "olmo2-0325-32b": "olmo2-32b", "gpt3": "gpt3-175b",
    "mixtral": "mixtral-8x7b", "mistral": "mistral-7b", "deepseek-v3-0324": "deepseek-v3", "deepseek-r1": "deepseek-v3",
    "deepseek-v2-236b": "deepseek-v2", "deepseek-v3-671b": "deepseek-v3", "deepseek-coder-v2": "deepseek-v2",
}  # fmt: skip
"""Other names of cards: what is as large, and is trained alike."""
_MAKERS = re.compile(r"^(meta|nvidia|google|openai)[-_ ]+")
_ENDINGS = re.compile(r"[-_ ](hf|base|instruct|it|pt|chat|v0\.[1-9]|v1\.[0-9])$")


def cards() -> tuple[str, ...]:
    """Names of the cards that ship, sorted."""
    return CARDS.names()


def read_card(source: str | Path) -> ModelCard:
    """The card in a YAML file or a model's config.json, or that of a name such as "meta-llama/Llama-3.1-8B".

    Raises UnknownNameError, InputError, OSError.
    """
    name = card_name(source)
    if name:
        return read_yaml(CARDS.file(name), ModelCard)
    if not _is_file(source):
        raise UnknownNameError.of(CARDS.what, _short(source), cards())
    path = Path(source)
    if path.suffix != ".json":
        return read_yaml(path, ModelCard)
    try:
        return card_of_config(file_gate.json_content(file_gate.read_text(path, LONGEST_CONFIG)), _model_name(path))
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def is_card(source: str | Path) -> bool:
    """Whether `source` is a card and no profile: a YAML file, a model's config.json, or the name of a card.

    Raises UnknownNameError for a name of neither.
    """
    if card_name(source):
        return True
    if not _is_file(source):
        if str(source) in library():
            return False
        raise UnknownNameError.of("profile or model card (and no such file)", _short(source), (*library(), *cards()))
    path = Path(source)
    if path.suffix == ".json":
        return path.is_file() and path.stat().st_size <= LONGEST_CONFIG and is_config(_text(path))
    return path.suffix in (".yaml", ".yml")


def card_name(source: str | Path) -> str | None:
    """The card that ships under what people call it; case, separators, maker and tuning do not count."""
    if isinstance(source, Path) or Path(source).is_file():
        return None
    known = {_plain(name): name for name in cards()} | {_plain(name): card for name, card in NAMES.items()}
    return known.get(_plain(source))


def _plain(name: str) -> str:
    """What counts of a name: "llama3.18b" of "meta-llama/Llama-3.1-8B-Instruct"."""
    name = _MAKERS.sub("", name.rpartition("/")[2].lower())
    while (shorter := _ENDINGS.sub("", name)) != name:
        name = shorter
    return re.sub(r"[-_ ]", "", name)


def _short(source: str | Path) -> str:
    """A name without its maker, as cards are called, so that the nearest of them is found."""
    return str(source).rpartition("/")[2].lower() if str(source).count("/") == 1 else str(source)


def _is_file(source: str | Path) -> bool:
    """Whether `source` is a path, and no name with a dot or a slash such as "org/model-1.5b"."""
    if isinstance(source, Path) or Path(source).is_file():
        return True
    return is_path(source) and Path(source).suffix in (".yaml", ".yml", ".json")


def _text(path: Path) -> str:
    try:
        return file_gate.read_text(path, LONGEST_CONFIG)
    except InputError:
        return ""


def _model_name(path: Path) -> str:
    """What a config.json is called: by its folder, as checkpoints have it, else by its own name."""
    named = path.stem if path.stem != "config" else path.resolve().parent.name
    return named or "model"
