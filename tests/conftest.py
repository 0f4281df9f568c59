"""What the tests need from the machine, and what happens where it is missing.

A test whose program or package is missing is skipped and says why. Where the environment variable
``CI`` is true nothing may be skipped: there a skip would hide a missing installation.
"""

from __future__ import annotations

import importlib.util
import os
import shutil

import pytest

CI = os.environ.get("CI", "").lower() in ("1", "true")

PROGRAMS = {
    "tex": ("pdflatex",),
    "browser": ("chromium", "chromium-browser", "google-chrome", "chrome"),
}
PACKAGES = {
    "torch": ("torch",),
    "transformers": ("torch", "transformers"),
    "timm": ("torch", "timm", "torchscale"),
}
INSTALL = {"timm": "pip install --no-deps timm torchscale"}


def missing(item: pytest.Item) -> str | None:
    """Return what a test's markers ask for and the machine does not have."""
    for marker, programs in PROGRAMS.items():
        if item.get_closest_marker(marker) and not any(map(shutil.which, programs)):
            return f"needs {' or '.join(programs)} on the PATH"
    for marker, packages in PACKAGES.items():
        if item.get_closest_marker(marker) and not all(map(importlib.util.find_spec, packages)):
            return f"needs {INSTALL.get(marker, f'the extra normderive[{marker}]')}"
    return None


def pytest_runtest_setup(item: pytest.Item) -> None:
    reason = missing(item)
    if reason is not None:
        pytest.skip(reason)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    return _no_skip(report)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    report = yield
    return _no_skip(report)


def _no_skip(report):
    """Turn a skip into a failure where nothing may be skipped; an expected failure is none."""
    if CI and report.skipped and not hasattr(report, "wasxfail"):
        where = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"skipped in CI, where nothing may be skipped: {where}"
    return report
