"""Derived Jacobians against blocks written by hand, entry by entry: three oracles."""

from __future__ import annotations

import mpmath
import pytest
import sympy as sp

import derive

from . import engine, oracles
from .engine import STATE, block_of, digits, exact
from .oracles import MPMATH, PLACEMENTS, SYMPY, by_hand, distance

NORMS = ("layernorm", "rmsnorm")
ABSTRACT = {"F": "F", "A": "A"}

# Both sides are right to about 50 digits; what is left is the truncation of the differences,
# h^2 = 1e-52 times third derivatives that reach 1e5 for these weights.
AGREE = mpmath.mpf(10) ** -42


def with_attention(kind):
    """Return maps in which `kind` is the sublayer and the layer also has attention."""
    return {"F": kind, "A": "attention"} if kind != "F" else ABSTRACT


def rational_roots(placement, norm, maps, w, **options):
    """Return the weights with an eps per norm for which every root is rational."""
    w, order = dict(w), []
    hand = by_hand(SYMPY, w, norm, maps, **options)
    for label, name in (("", "N"), ("_1", "N1"), ("_2", "N2")):
        inner = getattr(hand, name)

        def choosing(x, inner=inner, label=label):
            if label not in order:
                order.append(label)
                w[f"eps{label}"] = oracles.rational_eps(norm, x[0])
            return inner(x)

        setattr(hand, name, choosing)
    PLACEMENTS[placement](hand, w["x"])
    return w


RATIONAL_MAPS = {
    "abstract": ABSTRACT,
    "ffn:relu": {"F": "ffn:relu", "A": "A"},
    "gated:relu": {"F": "gated:relu", "A": "A"},
}


def rational_cases():
    """Return placements whose roots can all be rational: one eps cannot serve two roots."""
    for placement in PLACEMENTS:
        wanted = [("abstract", 2)]
        if placement in ("post", "pre"):
            wanted += [("abstract", 3), ("abstract", 4), ("ffn:relu", 3), ("gated:relu", 2)]
        if placement != "x + N(F(N(x)))" and not placement.startswith("layer"):
            for norm in NORMS:
                for kind, d in wanted:
                    name = f"{placement}-{norm}-{kind}-d={d}"
                    yield pytest.param(placement, norm, RATIONAL_MAPS[kind], d, id=name)


@pytest.mark.parametrize(("placement", "norm", "maps", "d"), list(rational_cases()))
def test_rational_entries_equal_sympys_jacobian_exactly(placement, norm, maps, d):
    options = {"gain": d != 2, "bias": d != 3}  # also without gain, also without bias
    w = oracles.random_weights(d, n=1, seed=d)
    w = rational_roots(placement, norm, maps, w, **options)
    block = block_of(placement, norm, maps, **options, own_eps=True)
    found = exact(derive.jacobian(block, STATE), w)
    hand = by_hand(SYMPY, w, norm, maps, **options)
    expected = oracles.sympy_jacobian(lambda x: PLACEMENTS[placement](hand, x), w["x"])
    assert all(v.is_Rational for v in expected.ravel())
    assert (found == expected).all()


@pytest.mark.parametrize("d", [2, 3])
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("placement", ["post", "pre"])
def test_eps_zero_entries_equal_sympys_jacobian(placement, norm, d):
    w = oracles.random_weights(d, n=1, seed=d) | {"eps": sp.Integer(0)}
    block = derive.block(placement, derive.norm(norm, eps=0, bias=False))
    found = exact(derive.jacobian(block, STATE), w)
    hand = by_hand(SYMPY, w, norm, ABSTRACT, bias=False)
    expected = oracles.sympy_jacobian(lambda x: PLACEMENTS[placement](hand, x), w["x"])
    assert all(sp.expand(sp.radsimp(v)) == 0 for v in (found - expected).ravel())


@pytest.mark.parametrize(
    ("placement", "norm", "kind", "heads", "d_h"),
    [
        ("post", "layernorm", "attention", 2, 1),
        ("pre", "layernorm", "causal-attention", 2, 1),
        ("pre", "rmsnorm", "rotary-attention", 1, 4),
    ],
)
def test_attention_entries_equal_sympys_jacobian_at_50_digits(placement, norm, kind, heads, d_h):
    maps = {"F": kind, "A": "A"}
    w = oracles.random_weights(2, n=2, heads=heads, d_h=d_h, seed=3)
    found = digits(derive.jacobian(block_of(placement, norm, maps), STATE), w, "causal" in kind)
    hand = by_hand(SYMPY, w, norm, maps)
    x = engine.as_floats(w)["x"]
    expected = engine.as_digits(oracles.sympy_jacobian(lambda x: PLACEMENTS[placement](hand, x), x))
    assert distance(found, expected) < mpmath.mpf(10) ** -45  # no truncation here


CONCRETE = (
    "F",
    *(f"ffn:{act}" for act in oracles.ACTIVATIONS),
    "gated:silu",
    "gated:gelu_tanh",
    "attention",
    "causal-attention",
    "rotary-attention",
)


def difference_oracle(placement, norm, maps, w):
    w = oracles.as_mpmath(w)
    hand = by_hand(MPMATH, w, norm, maps)
    return oracles.differences(lambda x: PLACEMENTS[placement](hand, x), w["x"])


def cases():
    for placement in PLACEMENTS:
        for norm in NORMS:
            for kind in CONCRETE:
                two = placement.startswith(("layer", "x + A"))
                if two and kind not in ("F", "ffn:gelu", "gated:silu"):
                    continue  # the others were seen in the placements with one sublayer
                yield pytest.param(placement, norm, kind, id=f"{placement}-{norm}-{kind}")


@pytest.mark.parametrize(("placement", "norm", "kind"), list(cases()))
def test_entries_equal_50_digit_differences(placement, norm, kind):
    maps = with_attention(kind)
    two = placement.startswith(("layer", "x + A"))
    mixes = "attention" in kind or (two and kind != "F")
    with mpmath.workdps(80):
        w = oracles.random_weights(4, n=2 if mixes else 1, seed=4)
        expected = difference_oracle(placement, norm, maps, w)
    found = digits(derive.jacobian(block_of(placement, norm, maps), STATE), w, "causal" in kind)
    assert distance(found, expected) < AGREE


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("wrong", ["pre", "x + N(F(N(x)))", "N(alpha*x + F(x))"])
def test_differences_reject_another_placement(wrong, norm):
    maps = {"F": "ffn:gelu", "A": "A"}
    with mpmath.workdps(80):
        w = oracles.random_weights(4, n=1, seed=4)
        expected = difference_oracle("post", norm, maps, w)
    found = digits(derive.jacobian(block_of(wrong, norm, maps), STATE), w)
    assert distance(found, expected) > 0.01


def test_relu_is_checked_away_from_its_corner():
    w = oracles.random_weights(4, n=1, seed=4)
    for x in (w["x"], oracles.NORMS["layernorm"](SYMPY, w["x"], w["gain"], w["bias"], w["eps"])):
        assert all(abs(v) > 1e-3 for v in (x.dot(w["W_1"].T) + w["b_1"]).ravel())
