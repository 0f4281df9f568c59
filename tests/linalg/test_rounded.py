"""Rounding to narrow formats: against torch, against exact rationals, and operators that round."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from derive.errors import UnknownNameError, UnknownNodeError
from derive.linalg import Chain, Dense, Diagonal, Identity, Sum, materialise
from derive.linalg.rounded import FORMATS, Rounded, number_format, rounded

# digits, exponent of the smallest normal number, exponent of the largest
SHAPES = {"bfloat16": (8, -126, 127), "float16": (11, -14, 15), "float32": (24, -126, 127)}


def nearest(value, name):
    """Round an exact rational to nearest, ties to even, by the definition."""
    digits, low, high = SHAPES[name]
    exact = Fraction(value)
    if exact == 0:
        return value
    exponent = low
    while abs(exact) >= Fraction(2) ** (exponent + 1):
        exponent += 1
    step = Fraction(2) ** (exponent - digits + 1)
    count = exact / step
    whole = count.numerator // count.denominator
    rest = count - whole
    if rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2):
        whole += 1
    found = whole * step
    if abs(found) >= Fraction(2) ** (high + 1):
        return float("inf") if exact > 0 else float("-inf")
    return float(found)


@pytest.mark.parametrize("name", SHAPES)
@settings(max_examples=300, deadline=None)
@given(
    st.floats(allow_nan=False, allow_infinity=False, width=64)
    | st.floats(-4, 4, allow_nan=False)
    | st.floats(-1e-37, 1e-37, allow_nan=False)
    | st.integers(-(2**20), 2**20).map(float)
)
def test_rounding_is_to_nearest_even(name, value):
    found = float(FORMATS[name](np.array(value)))
    assert found == nearest(value, name)
    assert float(FORMATS[name](np.array(found))) == found


@pytest.mark.parametrize("name", SHAPES)
def test_ties_and_their_neighbours(name):
    """Halfway numbers go to the even one; a step of float64 away they do not."""
    digits, low, _ = SHAPES[name]
    step = 2.0 ** (1 - digits)
    for start in (1.0, 1.0 + step, 1.5, 2.0 - step, 2.0**low, 2.0 ** (low - digits + 1)):
        width = step * start if start >= 2.0**low * 2 else 2.0 ** (low - digits + 1)
        middle = start + width / 2
        for value in (middle, np.nextafter(middle, 0), np.nextafter(middle, 9), -middle):
            assert float(FORMATS[name](np.array(value))) == nearest(float(value), name)


def test_bfloat16_does_not_round_twice():
    """Just above a tie by less than float32 can show: through float32 it would go to even."""
    value = 1 + 2.0**-8 + 2.0**-40
    assert float(FORMATS["bfloat16"](np.array(value))) == 1 + 2.0**-7
    through_float32 = np.float32(value)
    assert through_float32 == np.float32(1 + 2.0**-8)


@pytest.mark.torch
@pytest.mark.parametrize("name", SHAPES)
def test_every_kind_of_float32_is_rounded_as_in_torch(name):
    torch = pytest.importorskip("torch")
    bits = np.random.default_rng(0).integers(0, 2**32, size=300_000, dtype=np.uint64)
    edges = np.array(
        [0, 1, 0x80000000, 0x7F7FFFFF, 0x7F7F7FFF, 0x7F7F8000, 0x7F800000, 0xFF800000, 0x7FC00000],
        dtype=np.uint64,
    )
    values = np.concatenate([bits, edges]).astype(np.uint32).view(np.float32)
    expected = torch.tensor(values).to(getattr(torch, name)).to(torch.float64).numpy()
    with np.errstate(invalid="ignore"):
        found = FORMATS[name](values.astype(np.float64))
    np.testing.assert_array_equal(found, expected)
    zero = found == 0
    assert zero.any()
    np.testing.assert_array_equal(np.signbit(found[zero]), np.signbit(expected[zero]))


@pytest.mark.torch
@pytest.mark.parametrize("name", ["bfloat16", "float32", "float16", "float64"])
def test_formats_have_the_unit_and_range_of_torch(name):
    torch = pytest.importorskip("torch")
    info = torch.finfo(getattr(torch, name))
    assert number_format(name).unit == info.eps / 2
    assert number_format(name).largest == info.max


def test_special_values_and_shapes():
    f = number_format("bfloat16")
    np.testing.assert_array_equal(f(np.array([np.inf, -np.inf])), [np.inf, -np.inf])
    assert np.isnan(f(np.array([np.nan]))).all()
    assert np.signbit(f(np.array(-0.0)))
    assert f(np.array(1.0)).shape == ()
    assert f(np.ones((2, 0, 3))).shape == (2, 0, 3)
    assert f(np.array([3.4e38, 1e300])).tolist() == [np.inf, np.inf]
    assert number_format("float64")(np.array([np.pi]))[0] == np.pi


def test_unknown_format_is_named():
    with pytest.raises(UnknownNameError, match=r"dtype: expected one of float64, .*got 'fp8'"):
        number_format("fp8")


# -- operators


def test_every_factor_and_term_is_rounded():
    f = number_format("bfloat16")
    draw = np.random.default_rng(1).normal
    a, b, c = draw(size=(5, 4)), draw(size=(4, 5)), draw(size=(1, 5))
    op = Sum(Identity(2, 5), Chain(Dense(a, 2), Dense(b, 2)), Diagonal(c, 2))
    narrow = rounded(op, f)
    x = f(draw(size=(2, 5)))
    expected = f(x + f(f(x @ b.T) @ a.T))
    expected = f(expected + f(c * x))
    np.testing.assert_array_equal((narrow @ x.ravel()).reshape(2, 5), expected)
    backwards = f(x + f(f(x @ a) @ b))
    backwards = f(backwards + f(c * x))
    np.testing.assert_array_equal(narrow.rmatvec(x.ravel()).reshape(2, 5), backwards)
    exact = op @ x.ravel()
    assert 0 < np.abs(narrow @ x.ravel() - exact).max() < 20 * f.unit * np.abs(exact).max()


def test_float64_changes_nothing():
    op = Chain(Dense(np.random.default_rng(0).normal(size=(3, 3)), 2), Identity(2, 3))
    narrow = rounded(op, number_format("float64"))
    np.testing.assert_array_equal(materialise(narrow), materialise(op))


def test_what_is_rounded_already_keeps_its_format():
    inner = Rounded(Dense(np.array([[1 / 3]]), 1), number_format("bfloat16"))
    outer = rounded(inner, number_format("float16"))
    assert outer is inner
    with pytest.raises(UnknownNodeError, match="op: expected an Operator, got ndarray"):
        Rounded(np.eye(2), number_format("float16"))
