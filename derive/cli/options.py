"""Options that several commands share, and the parsers of their values."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import click

from derive.errors import DomainError

__all__ = [
    "SEED",
    "check_figure",
    "law_options",
    "norm_option",
    "parse_depths",
    "parse_values",
    "plot_option",
    "stack_options",
    "stack_text",
]

norm_option = click.option(
    "--norm", "norm_name", default="layernorm", show_default=True, help="layernorm or rmsnorm."
)
SEED = click.IntRange(min=0)
plot_option = click.option(
    "--plot", type=click.Path(dir_okay=False, path_type=Path), help="Write a figure."
)
value_option = click.option(
    "--value",
    "values",
    multiple=True,
    metavar="NAME=NUMBER",
    help="Value of a scalar such as alpha; repeat for more.",
)
SIZES = ("width", "tokens", "heads", "hidden", "groups", "std", "seed")
STACK = (
    click.option("--width", default=64, show_default=True, help="Features d."),
    click.option("--tokens", default=4, show_default=True, help="Tokens n."),
    click.option("--heads", default=4, show_default=True, help="Attention heads."),
    click.option(
        "--hidden", type=click.IntRange(min=1), help="Hidden width f of the FFN; 4 d by default."
    ),
    click.option("--groups", default=1, show_default=True, help="Groups of a groupnorm."),
    value_option,
    click.option(
        "--std",
        type=click.FloatRange(min=0),
        default=1.0,
        show_default=True,
        help="Matrices are N(0, std^2 / fan-in).",
    ),
    click.option(
        "--seed", type=SEED, default=0, show_default=True, help="Seed of weights, input, cotangent."
    ),
    norm_option,
    click.option("--sublayer", default="ffn", show_default=True, help="As for show."),
)

LAW = (
    norm_option,
    click.option(
        "--sublayer",
        default="ffn:relu",
        show_default=True,
        help="Sublayers of the blocks in turn, comma-separated; of a layer, what A and F are.",
    ),
    click.option(
        "--init", default="lecun", show_default=True, help="Initialisation of the weights."
    ),
    click.option("--tokens", default=1, show_default=True, help="Tokens n."),
    click.option("--hidden", type=int, help="Hidden width f; 4 d by default."),
    click.option(
        "--correlation", default=0.0, show_default=True, help="Of two tokens of the input."
    ),
    click.option(
        "--gradient-correlation",
        default=0.0,
        show_default=True,
        help="Of the gradient at the output.",
    ),
    click.option(
        "--memory-correlation", default=0.0, show_default=True, help="Of the memory of a decoder."
    ),
    click.option(
        "--scores",
        default="uniform",
        show_default=True,
        help="Attention weights: uniform, or the softmax of gaussian scores.",
    ),
    click.option("--dropout", default=0.0, show_default=True, help="Rate of dropout, in training."),
    click.option(
        "--start", default=1.0, show_default=True, help="Mean square v_0 of the embeddings."
    ),
    value_option,
)


def stack_options(command: Any) -> Any:
    """Add the options that give a stack its sizes, weights and seed.

    The command gets them as one mapping, ``options``: the arguments of `derive.depth.placed_stack`
    by name.
    """

    @wraps(command)
    def call(**given: Any) -> Any:
        options = {name: given.pop(name) for name in SIZES}
        options |= {"norm": given.pop("norm_name"), "sublayer": given.pop("sublayer")}
        options["values"] = parse_values(given.pop("values"))
        return command(options=options, **given)

    for option in reversed(STACK):
        call = option(call)
    return call


def stack_text(options: Mapping[str, Any]) -> str:
    """Return what stands below a table: the sizes, the norm, the sublayer and the seed."""
    shown = ("width", "tokens", "norm", "sublayer", "seed")
    return ", ".join(f"{name} {options[name]}" for name in shown)


def parse_depths(text: str) -> list[int]:
    """Return the numbers of layers in ``6,12,24``."""
    try:
        depths = [int(part) for part in text.split(",")]
    except ValueError:
        raise DomainError(f"--layers: expected integers such as 6,12,24, got {text!r}") from None
    if min(depths) < 0:
        raise DomainError(f"--layers: expected integers >= 0, got {text!r}")
    return depths


def parse_values(pairs: Sequence[str]) -> dict[str, float]:
    """Return the numbers in ``alpha=2.2``."""
    found = {}
    for pair in pairs:
        name, _, number = (part.strip() for part in pair.partition("="))
        try:
            found[name] = float(number)
        except ValueError:
            raise DomainError(f"--value: expected NAME=NUMBER, got {pair!r}") from None
        if not name or not math.isfinite(found[name]):
            raise DomainError(f"--value: expected NAME=NUMBER, got {pair!r}")
    return found


def check_figure(path: Path, option: str = "--plot") -> None:
    """Refuse a figure that cannot be written, before anything is computed."""
    from derive.render.extras import load
    from derive.render.plots import FORMATS

    load("matplotlib", "plot")
    if path.suffix.lower().removeprefix(".") not in FORMATS:
        raise DomainError(
            f"{option}: expected a name that ends in {', '.join('.' + f for f in FORMATS)}, "
            f"got {str(path)!r}"
        )
    target = path if path.exists() else path.parent
    if not os.access(target, os.W_OK):
        raise DomainError(f"{option}: cannot write {str(path)!r}")


def law_options(command: Any) -> Any:
    """Add what a depth law is made of, besides depth and width."""
    for option in reversed(LAW):
        command = option(command)
    return command
