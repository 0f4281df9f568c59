"""The package is importable, and its names are there, without torch."""

from __future__ import annotations

import subprocess
import sys

import derive.backends

SCRIPT = """
import sys
sys.modules["torch"] = sys.modules["transformers"] = None
import derive.backends as backends
from derive.errors import MissingExtraError
assert all(hasattr(backends, name) for name in backends.__all__)
assert len(backends.known_modules()) == 4
try:
    backends.build("bert")
except MissingExtraError as error:
    assert "install normderive[torch]" in str(error), error
else:
    raise SystemExit("no MissingExtraError")
"""


def test_import_without_torch() -> None:
    subprocess.run([sys.executable, "-c", SCRIPT], check=True)


def test_import_does_not_import_torch() -> None:
    script = "import sys, derive.backends; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_all_is_sorted_and_complete() -> None:
    assert set(derive.backends.__all__) <= set(dir(derive.backends))
