"""`derive precision`: output, JSON, figures and mistakes."""

import pytest

from . import command

SMALL = ("--width", "4", "--tokens", "1", "--layers", "5")


def run(capsys, *args):
    return command.run(capsys, "precision", *args)


def rows_of(capsys, *args):
    return command.rows_of(capsys, "precision", *args)


def test_json_has_the_documented_keys(capsys):
    (row,) = rows_of(capsys, "pre", *SMALL)
    assert set(row) == {
        "placement",
        "layers",
        "width",
        "tokens",
        "seed",
        "dtype",
        "statistics",
        "residual",
        "unit_roundoff",
        "forward_errors",
        "gradient_errors",
        "gradient_norm_errors",
        "log_grad_norms",
        "forward_growth",
        "gradient_growth",
        "breakdown",
    }
    assert (row["dtype"], row["statistics"], row["residual"]) == ("bfloat16", "float32", "bfloat16")
    assert row["unit_roundoff"] == 2.0**-8
    assert len(row["forward_errors"]) == 6


def test_json_of_a_certified_run(capsys):
    pytest.importorskip("flint")
    (row,) = rows_of(capsys, "post", *SMALL, "--certified")
    assert set(row) == {
        "placement",
        "width",
        "tokens",
        "seed",
        "layers",
        "bits",
        "entry_error",
        "relative_error",
        "state_error",
        "singular_values",
    }
    assert set(row["singular_values"][0]) == {"answer", "lower", "upper", "error"}
    assert row["entry_error"]["lower"] <= row["entry_error"]["upper"] < 1e-13


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
def test_table(capsys, dtype):
    code, out, err = run(capsys, "pre", "post", *SMALL, "--dtype", dtype)
    assert (code, err) == (0, "")
    assert dtype in out
    assert "growth" in out


def test_a_run_that_breaks_down_is_told(capsys):
    args = ("pre", *SMALL, "--dtype", "float16", "--std", "1000")
    code, out, _ = run(capsys, *args)
    assert code == 0
    assert "breaks down at layer" in out
    (row,) = rows_of(capsys, *args)
    assert row["forward_errors"][-1] is None
    assert "float16" in row["breakdown"]


@pytest.mark.parametrize("layers", ["0", "1", "0,2"])
def test_edges_of_depth(capsys, layers):
    for extra in ((), ("--certified",)):
        if extra:
            pytest.importorskip("flint")
        args = ("pre", "--width", "4", "--tokens", "1", "--layers", layers, *extra)
        assert len(rows_of(capsys, *args)) == len(layers.split(","))


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_figure(capsys, tmp_path, suffix):
    pytest.importorskip("matplotlib")
    path = tmp_path / f"precision.{suffix}"
    code, _, err = run(capsys, "pre", "post", *SMALL, "--plot", str(path))
    assert (code, err) == (0, "")
    assert path.stat().st_size > 1000


def test_figure_shows_the_errors():
    pytest.importorskip("matplotlib")
    from derive.errors import ShapeError
    from derive.render.precision_figure import precision_figure

    row = {"placement": "pre", "dtype": "float16", "layers": 2}
    row |= {"forward_errors": [0.0, 1e-3, float("inf")], "gradient_errors": [0.2, 0.1, 0.0]}
    left, right = precision_figure([row]).axes
    assert left.get_lines()[0].get_ydata()[1] == 1e-3
    assert right.get_lines()[0].get_ydata()[0] == 0.2
    with pytest.raises(ShapeError, match="rows: expected at least one stack"):
        precision_figure([])


MISTAKES = {
    "dtype": (("pre", "--dtype", "fp8"), "dtype: expected one of float64, float32"),
    "statistics": (("pre", "--statistics", "int8"), "dtype: expected one of"),
    "layers": (("pre", "--layers", "x"), "--layers: expected integers"),
    "large": (("pre", "--certified"), "x: expected at most 96 entries"),
    "bits": (("pre", "--certified", "--bits", "8"), "--bits"),
    "certified figure": (("pre", "--certified", "--plot", "p.png"), "--plot: expected"),
    "weights": (("pre", *SMALL, "--dtype", "float16", "--std", "1e9"), "weight W_1: expected"),
    "overflow": (("pre", *SMALL, "--std", "1e300", "--dtype", "float64"), "overflow"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes_are_one_line(capsys, case):
    if "--certified" in MISTAKES[case][0]:
        pytest.importorskip("flint")
    args, message = MISTAKES[case]
    code, out, err = run(capsys, *args)
    assert (code, out) == (2, "")
    assert err.startswith("derive: ")
    assert err.count("\n") == 1
    assert message in err
