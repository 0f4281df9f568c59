r"""Hyper-connections contain the plain residual stream: with one stream read and written.

At a = I, c = (1, 0), b = (1, 0) the first stream is a pre-norm block and the second passes; mHC's
matrix with a = 0 is the same identity.
"""

from __future__ import annotations

from collections.abc import Mapping

import sympy as sp

from derive.proof import Assumption, Identity, Step, Theorem, Verdict
from proofs.bibliography import HC, MHC
from proofs.setting import identity, x
from proofs.variants._shared import DF, DN, N_1, any_norm_streams

__all__ = ["theorem"]

Blocks = Mapping[tuple[str, str], sp.Basic]


def _values(name: str, statement: str, **values: int) -> Assumption:
    at = tuple((sp.Symbol(k, real=True), sp.Integer(v)) for k, v in values.items())
    return Assumption(name, statement, at)


FIRST_ONLY = _values("first-stream", "the block reads the first stream only", c1=1, c2=0)
UNMIXED = _values(
    "streams-unmixed", r"the matrix of the streams is $I$", a11=1, a12=0, a21=0, a22=1
)
STILL = _values("mhc-unmixed", r"$a = 0$ in mHC's matrix", a=0)
WRITES = _values("writes-first", "the block writes to the first stream with weight 1", b1=1, b2=0)


def _first(blocks: Blocks) -> tuple[sp.Basic, sp.Basic]:
    return blocks["x", "x"], identity + DF(N_1(x)) * DN(1, x)


def _second(blocks: Blocks) -> tuple[sp.Basic, sp.Basic]:
    return blocks["r", "r"], identity


theorem = Theorem(
    id="hyper-connections-contain-pre-norm",
    area="variants",
    title="Hyper-connections contain pre-norm",
    statement=(
        r"With $H = I$, one stream read and written with weight 1, a hyper-connected block is a "
        "pre-norm block beside a stream that passes unchanged; mHC with $a = 0$ likewise."
    ),
    verdict=Verdict.PROVED,
    assumptions=(FIRST_ONLY, UNMIXED, STILL, WRITES),
    steps=(
        Step(
            "Hyper-connections: the first stream.",
            "the values put in",
            Identity(
                claim=_first,
                of=lambda: any_norm_streams("hyper-connections"),
                instead=lambda: any_norm_streams("residual"),
                assuming=(FIRST_ONLY, UNMIXED, WRITES),
            ),
        ),
        Step(
            "mHC: the first stream.",
            "the values put in",
            Identity(
                claim=_first,
                of=lambda: any_norm_streams("mhc"),
                instead=lambda: any_norm_streams("residual"),
                assuming=(FIRST_ONLY, STILL, WRITES),
            ),
        ),
        Step(
            "mHC: the second stream passes.",
            "it is neither mixed nor written to",
            Identity(
                claim=_second,
                of=lambda: any_norm_streams("mhc"),
                instead=lambda: any_norm_streams("siamesenorm"),
                assuming=(STILL, WRITES),
            ),
        ),
    ),
    sources=(
        HC("the initialisation", seen="memory"),
        MHC("the constraint of the residual matrix", seen="code"),
    ),
)
