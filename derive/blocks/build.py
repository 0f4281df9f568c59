r"""Blocks by name or by equation: a placement, a norm and a sublayer make an expression."""

from __future__ import annotations

import re
from typing import Any

import sympy as sp

from derive import symbols
from derive.blocks.activations import ACTIVATIONS
from derive.blocks.attention import Attention, CrossAttention
from derive.blocks.norms import _Norm, norm
from derive.blocks.parse import parse_block
from derive.blocks.placements import STREAM_SCALARS, Placement, placement, stream_placement
from derive.blocks.sublayers import FFN, GatedFFN, Sublayer
from derive.calculus.atoms import State
from derive.calculus.derivation import Derivation, derivation
from derive.calculus.let import Let
from derive.calculus.maps import Map
from derive.errors import DomainError, ShapeError, UnknownNameError

__all__ = ["SUBLAYERS", "block", "layer", "state", "streams", "sublayer"]

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
    text, name, entry = str(equation).strip(), x.name, None
    if re.fullmatch(r"[A-Za-z][\w-]*", text) and text != name:
        entry = placement(text)
        text, name = entry.equation, "x"
    maps = _maps(text, norm_, sublayer_, entry)
    return parse_block(text, maps, x, name, vectors=VECTORS)


VECTORS = ("lam", "omega")
"""Constant vectors that an equation may use."""


def _maps(
    text: str, norm_: str | _Norm, sublayer_: str | Map, entry: Placement | None = None
) -> dict[str, Map]:
    """Return what each capital name in the text stands for."""
    if entry is not None and entry.norm and norm_ == "layernorm":
        norm_ = entry.norm
    base = norm(norm_) if isinstance(norm_, str) else norm_
    inner = sublayer(sublayer_) if isinstance(sublayer_, str) else sublayer_
    whole = re.search(r"\bA\(", text) is not None
    maps: dict[str, Map] = {"N": base, "F": FFN() if whole and inner.mixes_tokens else inner}
    if inner.is_abstract:
        maps |= {"A": Sublayer("A"), "C": Sublayer("C")}
    else:
        maps["A"] = inner if inner.mixes_tokens else Attention()
        maps["C"] = CrossAttention(label="c", name="C")
    if entry is not None:
        maps |= {k: _with_norms_inside(maps[k], entry, base) for k in ("A", "F")}
    for number in set(re.findall(r"\bN_?(\d+)\b", text)):
        labelled = base.func(number, *base.args[1:])
        maps[f"N{number}"] = maps[f"N_{number}"] = labelled
    for letter, number in set(re.findall(r"\b([FA])_?(\d+)\b", text)):
        if inner.is_abstract:
            named = Sublayer(f"{letter}_{number}")
            maps[f"{letter}{number}"] = maps[f"{letter}_{number}"] = named
    return maps


def _with_norms_inside(mapping: Map, entry: Placement, base: _Norm) -> Map:
    """Return a sublayer with the norms that a placement has in it, unless it has its own."""
    if entry.value_norm and isinstance(mapping, Attention):
        sides = ("query_norm", "key_norm", "value_norm")
        if all(mapping._option(side) is None for side in sides):
            return _with_value_norm(mapping, base)
    if entry.inner_norm and isinstance(mapping, FFN | GatedFFN) and mapping.inner_norm is None:
        return mapping.func(*mapping.args[:5], base.func("i", *base.args[1:]))
    return mapping


def _with_value_norm(attention: Attention, base: _Norm) -> Attention:
    names = list(Attention.defaults)
    options = dict(zip(names, attention.args, strict=True))
    for side in ("query", "key", "value"):
        options[f"{side}_norm"] = base.func(side[0], *base.args[1:])
    return Attention(**options)


def streams(
    name: str, norm_: str | _Norm = "layernorm", sublayer_: str | Map = "abstract"
) -> dict[tuple[str, str], Derivation]:
    r"""Derive the block matrix of a placement with several streams.

    Parameters
    ----------
    name : str
        ``residual``, ``siamesenorm``, ``hyper-connections`` or ``mhc``.
    norm_, sublayer_
        As for `block`.

    Returns
    -------
    dict from (output stream, input stream) to Derivation
        The blocks :math:`\partial y_a/\partial x_b`.

    Raises
    ------
    UnknownNameError
        If the name is not known.
    """
    blocks = stream_blocks(name, norm_, sublayer_)
    return {
        (out, stream): derivation(block_, state(stream))
        for out, block_ in blocks.items()
        for stream in blocks
    }


def stream_blocks(
    name: str, norm_: str | _Norm = "layernorm", sublayer_: str | Map = "abstract"
) -> dict[str, sp.Basic]:
    """Return the new value of every stream of a placement with several; as for `streams`."""
    entry = stream_placement(name)
    states = {stream: state(stream) for stream in entry.equations}
    return {
        out: parse_block(
            equation,
            _maps(equation, norm_, sublayer_),
            states["x"],
            scalars=STREAM_SCALARS,
            others=states,
        )
        for out, equation in entry.equations.items()
    }


def layer(
    name: str,
    norms: tuple[_Norm, ...] | str = "layernorm",
    attention: Map | None = None,
    feed_forward: Map | None = None,
    x: State | None = None,
) -> sp.Basic:
    r"""Return a transformer layer: an attention block followed by a feed-forward block.

    Post-norm: :math:`y_A = N_1(x + A(x))`, :math:`y = N_2(y_A + F(y_A))`; pre-norm:
    :math:`y_A = x + A(N_1(x))`, :math:`y = y_A + F(N_2(y_A))`. The Jacobian is the product of the
    two. A placement that is a whole layer (parallel, B2T, ...) is taken as it is. The norms that a
    placement has inside its sublayers are put into those that have none.

    Parameters
    ----------
    name : str
        A placement.
    norms : tuple of norms, or str
        The norms in the order in which they act, or the kind of all of them.
    attention, feed_forward : Map, optional
        The sublayers; multi-head attention and a gelu FFN by default.
    x : State, optional
        The variable.

    Raises
    ------
    UnknownNameError
        If the placement or the norm is not known.
    ShapeError
        If the number of norms is not the number that the placement has.
    """
    x = state() if x is None else x
    entry = placement(name)
    attention = Attention() if attention is None else attention
    feed_forward = FFN() if feed_forward is None else feed_forward
    used = sorted(set(re.findall(r"\bN\d*", entry.equation)))
    copies = 1 if entry.is_layer else 2
    if isinstance(norms, str):
        kind = entry.norm if entry.norm and norms == "layernorm" else norms
        norms = tuple(norm(kind, label=k + 1) for k in range(copies * len(used)))
    if len(norms) != copies * len(used):
        raise ShapeError(
            f"norms: placement {name} has {copies * len(used)} in a layer, got {len(norms)}"
        )
    attention, feed_forward = (
        _with_norms_inside(mapping, entry, norms[0]) for mapping in (attention, feed_forward)
    )
    first = dict(zip(used, norms, strict=False))
    if entry.is_layer:
        maps: dict[str, Map] = {**first, "A": attention, "F": feed_forward}
        maps["C"] = CrossAttention(label="c", name="C")
        return parse_block(entry.equation, maps, x, "x", vectors=VECTORS)
    second = dict(zip(used, norms[len(used) :], strict=True))
    after = Let(
        "y_A", parse_block(entry.equation, {**first, "F": attention}, x, "x", vectors=VECTORS)
    )
    return parse_block(entry.equation, {**second, "F": feed_forward}, after, "x", vectors=VECTORS)
