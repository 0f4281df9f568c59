"""`derive spectrum`: output, JSON, figures and mistakes."""

import math
import re

import numpy as np
import pytest

from . import command

SMALL = ("--width", "6", "--tokens", "1", "--layers", "3")
KEYS = {"placement", "layers", "width", "tokens", "seed", "product", "rank_tol", "depths"}
DEPTH_KEYS = {
    "depth",
    "log_norm",
    "log_frobenius",
    "numerical_rank",
    "log_condition",
    "effective_rank",
    "participation_ratio",
    "alignment",
    "method",
    "null_directions",
    "log_singular_values",
}


def rows_of(capsys, *args):
    return command.rows_of(capsys, "spectrum", *args)


def test_json_has_the_documented_keys(capsys):
    (row,) = rows_of(capsys, "pre", *SMALL)
    assert set(row) == KEYS
    assert [d["depth"] for d in row["depths"]] == [0, 1, 2, 3]
    for depth in row["depths"]:
        assert set(depth) == DEPTH_KEYS
        logs = depth["log_singular_values"]
        assert len(logs) == 6
        assert logs == sorted(logs, reverse=True)
        assert depth["log_norm"] == logs[0]
        assert depth["log_condition"] == pytest.approx(logs[0] - logs[-1], abs=1e-14)
    assert row["depths"][0]["alignment"] is None


def test_what_is_infinite_is_null(capsys):
    (row,) = rows_of(capsys, "post", *SMALL)
    last = row["depths"][-1]
    assert last["null_directions"] == 1
    assert last["log_condition"] is None
    assert last["log_singular_values"][-1] is None


def test_both_sides_meet_at_the_whole_stack(capsys):
    (forward,) = rows_of(capsys, "pre", *SMALL)
    (backward,) = rows_of(capsys, "pre", *SMALL, "--side", "output")
    assert (forward["product"], backward["product"]) == ("dx_l/dx_0", "dx_L/dx_l")
    whole, same = (r["depths"][k]["log_singular_values"] for r, k in ((forward, 3), (backward, 0)))
    np.testing.assert_allclose(whole, same, atol=1e-12)
    assert backward["depths"][3]["log_norm"] == 0.0


def test_the_rank_takes_the_tolerance(capsys):
    (row,) = rows_of(capsys, "pre", *SMALL, "--tol", "0.5", "--std", "3")
    assert row["rank_tol"] == 0.5
    for depth in row["depths"]:
        values = np.exp(depth["log_singular_values"])
        assert depth["numerical_rank"] == np.count_nonzero(values > 0.5 * values[0])


def test_extreme_triplets_and_weights(capsys):
    (row,) = rows_of(capsys, "pre", *SMALL, "--top", "2", "--bottom", "1", "--weights")
    (whole,) = rows_of(capsys, "pre", *SMALL)
    assert set(row) == KEYS | {"top", "bottom", "weight_log_norms"}
    assert row["depths"] == []
    values = whole["depths"][-1]["log_singular_values"]
    found = [t["log_value"] for t in row["top"] + row["bottom"]]
    np.testing.assert_allclose(found, [values[0], values[1], values[-1]], atol=1e-12)
    assert set(row["top"][0]) == {"log_value", "residual_right", "residual_left", "method"}
    assert set(row["bottom"][0]) == set(row["top"][0]) | {"inverse_residual"}
    assert len(row["weight_log_norms"]) == 3
    assert set(row["weight_log_norms"][0]) == {"W_1", "W_2", "b_1", "b_2", "bias", "gain"}
    assert all(math.isfinite(v) for v in row["weight_log_norms"][0].values())


def test_tables(capsys):
    args = ("spectrum", "pre", "post", *SMALL, "--weights", "--sublayer", "gated")
    code, out, err = command.run(capsys, *args)
    assert (code, err) == (0, "")
    assert "pre, L = 3: dx_l/dx_0, 6 singular values, rank above 1.3e-15\n" in out
    assert "\nl  log norm  log Frobenius  rank  null  log condition  effective rank  alig" in out
    assert "post, L = 3: log|dL/dW| by layer\n" in out
    assert re.search(r"\nlayer +W_down +W_gate +W_up +bias +gain\n0 ", out)
    code, out, _ = command.run(capsys, "spectrum", "pre", *SMALL, "--top", "1", "--bottom", "2")
    assert code == 0
    assert "pre, L = 3: top of dx_L/dx_0\nk  log sigma" in out
    assert "of the inverse" in out


@pytest.mark.parametrize("layers", ["0", "1", "0,2"])
@pytest.mark.parametrize("placement", ["pre", "post", "x", "N(x)"])
def test_edges_of_depth(capsys, layers, placement):
    args = (placement, "--width", "2", "--tokens", "1", "--layers", layers, "--every", "--weights")
    rows = rows_of(capsys, *args)
    depths = [int(k) for k in layers.split(",")]
    assert [r["layers"] for r in rows] == depths
    assert [len(r["depths"]) for r in rows] == [d + 1 for d in depths]
    assert [len(r["weight_log_norms"]) for r in rows] == depths


def test_long_stacks_list_nine_depths_and_every_where_asked(capsys):
    args = ("pre", "--width", "2", "--tokens", "1", "--layers", "24")
    (row,) = rows_of(capsys, *args)
    assert [d["depth"] for d in row["depths"]] == list(range(0, 25, 3))
    (row,) = rows_of(capsys, *args, "--every")
    assert [d["depth"] for d in row["depths"]] == list(range(25))


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_figures(capsys, tmp_path, suffix):
    pytest.importorskip("matplotlib")
    spectrum, tokens = tmp_path / f"s.{suffix}", tmp_path / f"t.{suffix}"
    args = ("pre", "post", "--width", "4", "--tokens", "2", "--layers", "5")
    drawn = ("--plot", spectrum, "--tokens-map", tokens)
    code, _, err = command.run(capsys, "spectrum", *args, *map(str, drawn))
    assert (code, err) == (0, "")
    assert spectrum.stat().st_size > 1000
    assert tokens.stat().st_size > 1000


def test_the_map_of_tokens_is_in_the_json(capsys, tmp_path):
    pytest.importorskip("matplotlib")
    args = ("--width", "4", "--tokens", "2", "--layers", "2", "--heads", "2")
    drawn = ("--sublayer", "causal-attention", "--tokens-map", str(tmp_path / "t.png"))
    (row,) = rows_of(capsys, "pre", *args, *drawn)
    (first, second) = row["token_log_norms"]
    assert first[1] is None
    assert all(math.isfinite(v) for v in (first[0], *second))


def test_what_the_figures_show():
    pytest.importorskip("matplotlib")
    from derive.errors import ShapeError
    from derive.render.spectrum_figure import spectrum_figure, token_map_figure

    row = {
        "placement": "post",
        "layers": 2,
        "width": 4,
        "product": "dx_l/dx_0",
        "drawn": [
            {"depth": 0, "log_singular_values": [0.0, 0.0, 0.0, 0.0]},
            {"depth": 2, "log_singular_values": [math.log(100), 0.0, -100.0, -math.inf]},
        ],
        "token_log_norms": [[math.log(10), -math.inf], [0.0, math.log(100)]],
    }
    (axes,) = spectrum_figure([row]).axes
    lines = {line.get_label(): line.get_ydata() for line in axes.lines}
    np.testing.assert_allclose(lines["largest"], [0, 2])
    np.testing.assert_allclose(lines["smallest (to $10^{-43}$)"], [0, -100 / math.log(10)])
    assert axes.get_ylim()[0] < np.log10(2.0**-52) - 4 < axes.get_ylim()[0] + 2
    np.testing.assert_allclose(
        lines["rounding of the largest"], np.log10([2.0**-52, 2.0**-52 * 100])
    )
    assert axes.get_title() == "post, L = 2, d = 4, 1 null"
    heat = token_map_figure([row]).axes[0].images[0].get_array()
    np.testing.assert_allclose(heat.filled(np.nan), [[1, np.nan], [0, 2]])
    for figure in (spectrum_figure, token_map_figure):
        with pytest.raises(ShapeError, match="rows: expected at least one stack"):
            figure([])


MISTAKES = {
    "layers": (("pre", "--layers", "six"), "--layers: expected integers such as 6,12,24"),
    "placement": (("psot",), "placement: expected one of"),
    "top": (("pre", *SMALL, "--top", "7"), "k: expected 1 to 6 singular values, got 7"),
    "singular": (("post", *SMALL, "--bottom", "1"), "factors[2]: expected a matrix that can be"),
    "too large": (
        ("pre", "--width", "8", "--tokens", "300", "--layers", "1", "--sublayer", "attention"),
        "factors: expected blocks of at most 2048 rows and columns to take every",
    ),
    "no layers, no map": (
        ("pre", "--layers", "0", "--tokens-map", "t.png"),
        "factors: expected at least one factor",
    ),
    "plot of extremes": (
        ("pre", *SMALL, "--top", "1", "--plot", "s.png"),
        "--plot: expected the whole spectrum, which --top and --bottom skip",
    ),
    "suffix": (
        ("pre", *SMALL, "--tokens-map", "t.doc"),
        "--tokens-map: expected a name that ends in .pdf, .png, .svg",
    ),
    "side": (("pre", "--side", "top"), "'top' is not one of 'input', 'output'"),
    "tolerance": (("pre", "--tol", "1"), "1.0 is not in the range 0<=x<1"),
    "width": (("pre", "--width", "1"), "width: expected at least 2, got 1"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes_are_one_line_and_exit_two(case, capsys, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    args, message = MISTAKES[case]
    code, out, err = command.run(capsys, "spectrum", *args)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())
