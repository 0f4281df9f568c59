"""`derive lyapunov`: output, JSON, figures and mistakes."""

import math
import re

import pytest

from derive.errors import ShapeError
from derive.render.lyapunov_figure import lyapunov_figure

from . import command

SMALL = ("--width", "5", "--layers", "60", "--batches", "6")


def run(capsys, *args):
    return command.run(capsys, "lyapunov", *args)


def rows_of(capsys, *args):
    return command.rows_of(capsys, "lyapunov", *args)


def test_json_has_the_documented_keys(capsys):
    rows = rows_of(capsys, "post", "pre", *SMALL)
    assert [row["placement"] for row in rows] == ["post", "pre"]
    for row, nulls in zip(rows, (1, 0), strict=True):
        assert set(row) == {
            "placement",
            "width",
            "tokens",
            "seed",
            "layers",
            "transient",
            "batches",
            "batch",
            "exponents",
            "stderr",
            "null_directions",
            "kaplan_yorke",
            "sum",
            "finite_sum",
            "finite_sum_stderr",
            "rate",
            "running",
            "factorisations",
        }
        assert set(row["rate"]) == {"exponent", "low", "high", "confidence", "drift", "kind"}
        assert set(row["running"]) == {"layers", "top", "finite_sum"}
        assert (row["layers"], row["transient"]) == (54, 6)
        assert (row["batches"], row["batch"], row["tokens"]) == (6, 9, 1)
        assert len(row["exponents"]) == 5
        assert row["null_directions"] == nulls == row["exponents"].count(None)
        assert (row["sum"] is None) == bool(nulls)
        finite = row["exponents"][: 5 - nulls]
        assert finite == sorted(finite, reverse=True)
        assert row["finite_sum"] == pytest.approx(sum(finite))


def test_text_says_what_the_json_says(capsys):
    (row,) = rows_of(capsys, "post", *SMALL)
    code, out, err = run(capsys, "post", *SMALL)
    assert (code, err) == (0, "")
    assert f"1  {row['exponents'][0]:.5g}" in out
    assert re.search(r"^5  -inf +exact$", out, re.M)
    assert f"sum of the 4 finite exponents: {row['finite_sum']:.5g} +- " in out
    assert "post, 54 layers after a transient of 6, 6 batches of 9" in out
    assert "Kaplan-Yorke dimension: " in out
    assert f"95% interval [{row['rate']['low']:.4g}, {row['rate']['high']:.4g}]" in out
    assert f"54: {row['exponents'][0]:.4g}" in out


def test_tokens_have_a_null_direction_each(capsys):
    code, out, _ = run(
        capsys, "post", *SMALL, "--tokens", "3", "--sublayer", "attention", "--heads", "1"
    )
    assert code == 0
    assert re.search(r"^13-15  -inf +exact$", out, re.M)


def test_eps_zero_takes_one_more(capsys):
    (row,) = rows_of(capsys, "post", *SMALL, "--value", "eps=0")
    assert row["null_directions"] == 2


def test_everything_annihilated(capsys):
    """Two features at eps = 0: the normalised vector is (1, -1) or (-1, 1)."""
    code, out, _ = run(capsys, "post", "--width", "2", "--layers", "20", "--value", "eps=0")
    assert code == 0
    assert re.search(r"^1-2  -inf +exact$", out, re.M)
    assert "differences shrink" in out


def test_one_layer_has_no_error_bar(capsys):
    code, out, _ = run(capsys, "pre", "--layers", "1", "--width", "3")
    assert code == 0
    assert "one batch: no error bar" in out
    assert "nan" not in out


def test_drift_is_said(capsys):
    code, out, _ = run(
        capsys, "pre", "--layers", "100", "--width", "32", "--transient", "0", "--batches", "20"
    )
    assert code == 0
    assert "its batches have a trend (Mann-Kendall z = -" in out
    _, out, _ = run(capsys, "post", "--layers", "400", "--width", "4")
    assert "trend" not in out


def test_placements_of_every_kind(capsys):
    """Scalars at the start of training, several streams, mixtures over depth."""
    rows = rows_of(capsys, "deepnorm", "residual", "mix-ln", *SMALL)
    assert [len(row["exponents"]) for row in rows] == [5, 10, 5]
    assert [row["null_directions"] for row in rows] == [1, 1, 1]


def test_leading_exponents_only(capsys):
    (row,) = rows_of(capsys, "post", *SMALL, "--top", "2")
    assert len(row["exponents"]) == 2
    assert row["null_directions"] == 0
    assert row["sum"] is None
    code, out, _ = run(capsys, "post", *SMALL, "--top", "2")
    assert code == 0
    assert "sum" not in out


def test_long_spectra_show_their_ends(capsys):
    _, out, _ = run(capsys, "pre", "--width", "12", "--layers", "30")
    assert re.search(r"^4 .*\n\.\.\.\n9 ", out, re.M)


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_figure(capsys, tmp_path, kind):
    pytest.importorskip("matplotlib")
    path = tmp_path / f"spectrum.{kind}"
    code, _, err = run(capsys, "post", "pre", *SMALL, "--plot", str(path))
    assert (code, err) == (0, "")
    assert path.stat().st_size > 1000


def figure_row(exponents, stderr):
    return {
        "placement": "cost $5",
        "layers": 20,
        "exponents": exponents,
        "stderr": stderr,
        "running": {"layers": [10, 20], "top": [0.2, 0.1], "finite_sum": [0.0, 0.0]},
        "rate": {"low": 0.05, "high": 0.15},
    }


def test_figure_holds_the_finite_exponents_and_counts_the_others(tmp_path):
    pytest.importorskip("matplotlib")
    figure = lyapunov_figure([figure_row([0.1, -0.2, -math.inf], [0.01, math.nan, 0.0])])
    left, right = figure.axes
    bars = left.containers[0]
    assert bars.lines[0].get_xydata().tolist() == [[1, 0.1], [2, -0.2]]
    ends = [segment[:, 1].tolist() for segment in bars.lines[2][0].get_segments()]
    assert ends[0] == pytest.approx([0.08, 0.12])  # two standard errors
    assert left.get_legend().get_texts()[0].get_text() == r"cost \$5; 1 at $-\infty$"
    assert right.get_lines()[0].get_xydata().tolist() == [[10, 0.2], [20, 0.1]]
    assert right.collections[0].get_segments()[0].tolist() == [[20, 0.05], [20, 0.15]]
    figure.savefig(tmp_path / "figure.png")  # the labels are mathematics that matplotlib reads


@pytest.mark.parametrize(
    ("exponents", "drawn", "note"),
    [
        ([0.1, 0.0, -0.3, -11.8], 3, "; 1 at -11.8"),
        ([0.1, 0.0, -0.3, -11.8, -12.8, -math.inf], 3, r"; 2 from -12.8 to -11.8; 1 at $-\infty$"),
        ([0.1, 0.0, -0.3, -0.9], 4, ""),
        ([0.1, -5.0], 2, ""),
        ([0.0, 0.0, -5.0], 3, ""),
        ([-math.inf, -math.inf], 0, r"; 2 at $-\infty$"),
    ],
)
def test_far_exponents_do_not_flatten_the_others(exponents, drawn, note):
    pytest.importorskip("matplotlib")
    left = lyapunov_figure([figure_row(exponents, [0.0] * len(exponents))]).axes[0]
    assert len(left.containers[0].lines[0].get_xydata()) == drawn
    assert left.get_legend().get_texts()[0].get_text() == r"cost \$5" + note


def test_empty_figure_is_refused():
    with pytest.raises(ShapeError, match="rows: expected at least one stack"):
        lyapunov_figure([])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("post", "--layers", "0"), "layers: expected at least 1, got 0"),
        (("post", "--layers", "many"), "'many' is not a valid integer"),
        (("post", "--layers", "1e5"), "'1e5' is not a valid integer"),
        (("post", "--layers", "10", "--transient", "10"), "transient: expected 0 to 9"),
        (("post", "--layers", "10", "--transient", "-1"), "transient: expected 0 to 9"),
        (("post", "--layers", "10", "--batches", "0"), "batches: expected at least 1"),
        (("post", "--layers", "10", "--top", "0"), "count: expected an integer >= 1"),
        (("psot", "--layers", "10"), "placement: expected one of"),
        (("gamma*x + F(N(x))", "--layers", "10"), "gamma"),
        (("alpha*x + F(N(x))", "--layers", "10"), "--value alpha=1"),
        (("no-norm", "--layers", "900", "--width", "4", "--std", "100"), "got an overflow"),
        (("post", "--layers", "10", "--plot", "figure.gif"), "--plot: expected a name that ends"),
        ((), "Missing argument 'PLACEMENTS...'"),
    ],
)
def test_mistakes_are_one_line(capsys, arguments, message):
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert message in err
