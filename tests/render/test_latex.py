"""LaTeX: well-formed without TeX, and compiled once with every case."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
import sympy as sp

import derive
from derive.calculus.printing import latex
from derive.render.latex import derivation_latex, derivation_tex, document_tex, escaped
from derive.render.linebreak import broken, width

from .cases import CASES, FURTHER, derived, name
from .latex_rules import complaints


def test_well_formed(D):
    fragment = derivation_latex(D)
    assert complaints(fragment) == []
    assert r"\frac{\partial y}{\partial x}" in fragment


def test_steps_and_definitions_print_well(D):
    pieces = {latex(e) for s in D.steps for e in (s.before, s.after)}
    pieces |= {latex(e) for pair in D.definitions.items() for e in pair} | {latex(D.token_block())}
    assert {p: complaints(p) for p in pieces if complaints(p)} == {}


def test_sympy_prints_the_same(D):
    assert sp.latex(D.jacobian) == latex(D.jacobian)
    assert str(D.jacobian) == derive.calculus.printing.text(D.jacobian)


def test_a_gate_is_a_path_of_its_own():
    D = derived(("pre", "layernorm", "softcap"))
    assert derivation_latex(D).count("(gate path)") == 1


def test_only_mixing_blocks_have_paths(D):
    labels = [p for p in ("value", "key", "query") if f"({p} path)" in derivation_latex(D)]
    assert labels == (["value", "key", "query"] if D.mixes_tokens else [])


@pytest.mark.parametrize(
    ("bad", "complaint"),
    [
        (r"\frac{1}{s", "braces do not balance"),
        (r"x_{}", "empty subscript or superscript"),
        (r"x^{2}^{\top}", "double script"),
        (r"W_out_proj out_proj", "a Python name with an underscore"),
        (r"\bigl(x\Bigr)", "left and right delimiters do not match"),
        (r"\begin{align*}x", "begin and end do not match"),
        (r"Expr(x)", "a node printed by its class"),
        (r"x + -y", "two signs in a row"),
    ],
)
def test_the_rules_can_fail(bad, complaint):
    assert complaint in complaints(bad)


@pytest.mark.parametrize("line", [30.0, 45.0])
def test_lines_fit_where_they_can(D, line):
    for step in D.steps:
        for piece in broken(latex(step.after), line, line):
            assert width(piece) <= line


def test_breaking_loses_nothing(D):
    for step in D.steps:
        body = latex(step.after)
        joined = "".join(
            re.sub(r"^\\quad (\\qquad )*(\{\}|\\cdot )", "", piece)
            for piece in broken(body, 12.0, 12.0)
        )
        assert re.sub(r"\\,|\s", "", joined) == re.sub(r"\\,|\s", "", body)


@pytest.mark.parametrize("words", ["a & b", "50%", "x_y", "#1", "$", "{", "\\", "^~", '<"|>'])
def test_text_is_escaped(words):
    assert not re.search(r"(?<!\\)[&%#$]", escaped(words))
    assert not re.search(r"(?<!\\)_", escaped(words))


def test_documents_need_no_exotic_package(sample):
    packages = re.findall(r"\\usepackage(?:\[.*?\])?\{(.*?)\}", derivation_tex(sample))
    assert set(packages) == {"amsmath", "amssymb", "geometry"}


def compiled(source: str, folder) -> str:
    """Log of pdflatex, after an assertion that it found no error."""
    (folder / "all.tex").write_text(source, encoding="utf-8")
    run = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"],
        cwd=folder,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=300,
    )
    log = (folder / "all.log").read_text(errors="replace")
    assert run.returncode == 0, log[-2000:]
    return log


def overfull(log: str) -> list[float]:
    return [
        float(pt) for pt in re.findall(r"Overfull \\[hv]box \(([\d.]+)pt too (?:wide|high)", log)
    ]


needs_tex = pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")


@pytest.mark.tex
@needs_tex
def test_every_case_compiles_and_stays_on_the_page(tmp_path):
    sections = [
        (
            name(case),
            derivation_latex(derived(case)),
            r"Text with _it_ & {more} \ ~^ <> of 100% at # $",
        )
        for case in CASES + FURTHER
    ]
    log = compiled(document_tex("Every case: a_b & #1", sections), tmp_path)
    assert [pt for pt in overfull(log) if pt > 5] == []


@pytest.mark.tex
@needs_tex
def test_a_wide_line_would_be_noticed(tmp_path):
    log = compiled(document_tex("", [("", r"\[" + "x+" * 200 + r"x\]")]), tmp_path)
    assert max(overfull(log)) > 5


@pytest.mark.tex
@needs_tex
@pytest.mark.parametrize("columns", [r"\usepackage[margin=1in]{geometry}", ""], ids=["wide", "own"])
def test_a_fragment_fits_the_margins_it_was_made_for(tmp_path, sample, columns):
    source = document_tex("t", [("", derivation_latex(sample, line=45.0 if columns else 33.0))])
    source = source.replace(r"\usepackage[margin=1in]{geometry}", columns)
    assert [pt for pt in overfull(compiled(source, tmp_path)) if pt > 5] == []
