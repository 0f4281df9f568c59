"""The report: self-contained, escaped, complete; a browser lays out its formulas."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest

from derive.errors import DeriveError
from derive.render.report import _from_log, report_html, report_tex

from .cases import FEW, derived, name
from .test_latex import compiled, needs_tex, overfull
from .test_plots import rows

pytest.importorskip("jinja2")
pytest.importorskip("latex2mathml")
pytest.importorskip("matplotlib")

CHECKS = [
    {
        "system": system,
        "placement": "post",
        "norm": "layernorm",
        "max_rel_error": error,
        "dtype": "float64",
        "ok": ok,
    }
    for system, error, ok in (
        ("torch.nn.TransformerEncoderLayer_with_a_long_name.and_a_suffix", 2e-15, True),
        ("<script>alert('x')</script> & 5% of #1_a", 0.3, False),
    )
]
STACKS = [{**c, "layers": 12} for c in CHECKS]
META = {"version": "0.1.0", "date": "2025-01-01", "seeds": "0, 1 & 2_3"}


def arguments():
    return [(name(c), derived(c)) for c in FEW], rows(), CHECKS, STACKS


@pytest.fixture(scope="module")
def page():
    return report_html(*arguments(), (), META)


class Outline(HTMLParser):
    """Elements that must be closed, ids, links and headings."""

    VOID = frozenset({"meta", "br", "hr", "img", "input", "link"})

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.links, self.levels, self.tags = [], [], [], [], []

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.tags.append(tag)
        self.ids += [found["id"]] if "id" in found and "svg" not in self.open else []
        self.links += [v for k, v in attributes if k in ("href", "src", "xlink:href")]
        self.levels += [int(tag[1])] if re.fullmatch(r"h[1-6]", tag) else []
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, (tag, self.getpos())


def outline(page):
    found = Outline()
    found.feed(page)
    return found


def test_structure(page):
    found = outline(page)
    assert found.open == []
    assert len(found.ids) == len(set(found.ids))
    assert found.levels[0] == 1
    assert found.levels.count(1) == 1
    assert all(b - a <= 1 for a, b in zip(found.levels, found.levels[1:], strict=False))
    assert {link.removeprefix("#") for link in found.links if "svg" not in link} >= {"summary"}
    assert '<html lang="en">' in page
    assert found.tags.count("caption") == found.tags.count("table")


def test_contents_lead_somewhere(page):
    contents = page[page.index("<nav") : page.index("</nav>")]
    targets = re.findall(r'href="#([^"]+)"', contents)
    assert len(targets) == len(FEW) + 4
    assert set(targets) <= set(outline(page).ids)


def test_self_contained(page):
    assert "<script" not in page
    assert "@import" not in page
    assert all(link.startswith("#") for link in outline(page).links)
    assert re.findall(r"url\((?!#)", page) == []


def test_complete(page):
    assert page.count("<details>") == 2 * len(FEW)
    for case in FEW:
        D = derived(case)
        assert f"The derivation in {len(D.steps)} steps" in page
    assert page.count("passed</span>") == 2
    assert page.count("failed</span>") == 2
    assert "1 of 2 checks of blocks against autodiff passed" in page
    assert "0, 1 &amp; 2_3" in page
    assert page.count("<svg") == 1


def test_no_tex_is_left(page):
    assert "\\" not in re.sub(r"<style>.*?</style>|<svg.*?</svg>", "", page, flags=re.DOTALL)


def test_figures():
    from derive.render.plots import depth_figure

    page = report_html([], rows(), figures=[("a < b", depth_figure(rows())), ("s", "<svg></svg>")])
    assert page.count("<figure") == 2
    assert "a &lt; b" in page
    with pytest.raises(DeriveError, match="got int"):
        report_html([], figures=[("x", 3)])
    with pytest.raises(DeriveError, match="path of a file"):
        report_tex([], figures=[("x", "<svg></svg>")])


def test_empty_report():
    page = report_html([])
    assert outline(page).open == []
    assert 'id="depth"' not in page


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, ("1", None)),
        (-math.inf, ("0", None)),
        (math.log(10) * 400, ("1.00", 400)),
        (math.log(2.5) - 50 * math.log(10), ("2.50", -50)),
        (math.log(123.4), ("123", None)),
        (math.nan, ("nan", None)),
    ],
)
def test_numbers_from_logarithms(value, shown):
    assert _from_log(value) == shown


@pytest.mark.tex
@needs_tex
def test_the_tex_report_compiles(tmp_path):
    from derive.render.plots import depth_figure, save

    save(depth_figure(rows()), tmp_path / "depth_all.pdf")
    source = report_tex(*arguments(), [("Depth & more_", "depth_all.pdf")], META)
    assert [pt for pt in overfull(compiled(source, tmp_path)) if pt > 5] == []


def browser():
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")


MEASURE = """<script>
const boxes = [...document.querySelectorAll('math')].filter(m => m.checkVisibility())
  .map(m => m.getBoundingClientRect());
const flat = boxes.filter(b => !(b.width > 0 && b.height > 0)).length;
const wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
document.title = `formulas=${boxes.length} flat=${flat} wide=${wide}`;
</script>"""


@pytest.mark.browser
@pytest.mark.skipif(browser() is None, reason="Chromium is not installed")
@pytest.mark.parametrize("window", ["1200,900", "500,900"])
def test_a_browser_lays_the_formulas_out(page, tmp_path, window):
    """Every formula has a size, and none widens the page, folded open or on a narrow screen."""
    opened = page.replace("<details>", "<details open>").replace("</body>", MEASURE + "</body>")
    (tmp_path / "page.html").write_text(opened, encoding="utf-8")
    run = subprocess.run(
        [
            browser(),
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--disable-background-networking",
            f"--user-data-dir={tmp_path / 'profile'}",
            f"--window-size={window}",
            "--dump-dom",
            (tmp_path / "page.html").as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    found = re.search(r"<title>formulas=(\d+) flat=(\d+) wide=(-?\d+)</title>", run.stdout)
    assert found, run.stderr[-500:]
    formulas, flat, wide = map(int, found.groups())
    assert formulas > 200
    assert flat == 0
    assert wide <= 0
