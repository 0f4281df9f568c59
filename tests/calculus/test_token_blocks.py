"""Token-to-token blocks against a sequence written out in torch."""

import numpy as np
import pytest
import sympy as sp

import derive
from derive.calculus.blockwise import token_block
from derive.calculus.explicit import explicit
from derive.calculus.tokens import index
from derive.errors import UnknownNodeError

x = derive.state("x")
SIZES = {"d": 2, "d_h": 1, "H": 2, "n": 3, "f": 3}
SHAPES = {
    "W_Q": (2, 1, 2),
    "W_K": (2, 1, 2),
    "W_V": (2, 1, 2),
    "W_O": (2, 2, 1),
    "W_1": (3, 2),
    "W_2": (2, 3),
    "b_1": (3,),
    "b_2": (2,),
    "gain": (2,),
    "bias": (2,),
    "x": (3, 2),
}
BLOCKS = {
    "attention": derive.Attention()(x),
    "post": derive.block("post", "layernorm", "attention"),
    "pre": derive.block("pre", "rmsnorm", "attention"),
    "twice": derive.Attention()(derive.Attention()(x)),
    "attention then ffn": derive.FFN("tanh")(x + derive.Attention()(x)),
}


@pytest.fixture
def values():
    rng = np.random.default_rng(0)
    drawn = {k: rng.integers(-6, 7, size=s) / 5 + 0.05 for k, s in SHAPES.items()}
    return {**drawn, "eps": 0.01}


def torch_reference(name, v):
    torch = pytest.importorskip("torch")
    t = {k: torch.tensor(np.asarray(a), dtype=torch.float64) for k, a in v.items()}
    nn = torch.nn.functional

    def attention(z):
        out = torch.zeros_like(z)
        for h in range(2):
            q, k, u = (z @ t[f"W_{letter}"][h].T for letter in "QKV")
            out = out + torch.softmax(q @ k.T, -1) @ u @ t["W_O"][h].T
        return out

    blocks = {
        "attention": attention,
        "post": lambda z: nn.layer_norm(z + attention(z), (2,), t["gain"], t["bias"], 0.01),
        "pre": lambda z: z + attention(nn.rms_norm(z, (2,), t["gain"], 0.01)),
        "twice": lambda z: attention(attention(z)),
        "attention then ffn": lambda z: nn.linear(
            torch.tanh(nn.linear(z + attention(z), t["W_1"], t["b_1"])), t["W_2"], t["b_2"]
        ),
    }
    return torch.func.jacrev(blocks[name])(t["x"]).reshape(6, 6).numpy()


@pytest.mark.torch
@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_are_those_of_the_sequence_jacobian(name, values):
    J = derive.jacobian(BLOCKS[name], x)
    found = np.array(explicit(J, SIZES, tokens=3, values=values).evalf(30), dtype=float)
    expected = torch_reference(name, values)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13 * np.abs(expected).max())


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_of_the_transpose_are_the_transposed_blocks(name, values):
    J = derive.jacobian(BLOCKS[name], x)
    found, back = (
        np.array(explicit(e, SIZES, tokens=3, values=values).evalf(20), dtype=float)
        for e in (J, J.T)
    )
    np.testing.assert_allclose(back, found.T, rtol=0, atol=1e-13 * np.abs(found).max())
    assert np.abs(back - found).max() > 1e-3


def test_what_acts_on_each_token_alone_is_diagonal():
    J = derive.jacobian(derive.block("post"), x)
    assert token_block(J, 0, 1) == sp.ZeroMatrix(*J.shape)
    assert token_block(J, 1, 1) != token_block(J, 2, 2)
    assert token_block(J).has(sp.KroneckerDelta(index("i"), index("j")))


def test_two_attentions_sum_over_the_token_in_between():
    shown = str(derive.derivation(BLOCKS["twice"], x).token_block())
    assert "sum_l_1" in shown


def test_scalars_belong_to_the_token_on_their_side():
    """Pre-norm: 1/r of the input token, right of the mixing; post-norm: of the output, left."""
    pre = str(derive.derivation(derive.block("pre", "rmsnorm", "attention"), x).token_block())
    post = str(derive.derivation(derive.block("post", "rmsnorm", "attention"), x).token_block())
    assert "(1/r[j])" in pre
    assert "(1/r[i])" in post


def test_causal_blocks_vanish_for_later_tokens():
    J = derive.jacobian(derive.block("pre", "layernorm", "causal-attention"), x)
    rng = np.random.default_rng(1)
    mask = np.tri(3)
    values = {k: rng.normal(size=s) for k, s in SHAPES.items()} | {"eps": 0.01}
    values |= {f"m[{i}, {j}]": mask[i, j] for i in range(3) for j in range(3)}
    found = np.array(explicit(J, SIZES, tokens=3, values=values).evalf(), dtype=float)
    blocks = found.reshape(3, 2, 3, 2).swapaxes(1, 2)
    assert np.abs(blocks[np.triu_indices(3, 1)]).max() == 0
    assert np.abs(blocks[np.tril_indices(3)]).min(axis=(1, 2)).max() > 0


def test_blocks_of_an_abstract_mixing_map_are_not_known():
    class Mixing(derive.Sublayer):
        mixes_tokens = True

    J = derive.jacobian(Mixing("M")(x), x)
    with pytest.raises(UnknownNodeError, match="its blocks are not known"):
        token_block(J)
