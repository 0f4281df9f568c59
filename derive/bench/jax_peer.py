"""The peers in JAX: the block written with jax.nn, its Jacobians by jit of jacfwd and jacrev."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from derive.bench.blocks import EPS, Case
from derive.bench.machine import installed

__all__ = ["JaxPeer", "jax_peer"]


def jax_peer(case: Case) -> JaxPeer | None:
    """Return the peer, or None where JAX is not installed."""
    jax = installed("jax")
    if jax is None:
        return None
    jax.config.update("jax_enable_x64", True)
    return JaxPeer(jax, case)


class JaxPeer:
    """The stack of a case in JAX, in float64, its layers in a scan."""

    def __init__(self, jax: Any, case: Case) -> None:
        self.jax, self.case = jax, case
        self.weights = [
            {k: jax.numpy.asarray(v) for k, v in weights.items()} for weights in case.weights()
        ]
        self.x = jax.numpy.asarray(case.x)

    def norm(self, x: Any, w: Any) -> Any:
        """LayerNorm over the last axis."""
        standard = self.jax.nn.standardize(x, axis=-1, epsilon=EPS)
        return standard * w["gain"] + w["bias"]

    def sublayer(self, kind: str, z: Any, w: Any) -> Any:
        """Return F(z) for the rows z of all tokens."""
        jax, jnp = self.jax, self.jax.numpy
        act = {
            "gelu": lambda t: jax.nn.gelu(t, approximate=False),
            "relu": jax.nn.relu,
            "silu": jax.nn.silu,
            "tanh": jnp.tanh,
        }[self.case.activation]
        if kind == "ffn":
            return act(z @ w["W_1"].T + w["b_1"]) @ w["W_2"].T + w["b_2"]
        if kind == "gated":
            return (act(z @ w["W_gate"].T) * (z @ w["W_up"].T)) @ w["W_down"].T
        # jax.nn.dot_product_attention takes its softmax in float32.
        q, k, v = (jnp.einsum("hac,nc->hna", w[name], z) for name in ("W_Q", "W_K", "W_V"))
        scores = q @ k.transpose(0, 2, 1) / q.shape[-1] ** 0.5
        if kind == "causal-attention":
            scores = jnp.where(jnp.tri(len(z), dtype=bool), scores, -jnp.inf)
        return jnp.einsum("hra,hna->nr", w["W_O"], jax.nn.softmax(scores, axis=-1) @ v)

    def block(self, kind: str, x: Any, w: Any) -> Any:
        """Return one block of the placement."""
        if self.case.placement == "pre":
            return x + self.sublayer(kind, self.norm(x, w), w)
        return self.norm(x + self.sublayer(kind, x, w), w)

    def layer(self, x: Any, weights: Any) -> Any:
        """Return one layer."""
        for kind, w in zip(self.case.sublayers, weights, strict=True):
            x = self.block(kind, x, w)
        return x

    def stack(self, x: Any, weights: Any) -> Any:
        """Return the output of all layers."""
        return self.jax.lax.scan(lambda s, w: (self.layer(s, w), None), x, weights)[0]

    def _run(self, function: Any, *args: Any) -> Callable[[], np.ndarray]:
        compiled = self.jax.jit(function)

        def work() -> np.ndarray:
            return np.asarray(self.jax.block_until_ready(compiled(*args)))

        return work

    def jacobians(self) -> dict[str, Callable[[], np.ndarray]]:
        """Return methods for dx_L/dx_0 as a matrix."""
        size = self.case.x.size
        return {
            f"jax jit({name})": self._run(
                lambda x, w, mode=mode: mode(lambda s: self.stack(s, w))(x).reshape(size, size),
                self.x,
                self.weights,
            )
            for name, mode in (("jacfwd", self.jax.jacfwd), ("jacrev", self.jax.jacrev))
        }

    def product(self, v: np.ndarray, *, transposed: bool) -> dict[str, Callable[[], np.ndarray]]:
        """Return methods for the product of dx_L/dx_0, or its transpose, with a vector."""
        vector = self.jax.numpy.asarray(v).reshape(self.x.shape)
        if transposed:
            return {
                "jax jit(vjp)": self._run(
                    lambda x, w, u: self.jax.vjp(lambda s: self.stack(s, w), x)[1](u)[0].ravel(),
                    self.x,
                    self.weights,
                    vector,
                )
            }
        return {
            "jax jit(jvp)": self._run(
                lambda x, w, u: self.jax.jvp(lambda s: self.stack(s, w), (x,), (u,))[1].ravel(),
                self.x,
                self.weights,
                vector,
            )
        }

    def gradient_norms(self, cotangent: np.ndarray) -> dict[str, Callable[[], np.ndarray]]:
        """Return methods for the log norms of the gradients at l = 0..L, in one reverse pass."""
        jnp = self.jax.numpy
        u = jnp.asarray(cotangent).reshape(self.x.shape)

        def norms(x: Any, weights: Any, u: Any) -> Any:
            shifts = jnp.zeros((self.case.layers, *x.shape))

            def run(x: Any, shifts: Any) -> Any:
                def step(s: Any, item: Any) -> Any:
                    w, shift = item
                    return self.layer(s, w) + shift, None

                return self.jax.lax.scan(step, x, (weights, shifts))[0]

            first, others = self.jax.vjp(run, x, shifts)[1](u)
            both = jnp.concatenate([first[None], others]).reshape(self.case.layers + 1, -1)
            return jnp.log(jnp.linalg.norm(both, axis=1))

        return {"jax jit(vjp)": self._run(norms, self.x, self.weights, u)}

    def token_norms(self) -> dict[str, Callable[[], np.ndarray]]:
        """Return methods for the squared Frobenius norms of the tokens' blocks, of one layer."""
        weights = [{k: v[0] for k, v in w.items()} for w in self.weights]

        def norms(mode: Any) -> Any:
            def one(x: Any, w: Any) -> Any:
                block = mode(lambda s: self.layer(s[None], w)[0])(x)
                return (block**2).sum()

            return lambda xs, w: self.jax.lax.map(
                lambda x: one(x, w), xs, batch_size=min(16, len(self.case.x))
            )

        return {
            f"jax jit(map({name}))": self._run(norms(mode), self.x, weights)
            for name, mode in (("jacfwd", self.jax.jacfwd), ("jacrev", self.jax.jacrev))
        }

    def lyapunov(self) -> dict[str, Callable[[], np.ndarray]]:
        """Return methods for the exponents: a QR of the frame at every layer."""
        jnp = self.jax.numpy

        def exponents(x: Any, weights: Any) -> Any:
            def step(carry: Any, w: Any) -> Any:
                s, frame = carry
                push = self.jax.vmap(
                    lambda v: self.jax.jvp(lambda t: self.layer(t, w), (s,), (v[None],))[1][0],
                    in_axes=1,
                    out_axes=1,
                )
                q, r = jnp.linalg.qr(push(frame))
                return (self.layer(s, w), q), jnp.log(jnp.abs(jnp.diagonal(r)))

            eye = jnp.eye(self.case.width)
            logs = self.jax.lax.scan(step, (x, eye), weights)[1]
            return logs.mean(axis=0)

        return {"jax jit(jvp + qr)": self._run(exponents, self.x, self.weights)}
