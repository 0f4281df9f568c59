"""Contractions of named axes against numpy.einsum without optimisation."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from derive.linalg.tensor import contract

SIZES = dict(zip("abcdef", (2, 3, 1, 4, 2, 3), strict=True))


@st.composite
def contractions(draw):
    count = draw(st.integers(1, 5))
    labels = [
        tuple(draw(st.permutations(sorted(draw(st.sets(st.sampled_from("abcdef"), max_size=3))))))
        for _ in range(count)
    ]
    present = sorted(set().union(*labels))
    output = tuple(draw(st.permutations([s for s in present if draw(st.booleans())])))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    arrays = [rng.standard_normal([SIZES[s] for s in names]) for names in labels]
    return list(zip(arrays, labels, strict=True)), output


@settings(max_examples=200, deadline=None)
@given(contractions())
def test_contract_is_einsum(case):
    operands, output = case
    spec = ",".join("".join(labels) for _, labels in operands) + "->" + "".join(output)
    expected = np.einsum(spec, *(array for array, _ in operands))
    np.testing.assert_allclose(contract(operands, output), expected, atol=1e-12)


@pytest.mark.parametrize("count", [9, 10, 14])
def test_many_operands(count):
    rng = np.random.default_rng(count)
    names = [f"s{k}" for k in range(count + 1)]
    chain = [rng.standard_normal((3, 3)) for _ in range(count)]
    operands = [(matrix, (names[k], names[k + 1])) for k, matrix in enumerate(chain)]
    order = rng.permutation(count)
    result = contract([operands[k] for k in order], (names[0], names[-1]))
    np.testing.assert_allclose(result, np.linalg.multi_dot(chain), rtol=1e-10, atol=1e-9)


def test_the_order_avoids_large_intermediates():
    from derive.linalg.tensor import _order

    # (u v') (w x') y through the vector: never the outer product first.
    shapes = ((500,), (500,), (500,), (500,), (500, 1))
    names = (("r",), ("a",), ("a",), ("c",), ("c", "z"))
    first, second = _order(names, shapes, ("r", "z"))[0]
    assert {first, second} in ({1, 2}, {3, 4})
