"""The peers in PyTorch: torch.func's jacrev and jacfwd, vmap(vjp) in chunks, curvlinops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from derive.bench.blocks import EPS, Case
from derive.bench.machine import installed

__all__ = ["TorchPeer", "torch_peer"]

# Rows of the Jacobian that vmap(vjp) and the token ensembles take at one time.
_CHUNK = 64


def torch_peer(case: Case) -> TorchPeer | None:
    """Return the peer, or None where PyTorch is not installed."""
    torch = installed("torch")
    if torch is None:
        return None
    torch.set_num_threads(1)
    return TorchPeer(torch, case)


class TorchPeer:
    """The stack of a case in PyTorch, in float64."""

    def __init__(self, torch: Any, case: Case) -> None:
        self.torch, self.case = torch, case
        self.weights = [
            [{k: torch.from_numpy(v[layer].copy()) for k, v in w.items()} for w in case.weights()]
            for layer in range(case.layers)
        ]
        self.x = torch.from_numpy(case.x.copy())

    def sublayer(self, kind: str, z: Any, w: Any) -> Any:
        """Return F(z) for the rows z of all tokens."""
        functional = self.torch.nn.functional
        act = getattr(functional, self.case.activation)
        if kind == "ffn":
            hidden = act(functional.linear(z, w["W_1"], w["b_1"]))
            return functional.linear(hidden, w["W_2"], w["b_2"])
        if kind == "gated":
            hidden = act(functional.linear(z, w["W_gate"])) * functional.linear(z, w["W_up"])
            return functional.linear(hidden, w["W_down"])
        q, k, v = (self.torch.einsum("hac,nc->hna", w[name], z) for name in ("W_Q", "W_K", "W_V"))
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        if kind == "causal-attention":
            hidden = self.torch.ones(scores.shape[-2:], dtype=self.torch.bool).triu(1)
            scores = scores.masked_fill(hidden, float("-inf"))
        out = scores.softmax(-1) @ v
        return self.torch.einsum("hra,hna->nr", w["W_O"], out)

    def layer(self, x: Any, weights: Any) -> Any:
        """Return one layer."""
        for kind, w in zip(self.case.sublayers, weights, strict=True):
            pre = self.case.placement == "pre"
            y = self._norm(x, w) if pre else x
            y = x + self.sublayer(kind, y, w)
            x = y if pre else self._norm(y, w)
        return x

    def _norm(self, x: Any, w: Any) -> Any:
        return self.torch.nn.functional.layer_norm(x, x.shape[-1:], w["gain"], w["bias"], EPS)

    def stack(self, x: Any) -> Any:
        """Return the output of all layers."""
        for weights in self.weights:
            x = self.layer(x, weights)
        return x

    def jacobians(self) -> dict[str, Callable[[], np.ndarray]]:
        """Return methods for dx_L/dx_0 as a matrix."""
        func, size = self.torch.func, self.case.x.size

        def chunked() -> np.ndarray:
            _, pull = func.vjp(self.stack, self.x)
            eye = self.torch.eye(size, dtype=self.x.dtype).reshape(size, *self.x.shape)
            rows = func.vmap(lambda u: pull(u)[0], chunk_size=_CHUNK)(eye)
            return rows.reshape(size, size).numpy()

        return {
            "torch jacrev": lambda: func.jacrev(self.stack)(self.x).reshape(size, size).numpy(),
            "torch jacfwd": lambda: func.jacfwd(self.stack)(self.x).reshape(size, size).numpy(),
            f"torch vmap(vjp), chunks of {_CHUNK}": chunked,
        }

    def product(self, v: np.ndarray, *, transposed: bool) -> dict[str, Callable[[], np.ndarray]]:
        """Return methods for the product of dx_L/dx_0, or its transpose, with a vector."""
        func = self.torch.func
        vector = self.torch.from_numpy(v.copy()).reshape(self.x.shape)
        if transposed:
            methods = {
                "torch vjp": lambda: func.vjp(self.stack, self.x)[1](vector)[0].ravel().numpy()
            }
        else:
            methods = {
                "torch jvp": lambda: func.jvp(self.stack, (self.x,), (vector,))[1].ravel().numpy()
            }
        return methods | self._curvlinops(vector, transposed)

    def _curvlinops(self, vector: Any, transposed: bool) -> dict[str, Callable[[], np.ndarray]]:
        """Return curvlinops' Jacobian in the parameters: the input is made the only one."""
        curvlinops = installed("curvlinops")
        if curvlinops is None:
            return {}
        torch, outer = self.torch, self

        class Model(torch.nn.Module):  # type: ignore[name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.start = torch.nn.Parameter(outer.x.clone())

            def forward(self, _: Any) -> Any:
                return outer.stack(self.start).reshape(1, -1)

        model = Model()
        data = [(torch.zeros(1, 1), torch.zeros(1, 1))]
        kind = "TransposedJacobianLinearOperator" if transposed else "JacobianLinearOperator"
        operator = getattr(curvlinops, kind)(
            model, list(model.parameters()), data, check_deterministic=False
        )
        flat = vector.reshape(-1)
        return {f"curvlinops {kind}": lambda: (operator @ flat).detach().numpy()}

    def gradient_norms(self, cotangent: np.ndarray) -> dict[str, Callable[[], np.ndarray]]:
        """Return methods for the log norms of the gradients at l = 0..L, in one reverse pass."""
        u = self.torch.from_numpy(cotangent.copy()).reshape(self.x.shape)

        def norms() -> np.ndarray:
            x = self.x.clone().requires_grad_()
            states = [x]
            for weights in self.weights:
                states.append(self.layer(states[-1], weights))
            grads = self.torch.autograd.grad(states[-1], states, u)
            return self.torch.stack([g.norm() for g in grads]).log().numpy()

        return {"torch autograd": norms}

    def token_norms(self) -> dict[str, Callable[[], np.ndarray]]:
        """Return methods for the squared Frobenius norms of the tokens' blocks, of one layer."""
        func = self.torch.func

        def norms(mode: Any) -> Callable[[], np.ndarray]:
            def one(x: Any) -> Any:
                block = mode(lambda s: self.layer(s[None], self.weights[0])[0])(x)
                return (block**2).sum()

            return lambda: func.vmap(one, chunk_size=_CHUNK // 4)(self.x).numpy()

        return {
            "torch vmap(jacrev)": norms(func.jacrev),
            "torch vmap(jacfwd)": norms(func.jacfwd),
        }

    def lyapunov(self) -> dict[str, Callable[[], np.ndarray]]:
        """Return methods for the exponents: a QR of the frame at every layer."""
        torch, func = self.torch, self.torch.func

        def exponents() -> np.ndarray:
            x, frame = self.x, torch.eye(self.case.width, dtype=self.x.dtype)
            logs = torch.zeros(self.case.width, dtype=self.x.dtype)
            for weights in self.weights:
                jacobian = func.jacrev(lambda s, w=weights: self.layer(s[None], w)[0])(x[0])
                frame, r = torch.linalg.qr(jacobian @ frame)
                logs += r.diagonal().abs().log()
                x = self.layer(x, weights)
            return (logs / self.case.layers).numpy()

        return {"torch jacrev + qr": exponents}
