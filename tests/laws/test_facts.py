"""The table of components, against draws and integrals."""

import json

import numpy as np
import pytest
import sympy as sp
from scipy.integrate import quad
from scipy.stats import chi2

from derive.cli import main
from derive.laws.facts import component_facts, norm_gradient
from derive.symbols import d, n

FACTS = {one.name: one for one in component_facts()}


@pytest.mark.parametrize(("removed", "free"), [(2, 1), (1, 0)])
def test_norms_at_finite_width(removed, free):
    """The chi-square integral, and draws of Jacobians written out; the limit of large d is out."""
    kept, inverse = norm_gradient(removed, free)
    width, draws = 8, 200_000
    integral = quad(lambda t: chi2.pdf(t, width - free) * width / t, 0, np.inf)[0]
    assert float(inverse.subs(d, width)) == pytest.approx(integral, rel=1e-8)
    rng = np.random.default_rng(3)
    x, g = rng.normal(size=(2, draws, width))
    c = x - x.mean(axis=1, keepdims=True) if free else x
    s = np.sqrt(np.mean(c**2, axis=1, keepdims=True))
    h = c / s
    back = (
        g - (g.mean(axis=1, keepdims=True) if free else 0) - h * np.mean(g * h, axis=1)[:, None]
    ) / s
    ratio = np.mean(back**2, axis=1)
    error = ratio.std() / np.sqrt(draws)
    assert abs(ratio.mean() - float((kept * inverse).subs(d, width))) < 5 * error
    assert abs(ratio.mean() - 1) > 5 * error
    assert sp.limit(kept * inverse, d, sp.oo) == 1


def test_norms_are_those_of_the_ledger():
    assert norm_gradient(2, 1) == ((d - 2) / d, d / (d - 3))
    assert norm_gradient(1, 0) == ((d - 1) / d, d / (d - 2))


def test_dropout_bias_and_embedding_are_what_draws_give():
    """Five standard errors of 200,000 draws of two tokens."""
    rng, draws, p = np.random.default_rng(5), 200_000, 0.3
    shared, own = rng.normal(size=draws), rng.normal(size=(2, draws))
    x = np.sqrt(0.4) * shared + np.sqrt(0.6) * own
    values = {"v": 1.0, "c": 0.4, "p": p, "b": 0.5}
    cases = {
        "dropout": x * (rng.random((2, draws)) > p) / (1 - p),
        "bias": x + np.sqrt(0.5) * rng.normal(size=draws),
    }
    for name, drawn in cases.items():
        for value, products in zip(
            FACTS[name].forward, (drawn[0] ** 2, drawn[0] * drawn[1]), strict=True
        ):
            expected = float(value.subs({s: values[s.name] for s in value.free_symbols}))
            assert abs(products.mean() - expected) < 5 * products.std() / np.sqrt(draws)
            assert abs(products.mean() - expected - 0.05) > 5 * products.std() / np.sqrt(draws)


def test_sublayers_in_the_table_are_those_of_the_laws():
    v, c = sp.Symbol("v", positive=True), sp.Symbol("c", real=True)
    mean = (v + (n - 1) * c) / n
    for got in FACTS["attention, uniform weights"].forward:
        assert sp.simplify(got - mean) == 0
    assert FACTS["ffn:relu"].forward[0] == v / 2
    assert FACTS["relu of normal entries"].forward == (v / 2, v / (2 * sp.pi))


def test_the_table_is_listed(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["list", "components", "--json"])
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == list(FACTS)
    assert all(row["assumption"] and row["source"] and row["latex"] for row in rows)
