"""`derive law`: text, LaTeX, JSON, figures, mistakes."""

import re

import pytest

from derive.blocks.placements import MIXES, PLACEMENTS, STREAMS
from derive.cli.law import _depths
from derive.errors import DomainError, ShapeError
from derive.laws.law import DepthLaw
from derive.render.law import law_latex, law_text
from derive.render.law_figure import law_figure

from . import command

KEYS = [
    "placement",
    "norm",
    "sublayer",
    "forward_law",
    "gradient_law",
    "layers",
    "predicted",
    "measured",
    "ci",
    "ok",
]
SMALL = ("--width", "24", "--seeds", "4", "--layers", "2")


def run(capsys, *args):
    return command.run(capsys, "law", *args)


def rows_of(capsys, *args):
    return command.rows_of(capsys, "law", *args)


def test_text_shows_moments_recursion_solution_and_numbers(capsys):
    code, out, err = run(capsys, "pre", "--layers", "6,12")
    assert (code, err) == (0, "")
    for line in (
        "pre, layernorm, ffn:relu, init lecun",
        "  sublayer F: variance 1 -> 1/2",
        "              gradient v_g -> v_g/2",
        "  v_l                 = v + 1/2",
        "  v_L             = L/2 + 1",
        "pre        12  7       7",
    ):
        assert line in out.splitlines()


def test_json_has_the_documented_keys(capsys):
    rows = rows_of(capsys, "pre", "post", "--layers", "6,12", "--sublayer", "attention,ffn:gelu")
    assert [list(row) for row in rows] == [KEYS] * 4
    assert [(r["placement"], r["layers"]) for r in rows] == [
        ("pre", 6),
        ("pre", 12),
        ("post", 6),
        ("post", 12),
    ]
    assert rows[0]["sublayer"] == "attention,ffn:gelu"
    assert set(rows[0]["predicted"]) == {"growth", "gradient_ratio"}
    assert rows[0]["measured"] is rows[0]["ci"] is rows[0]["ok"] is None


def test_monte_carlo_fills_the_rest_and_repeats(capsys):
    asked = ("sandwich", *SMALL, "--monte-carlo")
    (row,) = rows = rows_of(capsys, *asked)
    assert rows == rows_of(capsys, *asked)
    assert rows != rows_of(capsys, *asked, "--seed", "9")
    for what, mean in row["measured"].items():
        low, high = row["ci"][what]
        assert low <= mean <= high
    held = all(low <= row["predicted"][what] <= high for what, (low, high) in row["ci"].items())
    assert row["ok"] is held
    code, out, err = run(capsys, *asked)
    assert (code, err) == (0, "")
    assert re.search(r"sandwich +2 +3 +3 +\S+ \[\S+, \S+\] +\S+ \[\S+, \S+\] +(ok|no)$", out, re.M)
    assert "1 in 20 misses by chance" in out


def test_all_has_a_row_for_every_placement_and_reasons(capsys):
    rows = rows_of(capsys, "all", "--layers", "3")
    assert [r["placement"] for r in rows] == [*PLACEMENTS, *STREAMS, *MIXES]
    without = {r["placement"]: r for r in rows if r["predicted"] is None}
    assert set(without) == {"mhc"}
    for row in without.values():
        assert list(row) == KEYS
        assert row["forward_law"].startswith("none: values: no value for the scalar")
    code, out, _ = run(capsys, "all", "--layers", "3", "--sublayer", "ffn:silu")
    assert code == 0
    assert "mhc: none: values: no value for the scalar a" in out


def test_all_goes_on_where_one_law_overflows(capsys, monkeypatch):
    monkeypatch.setattr("derive.laws.law.LARGEST", 1e3)
    rows = rows_of(capsys, "all", "--layers", "24", "--sublayer", "ffn:relu")
    beyond = {r["placement"] for r in rows if "is beyond 1000" in r["forward_law"]}
    assert beyond == {"fixup", "no-norm", "pre-mlp"}


def test_a_value_makes_a_law(capsys):
    (row,) = rows_of(capsys, "admin", "--value", "omega=2", "--layers", "5")
    assert row["gradient_law"] == "|g_0|^2/|g_L|^2 = 1"


def test_correlations_reach_the_law(capsys):
    asked = ("post", "--sublayer", "attention", "--tokens", "16", "--layers", "64")
    (same,) = rows_of(capsys, *asked, "--gradient-correlation", "1")
    assert same["predicted"]["gradient_ratio"] == pytest.approx(16, rel=1e-6)
    (alike,) = rows_of(capsys, *asked, "--correlation", "1")
    assert alike["predicted"]["gradient_ratio"] == pytest.approx(1 / 16, rel=1e-6)
    asked = ("N(x + C(x))", "--sublayer", "attention", "--tokens", "4", "--layers", "5")
    (memory,) = rows_of(capsys, *asked, "--memory-correlation", "1")
    assert memory["predicted"]["gradient_ratio"] == pytest.approx(2**-5)


def test_latex(capsys):
    code, out, err = run(capsys, "lns", "--format", "latex")
    assert (code, err) == (0, "")
    assert out.startswith("\\begin{align*}\n\\Phi_l(v) &= v + \\frac{1}{2 l} \\\\\n")
    assert "v_L &= \\frac{H_{L}}{2} + 1" in out
    assert out.rstrip().endswith("\\end{align*}")
    assert law_latex(DepthLaw("mix-ln")).startswith("% mix-ln: evaluated block by block: the plac")
    mixed = law_latex(DepthLaw("pre", sublayers=("attention",), tokens=2))
    assert "v_{g,l-1} &=" in mixed


def test_text_says_why_there_is_no_closed_form():
    for law, why in (
        (DepthLaw("residual"), "the streams have moments of their own"),
        (DepthLaw("mix-ln"), "the placement changes with depth"),
        (DepthLaw("b2t"), "sublayers of several kinds take turns"),
        (DepthLaw("res-post", sublayers=("ffn:silu",)), "no moments in closed form where v is"),
        (DepthLaw("normed-residual", sublayers=("attention",)), "attention mixes tokens"),
        (DepthLaw("no-norm", sublayers=("ffn:gelu",)), "no rule solves it"),
    ):
        assert "evaluated block by block: " in law_text(law)
        assert why in law_text(law)
    long = law_text(DepthLaw("no-norm", sublayers=("ffn:gelu",)))
    assert max(map(len, long.splitlines())) < 160


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_figures(capsys, tmp_path, suffix):
    target = tmp_path / f"laws.{suffix}"
    code, _, err = run(capsys, "pre", "lns", *SMALL, "--monte-carlo", "--plot", str(target))
    assert (code, err) == (0, "")
    assert target.stat().st_size > 1000


def test_the_legend_of_many_curves_stands_beside_them(tmp_path):
    rows = [
        {"placement": str(k), "norm": "n", "sublayer": "s", "layers": layers}
        | {"predicted": {"growth": 1.0 + k, "gradient_ratio": 0.5}, "measured": None}
        for k in range(20)
        for layers in (1, 4)
    ]
    figure = law_figure(rows)
    assert len(figure.legends[0].get_texts()) == 20
    assert not law_figure(rows[:4]).legends


def test_a_figure_needs_a_law():
    with pytest.raises(ShapeError, match="rows: expected at least one law"):
        law_figure([])


def test_depths_are_read():
    assert _depths("6,12") == [6, 12]
    assert _depths("1..192") == [1, 2, 4, 8, 16, 32, 64, 128, 192]
    assert _depths("3..4, 4") == [3, 4]
    for text in ("", "a", "0", "4..2", "1..", "6,-1", "1.5"):
        with pytest.raises(DomainError, match="--layers: expected integers"):
            _depths(text)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("nonsense",), "placement: expected one of"),
        (("all", "pre"), "placement: expected one of"),
        (("pre", "--layers", "0"), "--layers: expected integers >= 1"),
        (("pre", "--layers", "many"), "--layers: expected integers such as 6,12,24 or 1..192"),
        (("pre", "--sublayer", "nonsense"), "sublayer: expected one of"),
        (("pre", "--sublayer", ","), "sublayers: expected at least one, got none"),
        (("pre", "--sublayer", "abstract"), "whose moments are known"),
        (
            ("pre", "--sublayer", "causal-attention", "--tokens", "4", "--scores", "gaussian"),
            "with a causal mask",
        ),
        (("pre", "--scores", "peaked"), "scores: expected one of uniform, gaussian"),
        (("pre", "--dropout", "1"), "dropout: expected from 0 to below 1"),
        (("pre", "--dropout", "0.1", "--monte-carlo"), "dropout: expected 0, as in the stacks"),
        (("pre", "--start", "0"), "start: expected above 0"),
        (("pre", "--norm", "dyt"), "norm: expected LayerNorm, RMSNorm or L2Norm"),
        (("pre", "--init", "nonsense"), "init: expected one of lecun, xavier"),
        (("pre", "--tokens", "0"), "tokens: expected at least 1, got 0"),
        (("pre", "--width", "2"), "width: expected at least 3, got 2"),
        (("pre", "--hidden", "0"), "hidden: expected at least 1, got 0"),
        (("pre", "--correlation", "2"), "correlation: expected -1 to 1"),
        (("pre", "--correlation", "nan"), "correlation: expected -1 to 1"),
        (("pre", "--memory-correlation", "2"), "memory: expected"),
        (("pre", "--monte-carlo", "--seeds", "1"), "seeds: expected at least 2, got 1"),
        (("all", "--layers", "2", "--sublayer", "abstract"), "sublayer: expected ffn, gated"),
        (("all", "--width", "2"), "width: expected at least 3, got 2"),
        (("no-norm", "--layers", "3000"), "layers: expected fewer, the mean square after block"),
        (("no-norm", "--sublayer", "ffn:silu", "--layers", "3000"), "is beyond 1e+150"),
        (("N(alpha*x)", "--value", "alpha=0"), "norm: expected an argument that is not 0"),
        (("pre", "--plot", "laws.txt"), "--plot: expected a name that ends in"),
        (
            ("pre", "--sublayer", "attention", "--heads", "5", "--width", "8", "--monte-carlo"),
            "heads: expected a divisor of the width 8, got 5",
        ),
    ],
)
def test_mistakes_are_one_line(capsys, args, message):
    code, out, err = run(capsys, *args)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_weights_are_shown_by_matrix(capsys):
    code, out, err = run(capsys, "pre", "--layers", "48", "--weights")
    assert (code, err) == (0, "")
    assert "  |dL/dW_2|^2/|g_L|^2 = 2*d*(L + 2)/(l + 2)" in out.splitlines()
    assert re.search(r"^pre +48 +W_1 +1067 +123.1 +64 +4.082$", out, re.M)
    code, out, err = run(capsys, "post", *SMALL, "--weights", "--monte-carlo")
    assert (code, err) == (0, "")
    assert re.search(r"^post +2 +W_2 +\S+ \[\S+, \S+\] .* [0-2] of 2$", out, re.M)


def test_weights_in_json_have_the_documented_keys(capsys):
    asked = ("residual", "--sublayer", "attention,ffn:relu", "--tokens", "3", *SMALL, "--weights")
    (row,) = rows_of(capsys, *asked)
    assert list(row) == [*KEYS, "weight_gradients"]
    found = row["weight_gradients"]
    assert set(found) == {"W_O", "W_V", "W_K", "W_Q", "W_1", "W_2"}
    assert found["W_1"]["predicted"][0] is None
    assert found["W_1"]["predicted"][1] > 0
    assert found["W_1"]["measured"] is found["W_1"]["ok"] is None
    (row,) = rows_of(capsys, *asked, "--monte-carlo", "--backend", "torch")
    for one in row["weight_gradients"].values():
        assert list(one) == ["law", "predicted", "measured", "ci", "ok"]
        for value, mean, ends, held in zip(*list(one.values())[1:], strict=True):
            if value is None:
                assert mean is ends is held is None
            else:
                assert ends[0] <= mean <= ends[1]
                assert held is (ends[0] <= value <= ends[1]) or value == 0
    assert row["weight_gradients"]["W_K"]["measured"] == [0.0, None]


def test_weight_laws_in_latex(capsys):
    code, out, err = run(capsys, "lns", "sub-ln", "parallel", "--weights", "--format", "latex")
    assert (code, err) == (0, "")
    assert r"\partial W_{1}\rVert_F^2}{\mathbb{E}|g_L|^2} &= \frac{d \left(H_{L} + 2\right)}" in out
    assert "harmonic" not in out
    assert out.count(r"\begin{align*}") == out.count(r"\end{align*}") == 4
    assert "% parallel: weight gradients are evaluated block by block" in out


def test_backends_of_the_command_agree(capsys):
    asked = ("post", *SMALL, "--monte-carlo", "--sublayer", "ffn:gelu")
    (derived,), (by_torch,) = (
        rows_of(capsys, *asked, "--backend", b) for b in ("derived", "torch")
    )
    for what, mean in derived["measured"].items():
        assert by_torch["measured"][what] == pytest.approx(mean, rel=1e-10)
    (single,) = rows_of(capsys, *asked, "--backend", "torch", "--dtype", "float32")
    assert single["measured"]["gradient_ratio"] != by_torch["measured"]["gradient_ratio"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--dtype", "float32", "--monte-carlo"), "dtype: expected float64 for derived Jacobians"),
        (("--backend", "jax"), "'jax' is not one of 'derived', 'torch'"),
    ],
)
def test_backend_mistakes_are_one_line(capsys, options, message):
    code, out, err = run(capsys, "pre", *SMALL, *options)
    assert code == 2
    assert message in err
    assert not out
