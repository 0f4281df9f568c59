r"""Multi-head latent attention: queries, keys and values are expanded from small normed latents."""

from __future__ import annotations

from typing import Any

import sympy as sp

from derive import symbols
from derive.blocks.attention import _Softmax
from derive.calculus.atoms import Matrix, Vector
from derive.calculus.let import Let, ScalarLet
from derive.calculus.maps import Body, Identity, with_indices
from derive.calculus.tensor import product, total
from derive.calculus.tokens import At, index
from derive.errors import UnknownNodeError

__all__ = ["LatentAttention"]

QUERY_RANK, KEY_RANK, VALUE_WIDTH = sp.symbols("r_q r_k d_v", positive=True, integer=True)
"""Widths of the two latents and of a value."""


class LatentAttention(_Softmax):
    r"""Multi-head latent attention (MLA) with a rotary part that all heads share.

    .. math:: c^q_i = N_q(W_{DQ}z_i),\quad c_i = N_k(W_{DK}z_i),\qquad
              q_i = R_iW_Qc^q_i,\quad k_i = W_Kc_i + R_iW_{KR}z_i,\quad v_i = W_Vc_i

    The features of a query and a key are those without position, then those with: ``R`` is the
    identity on the first and rotates the second, ``W_K`` has zero rows on the second and ``W_KR``
    on the first. With ``bias`` the maps to the latents, the rotary key and the output have biases.

    Parameters
    ----------
    query_norm, key_norm : norm
        Norms of the latents.
    masked, scale, bias, name, label
        As for `Attention`; the other options of `Attention` do not apply.

    Raises
    ------
    UnknownNodeError
        If a norm is missing, or one of the options that do not apply is given.

    References
    ----------
    DeepSeek-AI, *DeepSeek-V2*, 2024, arXiv:2405.04434, equations (9) to (13) and (37) to (47).
    """

    mixes_tokens = True

    def __new__(cls, *args: Any, **options: Any) -> LatentAttention:
        """Check the arguments and build the node."""
        node = super().__new__(cls, *args, **options)
        for name in ("query_norm", "key_norm"):
            if node._option(name) is None:
                raise UnknownNodeError(f"latent attention: expected a norm as {name}, got none")
        for name in ("rotary", "value_norm", "full_norm", "gate", "norm_last", "query_gain"):
            if node._option(name):
                raise UnknownNodeError(f"latent attention: the option {name} does not apply")
        return node

    def body(self, argument: sp.Basic, suffix: str = "") -> Body:
        """Return latents, query, key, value and the rest of attention at token ``i``."""
        i, j, h = index("i"), index("j"), index("h")
        z, width = At(argument, i), symbols.d_h
        rotation = At(Matrix("R", width, width), i)
        query = self._latent("Q", z, QUERY_RANK, i, suffix)
        key = self._latent("K", z, KEY_RANK, i, suffix)
        latent_q, latent_k = query[0][-1], key[0][-1]
        expand = At(Matrix(self.weight("W_Q"), width, QUERY_RANK), h)
        q = Let("q" + suffix, product([rotation, expand, latent_q]), h, i)
        turned = product([rotation, self._affine("KR", width, z)])
        expand = At(Matrix(self.weight("W_K"), width, KEY_RANK), h)
        k = Let("k" + suffix, total([product([expand, latent_k]), turned]), h, i)
        expand = At(Matrix(self.weight("W_V"), VALUE_WIDTH, KEY_RANK), h)
        v = Let("v" + suffix, product([expand, latent_k]), h, i)
        return self._mix(
            argument,
            ([*query[0], q], query[1], [*query[2], q.name]),
            ([*key[0], k], key[1], [*key[2], k.name]),
            ([v], [], [v.name]),
            (h, i),
            (i, j, symbols.n),
            suffix,
        )

    def _affine(self, letters: str, rows: sp.Expr, vector: sp.Basic) -> sp.Basic:
        out = product([Matrix(self.weight(f"W_{letters}"), rows, vector.shape[0]), vector])
        return total([out, Vector(self.weight(f"b_{letters}"), rows)]) if self.has_bias else out

    def _latent(
        self, letter: str, vector: sp.Basic, rank: sp.Expr, token: sp.Symbol, suffix: str
    ) -> tuple[list[Let | ScalarLet], list[Identity], list[str]]:
        """Return the lets of a latent (the last is the latent), identities and cuts."""
        name = f"c_{letter.lower()}" + suffix
        norm = self._option({"Q": "query_norm", "K": "key_norm"}[letter])
        raw = Let(name + "0", self._affine(f"D{letter}", rank, vector), token)
        body = with_indices(norm.body(raw), (token,), "_" + name)
        latent = Let(name, body.output, token)
        return [raw, *body.lets, latent], list(body.identities), [raw.name, latent.name]
