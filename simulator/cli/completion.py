"""Print a script that completes commands and options in a shell.

eval "$(shardscope completion bash)"            # in ~/.bashrc; zsh likewise in ~/.zshrc
shardscope completion fish > ~/.config/fish/completions/shardscope.fish
"""

from __future__ import annotations

import argparse

from simulator.one_line_parser import option

SHELLS = ("bash", "zsh", "fish")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    option(parser, "shell", "which shell", choices=SHELLS)


def run(args: argparse.Namespace) -> None:
    from simulator import cli

    options = {name: cli.options_of(name) for name in cli.commands()}
    print(_fish(options) if args.shell == "fish" else _bash(options, args.shell))


def _bash(options: dict[str, list[str]], shell: str) -> str:
    """A function for bash; zsh reads it through bashcompinit."""
    cases = "\n".join(f"    {name}) words='{' '.join(words)}' ;;" for name, words in options.items())
    zsh = "autoload -U +X compinit bashcompinit && compinit && bashcompinit\n" if shell == "zsh" else ""
    return f"""{zsh}_shardscope() {{
  local words current="${{COMP_WORDS[COMP_CWORD]}}"
  if [ "$COMP_CWORD" -eq 1 ]; then
    words='{" ".join(options)} --help --version'
  else
    case "${{COMP_WORDS[1]}}" in
{cases}
    esac
    [ "${{current#-}}" = "$current" ] && words=''
  fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _shardscope shardscope"""


def _fish(options: dict[str, list[str]]) -> str:
    lines = [f"complete -c shardscope -n __fish_use_subcommand -f -a '{' '.join(options)}'"]
    for name, words in options.items():
        lines += [
            f"complete -c shardscope -n '__fish_seen_subcommand_from {name}' -l {word.removeprefix('--')}"
            for word in words
        ]
    return "\n".join(lines)
