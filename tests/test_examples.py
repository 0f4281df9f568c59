"""Every example runs as a user runs it, and prints the numbers that it is there for."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(name: str, capsys: pytest.CaptureFixture[str]) -> str:
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return capsys.readouterr().out


def number(text: str, after: str) -> float:
    """The first number that follows `after`."""
    found = re.search(re.escape(after) + r"\s*([-+]?[\d.]+(?:e[-+]?\d+)?)", text)
    assert found, f"{after!r} is not followed by a number in:\n{text}"
    return float(found[1])


def test_derive_post_and_pre(capsys):
    shown = run("derive_post_and_pre.py", capsys)
    norm = "(1/s) diag(gain) (I - 11'/d - xhat xhat'/d)"
    assert f"dy/dx = {norm} (I + DF(x))\n" in shown
    assert f"dy/dx = I + DF(N(x)) {norm}\n" in shown
    assert shown.count("identity: holds") == 4
    assert shown.count("exact(d=3): holds") == 2
    assert "FAILS" not in shown


def test_own_block(capsys):
    shown = run("own_block.py", capsys)
    assert "diag(gain_2) (I - xhat_2 xhat_2'/d) DF(N_1(x)) (1/r_1) diag(gain_1)" in shown
    assert "(alpha I + DF(x))" in shown
    # central differences with h = 1e-6 in float64: rounding leaves about 1e-16/1e-6
    assert number(shown, "central differences:") < 1e-8


def test_depth_of_a_stack(capsys):
    shown = run("depth_of_a_stack.py", capsys)
    assert number(shown, "product minus all paths:") < 1e-14
    left_out = number(shown, "I + sum A_l:")
    assert 0 < left_out <= number(shown, "a = sum |A_l|:")
    # the cotangent that goes in has norm 1
    assert shown.split("l = 0..L:")[1].split("]")[0].split()[-1] == "1."
    assert shown.split("norm of S_k:")[1].split()[0] == "1.00e+00"


def test_thousand_layers(capsys):
    shown = run("thousand_layers.py", capsys)
    found = number(shown, "|dx_L/dx_0|, L = 1000:")
    assert found > number(shown, "log of a float:")
    assert found == number(shown, "L log(1 + a):") == 1098.6123  # 1000 log 3
    assert "1098.61 549.31" in shown


def test_norm_identities(capsys):
    lines = run("norm_identities.py", capsys).splitlines()
    assert [line.startswith("proved for every d") for line in lines] == [True] * 6 + [False] * 4
    assert all(line.startswith("rejected ") for line in lines[6:])


@pytest.mark.torch
@pytest.mark.transformers
def test_check_bert(capsys):
    pytest.importorskip("transformers")
    shown = run("check_bert.py", capsys)
    assert "BertLayer, post layernorm" in shown
    assert number(shown, "/ max |J_autodiff| =") <= 1e-12
    assert "in float64\nok: True" in shown
    assert number(shown, "as pre-norm:") > 1e-3
    assert shown.rstrip().endswith("ok: False")


def test_every_example_is_tested():
    tested = set(re.findall(r"run\(\"(\w+\.py)\"", Path(__file__).read_text()))
    assert tested == {path.name for path in EXAMPLES.glob("*.py")}


def test_advise_a_deep_stack(capsys):
    shown = run("advise_a_deep_stack.py", capsys)
    assert number(shown, "power, power") == 1.072
    # 1/sqrt(L): four times the depth, half the scale
    deep, shallow = (number(shown, f"{n} blocks: branch times") for n in (48, 12))
    assert abs(shallow / deep - 2) < 0.01
    low, high = number(shown, "interval"), number(shown, " to")
    assert low < 1.5 < high < number(shown, "without the scale:")
