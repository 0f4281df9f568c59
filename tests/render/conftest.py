from __future__ import annotations

import pytest

from .cases import CASES, FEW, FURTHER, derived, name


def pytest_generate_tests(metafunc):
    """``D`` runs over every case, ``sample`` over a few that differ in kind."""
    for argument, cases in (("D", CASES + FURTHER), ("sample", FEW)):
        if argument in metafunc.fixturenames:
            metafunc.parametrize(argument, cases, ids=map(name, cases), indirect=True)


@pytest.fixture
def D(request):
    return derived(request.param)


@pytest.fixture
def sample(request):
    return derived(request.param)
