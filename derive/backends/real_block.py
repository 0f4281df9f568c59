"""A real block: a framework's own module, how to call it, and its weights as plain arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

__all__ = ["Activation", "Norm", "Placement", "RealBlock"]

Placement = str
Norm = str
Activation = str


@dataclass(frozen=True, eq=False, repr=False)
class RealBlock:
    """A transformer block of a framework, with its weights in neutral form.

    Column vectors throughout: a linear map is ``y = W z + b``. With N1, N2 the two norms,

        post:  u = N1(x + A(x)),      y = N2(u + F(u))
        pre:   u = x + A(N1(x)),      y = u + F(N2(u))

    Attention of head h, for query token i: ``q_i = R_i (W_Q z_i + b_Q)``, ``k_j`` alike,
    ``v_j = W_V z_j + b_V``, ``p_i = softmax_j(scale q_i'k_j over the j with mask[i, j])`` and
    ``A_i = b_O + sum_h W_O sum_j p_ij v_j``. FFN: ``W_2 act(W_1 z + b_1) + b_2``, or gated
    ``W_down (act(W_gate z + b_gate) * (W_up z + b_up)) + b_down``.

    Attributes
    ----------
    system : str
        ``"torch-post"``, ``"torch-pre"``, ``"bert"``, ``"gpt2"``, ``"llama"`` or a reader's own.
    module : torch.nn.Module
        The framework's module that `call` runs: float64, eval mode, parameters frozen.
    call : callable
        Tensor (1, n, d) to tensor (1, n, d), with mask and positions filled in.
    placement : {"post", "pre"}
        Where the norms stand.
    norm : {"layernorm", "rmsnorm"}
        Kind of both norms.
    eps : tuple of float
        eps of the norm on the attention side and on the FFN side.
    activation : {"relu", "gelu", "gelu_tanh", "silu", "tanh"}
        Activation of the FFN.
    gated : bool
        Whether the FFN is gated.
    causal : bool
        Whether no query attends to a later token.
    heads, width, tokens : int
        H, d and n.
    weights : dict of str to ndarray
        Read-only float64 arrays (``mask``: bool):

        - ``gain_1``, ``bias_1``, ``gain_2``, ``bias_2`` (d,): norms of the attention and the FFN
          side; RMSNorm has no bias;
        - ``W_Q``, ``W_K``, ``W_V`` (H, dh, d), ``W_O`` (H, d, dh), ``b_Q``, ``b_K``, ``b_V``
          (H, dh), ``b_O`` (d,), zeros where the module has none; grouped keys and values are
          repeated to H heads; ``scale`` (); ``mask`` (n, n), True where query i may attend to
          key j; ``R`` (n, dh, dh), only of a block with rotary positions;
        - ``W_1`` (f, d), ``b_1`` (f,), ``W_2`` (d, f), ``b_2`` (d,); gated: ``W_gate``, ``W_up``
          (f, d), ``b_gate``, ``b_up`` (f,), ``W_down`` (d, f), ``b_down`` (d,).
    expression : sympy expression, optional
        The layer in the state ``derive.state("x")``, for a system whose layer is not one of the two
        above; its weights are then those that the expression names.
    tolerance : float
        Largest relative error that a comparison may have.
    note : str
        Why the tolerance is not 1e-12, or what else a reader of the comparison must know.
    """

    system: str
    module: Any
    call: Callable[[Any], Any]
    placement: Placement
    norm: Norm
    eps: tuple[float, float]
    activation: Activation
    gated: bool
    causal: bool
    heads: int
    width: int
    tokens: int
    weights: dict[str, npt.NDArray[Any]]
    expression: Any = None
    tolerance: float = 1e-12
    note: str = ""

    def __post_init__(self) -> None:
        for array in self.weights.values():
            array.setflags(write=False)

    def __repr__(self) -> str:
        ffn = f"{'gated ' if self.gated else ''}{self.activation}"
        return (
            f"RealBlock({self.system}: {type(self.module).__name__}, {self.placement} "
            f"{self.norm}, eps={self.eps}, {ffn}, {'causal' if self.causal else 'bidirectional'}, "
            f"heads={self.heads}, width={self.width}, tokens={self.tokens})"
        )
