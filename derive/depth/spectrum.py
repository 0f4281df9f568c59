r"""Singular spectra of a stack over depth, and the gradients of its weights, as plain rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from derive.depth.stack import Stack
from derive.depth.weight_gradients import weight_gradient_log_norms
from derive.linalg import (
    Spectrum,
    Triplets,
    alignments,
    bottom_triplets,
    product_spectra,
    top_triplets,
)
from derive.linalg.singular import Side
from derive.linalg.token_map import token_pair_log_norms

__all__ = ["listed_depths", "spectra", "spectrum_row", "token_log_norms"]


def spectra(
    stack: Stack, x: Any, places: Sequence[int] | None = None, *, side: Side = "input"
) -> list[Spectrum]:
    r"""Return the spectra of :math:`dx_l/dx_0` or :math:`dx_L/dx_l` along the trajectory from `x`.

    Parameters
    ----------
    stack : Stack
        The stack.
    x : array (n, d)
        Input.
    places : sequence of int, optional
        The depths l; all from 0 to L unless said.
    side : str
        ``"input"`` for :math:`dx_l/dx_0`, ``"output"`` for :math:`dx_L/dx_l`.

    Returns
    -------
    list of Spectrum

    Raises
    ------
    DomainError, ShapeError
        As for `derive.linalg.product_spectra`.
    """
    size = stack.states(x)[0].size
    return product_spectra(stack.jacobians(x), places, side=side, size=size)


def token_log_norms(stack: Stack, x: Any) -> np.ndarray:
    r"""Return :math:`\log\lVert\partial x_L[i]/\partial x_0[j]\rVert_F`, an array ``(n, n)``.

    A stack of S streams gives an array ``(S n, S n)``, the tokens of one stream after the other.

    Parameters
    ----------
    stack : Stack
        The stack, of at least one layer.
    x : array (n, d)
        Input.

    Raises
    ------
    ShapeError
        If the stack has no layer.
    """
    start = stack.states(x)[0]
    return token_pair_log_norms(stack.jacobians(x), start.size // start.shape[-1])


def listed_depths(layers: int, count: int = 9) -> list[int]:
    """Return about `count` depths from 0 to L, evenly spaced, both ends among them."""
    return sorted({round(p) for p in np.linspace(0, layers, min(count, layers + 1))})


def spectrum_row(
    stack: Stack,
    x: Any,
    *,
    side: Side = "input",
    places: Sequence[int] | None = None,
    drawn: Sequence[int] = (),
    rank_tol: float | None = None,
    whole: bool = True,
    top: int = 0,
    bottom: int = 0,
    cotangent: Any = None,
    token_map: bool = False,
) -> dict[str, Any]:
    r"""Return what one stack does to the singular spectrum over depth.

    Parameters
    ----------
    stack : Stack
        The stack, of L layers.
    x : array (n, d)
        Input.
    side : str
        ``"input"`` for :math:`dx_l/dx_0`, ``"output"`` for :math:`dx_L/dx_l`.
    places : sequence of int, optional
        The depths l to list, `listed_depths` unless said.
    drawn : sequence of int
        More depths whose values are taken, for a figure.
    rank_tol : float, optional
        Tolerance of the numerical rank, as for `Spectrum.numerical_rank`.
    whole : bool
        Whether the whole spectrum is taken at every listed depth.
    top, bottom : int
        How many of the largest and smallest triplets of :math:`dx_L/dx_0` to take.
    cotangent : array (n, d), optional
        Gradient at the output, for the gradients of the weights; without it they are left out.
    token_map : bool
        Whether the token-to-token norms of :math:`dx_L/dx_0` are taken.

    Returns
    -------
    dict
        Keys ``product`` (``dx_l/dx_0`` or ``dx_L/dx_l``), ``rank_tol``, ``depths`` (one dict a
        listed depth), and where asked for ``drawn`` (depth and values of what a figure shows),
        ``top``, ``bottom``, ``weight_log_norms`` and ``token_log_norms``; see the documentation of
        the command. Logarithms are natural.

    Raises
    ------
    DomainError
        As for `derive.linalg.product_spectra`, `top_triplets` and `bottom_triplets`.
    ShapeError
        If a map of tokens is asked of a stack without layers, or `cotangent` does not fit.
    """
    size = stack.states(x)[0].size
    chosen = listed_depths(stack.layers) if places is None else list(places)
    row: dict[str, Any] = {
        "product": "dx_l/dx_0" if side == "input" else "dx_L/dx_l",
        "rank_tol": float(np.finfo(float).eps * size) if rank_tol is None else rank_tol,
        "depths": [],
    }
    if whole:
        taken = sorted({*chosen, *drawn})
        found = dict(zip(taken, spectra(stack, x, taken, side=side), strict=True))
        cosines = alignments([found[p] for p in chosen], side)
        row["depths"] = [
            _depth(p, found[p], cosine, rank_tol) for p, cosine in zip(chosen, cosines, strict=True)
        ]
        if drawn:
            row["drawn"] = [
                {"depth": p, "log_singular_values": found[p].log_values.tolist()} for p in taken
            ]
    if top:
        row["top"] = _triplets(top_triplets(stack.jacobians(x), top, size=size))
    if bottom:
        row["bottom"] = _triplets(bottom_triplets(stack.jacobians(x), bottom, size=size))
    if cotangent is not None:
        row["weight_log_norms"] = weight_gradient_log_norms(stack, x, cotangent)
    if token_map:
        row["token_log_norms"] = token_log_norms(stack, x).tolist()
    return row


def _depth(
    place: int, spectrum: Spectrum, alignment: float, rank_tol: float | None
) -> dict[str, Any]:
    return {
        "depth": place,
        "log_norm": spectrum.log_norm,
        "log_frobenius": spectrum.log_frobenius,
        "numerical_rank": spectrum.numerical_rank(rank_tol),
        "log_condition": spectrum.log_condition,
        "effective_rank": spectrum.effective_rank,
        "participation_ratio": spectrum.participation_ratio,
        "alignment": alignment,
        "method": spectrum.method,
        "null_directions": int(np.isneginf(spectrum.log_values).sum()),
        "log_singular_values": spectrum.log_values.tolist(),
    }


def _triplets(found: Triplets) -> list[dict[str, Any]]:
    rows = []
    for place, value in enumerate(found.log_values.tolist()):
        right, left = found.residuals[place].tolist()
        row = {
            "log_value": value,
            "residual_right": right,
            "residual_left": left,
            "method": found.method,
        }
        if found.inverse_residuals is not None:
            row["inverse_residual"] = math.sqrt(np.sum(found.inverse_residuals[place] ** 2))
        rows.append(row)
    return rows
