r"""Token-to-token blocks for display: named, and split into value, key and query path."""

from __future__ import annotations

from typing import Any

import sympy as sp

from derive.blocks.paths import paths
from derive.calculus.blockwise import token_block
from derive.calculus.derivation import Derivation
from derive.calculus.maps import JacobianOf, TokenBlocks
from derive.calculus.printing import latex, text
from derive.calculus.tensor import Tensor

__all__ = ["BlockName", "mixing_blocks", "named_token_block", "paths"]


class BlockName(Tensor):
    r"""The block :math:`[DA(z)]_{ij}` of a Jacobian that mixes tokens, under its name."""

    def __new__(cls, label: JacobianOf, i: sp.Basic, j: sp.Basic) -> BlockName:
        """Name the block from token `j` to token `i`."""
        return sp.Basic.__new__(cls, label, i, j)

    @property
    def shape(self) -> tuple[sp.Expr, sp.Expr]:
        """Shape of one block."""
        return self.args[0].shape

    def _sympystr(self, printer: Any) -> str:
        label, i, j = self.args
        return f"{text(label)}[{i},{j}]"

    def _latex(self, printer: Any, **_: Any) -> str:
        label, *tokens = self.args
        letters = [latex(t) for t in tokens]
        glue = "" if all(len(t) == 1 for t in letters) else ","
        return rf"[{latex(label)}]_{{{glue.join(letters)}}}"


def mixing_blocks(D: Derivation) -> tuple[TokenBlocks, ...]:
    """Return the Jacobians that mix tokens, in the order in which they act."""
    return tuple(k for k in D.definitions if isinstance(k, TokenBlocks))


def named_token_block(D: Derivation) -> sp.Basic:
    r"""Return :math:`\partial y_i/\partial x_j` with the blocks of each mixing map under a name."""
    named = {
        node: TokenBlocks(node.label, BlockName(node.label, *node.args[2:]), *node.args[2:])
        for node in mixing_blocks(D)
    }
    return token_block(D.jacobian.xreplace(named))
