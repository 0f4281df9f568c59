r"""Blocks by name or by equation: a placement, a norm and a sublayer make an expression."""

from __future__ import annotations

import re
from typing import Any

import sympy as sp

from derive import symbols
from derive.blocks.activations import ACTIVATIONS
from derive.blocks.attention import Attention
from derive.blocks.norms import _Norm, norm
from derive.blocks.parse import parse_block
from derive.blocks.placements import placement
from derive.blocks.sublayers import FFN, GatedFFN, Sublayer
from derive.calculus.atoms import State
from derive.calculus.let import Let
from derive.calculus.maps import Map
from derive.errors import DomainError, UnknownNameError

__all__ = ["SUBLAYERS", "block", "layer", "state", "sublayer"]

SUBLAYERS = ("abstract", "ffn", "gated", "attention", "causal-attention", "rotary-attention")


def state(name: str = "x", width: Any = symbols.d) -> State:
    r"""Return the variable of a block: a column vector, one for each token.

    Parameters
    ----------
    name : str
        How it prints.
    width : expression or int
        Number of features, ``d`` by default; at least 2.

    Raises
    ------
    DomainError
        If `width` is a number below 2 or not an integer.
    """
    width = sp.sympify(width)
    if width.is_number and (not width.is_integer or width < 2):
        raise DomainError(f"width: expected an integer >= 2 or a symbol, got {width}")
    return State(name, width)


def sublayer(kind: str = "abstract", activation: str | None = None, name: str = "F") -> Map:
    """Return a sublayer by its kind.

    Parameters
    ----------
    kind : str
        ``abstract``, ``ffn``, ``gated``, ``attention``, ``causal-attention``, ``rotary-attention``;
        an activation may follow after a colon, as in ``ffn:relu``.
    activation : str, optional
        Activation of an ``ffn`` (default ``gelu``) or a ``gated`` one (default ``silu``).
    name : str
        How it prints.

    Raises
    ------
    UnknownNameError
        If the kind or the activation is not known.
    """
    kind, _, inline = str(kind).lower().partition(":")
    activation = activation or inline or None
    if activation is not None and kind not in ("ffn", "gated"):
        raise UnknownNameError(f"activation: {kind!r} takes none, got {activation!r}")
    match kind:
        case "abstract":
            return Sublayer(name)
        case "ffn":
            return FFN(activation or "gelu", name=name)
        case "gated":
            return GatedFFN(activation or "silu", name=name)
        case "attention" | "causal-attention" | "rotary-attention":
            return Attention(
                causal=kind == "causal-attention", rotary=kind == "rotary-attention", name=name
            )
    raise UnknownNameError(
        f"sublayer: expected one of {', '.join(SUBLAYERS)} (with ':activation', one of "
        f"{', '.join(ACTIVATIONS)}), got {kind!r}"
    )


def block(
    equation: str,
    norm_: str | _Norm = "layernorm",
    sublayer_: str | Map = "abstract",
    x: State | None = None,
) -> sp.Basic:
    r"""Return a block from the name of a placement or from an equation.

    Parameters
    ----------
    equation : str
        ``post``, ``pre`` or a text in ``x`` (the variable's name), ``N``, ``F``, ``A`` (attention)
        such as
        ``"x + N(F(N(x)))"``; ``N1``, ``N2``, ``F1`` ... are further norms and sublayers of the same
        kind with weights of their own.
    norm_ : str or norm
        What ``N`` is.
    sublayer_ : str or Map
        What ``F`` is.
    x : State, optional
        The variable.

    Raises
    ------
    UnknownNameError, ParseError
        If the name is not known or the text is not an equation.

    Examples
    --------
    >>> print(block("pre"))
    x + F(N(x))
    """
    x = state() if x is None else x
    text, name = str(equation).strip(), x.name
    if re.fullmatch(r"[A-Za-z][\w-]*", text) and text != name:
        text, name = placement(text).equation, "x"
    return parse_block(text, _maps(text, norm_, sublayer_), x, name)


def _maps(text: str, norm_: str | _Norm, sublayer_: str | Map) -> dict[str, Map]:
    """Return what each capital name in the text stands for."""
    base = norm(norm_) if isinstance(norm_, str) else norm_
    inner = sublayer(sublayer_) if isinstance(sublayer_, str) else sublayer_
    maps: dict[str, Map] = {"N": base, "F": inner}
    if not inner.mixes_tokens:
        maps["A"] = Sublayer("A") if inner.is_abstract else Attention()
    for number in set(re.findall(r"\bN_?(\d+)\b", text)):
        labelled = base.func(number, *base.args[1:])
        maps[f"N{number}"] = maps[f"N_{number}"] = labelled
    for letter, number in set(re.findall(r"\b([FA])_?(\d+)\b", text)):
        if inner.is_abstract:
            named = Sublayer(f"{letter}_{number}")
            maps[f"{letter}{number}"] = maps[f"{letter}_{number}"] = named
    return maps


def layer(
    name: str,
    norms: tuple[_Norm, _Norm] | str = "layernorm",
    attention: Map | None = None,
    feed_forward: Map | None = None,
    x: State | None = None,
) -> sp.Basic:
    r"""Return a transformer layer: an attention block followed by a feed-forward block.

    Post-norm: :math:`h = N_1(x + A(x))`, :math:`y = N_2(h + F(h))`; pre-norm:
    :math:`h = x + A(N_1(x))`, :math:`y = h + F(N_2(h))`. The Jacobian is the product of the two.

    Parameters
    ----------
    name : str
        A placement.
    norms : pair of norms, or str
        The attention-side and the feed-forward-side norm, or the kind of both.
    attention, feed_forward : Map, optional
        The sublayers; multi-head attention and a gelu FFN by default.
    x : State, optional
        The variable.

    Raises
    ------
    UnknownNameError
        If the placement or the norm is not known.
    """
    x = state() if x is None else x
    first, second = (
        (norm(norms, label=1), norm(norms, label=2)) if isinstance(norms, str) else norms
    )
    attention = Attention() if attention is None else attention
    feed_forward = FFN() if feed_forward is None else feed_forward
    equation = placement(name).equation
    h = Let("h", parse_block(equation, {"N": first, "F": attention}, x, "x"))
    return parse_block(equation, {"N": second, "F": feed_forward}, h, "x")
