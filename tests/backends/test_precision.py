"""Inside `float64_throughout` every request for a lower floating dtype is answered in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from derive.backends import PrecisionReport, float64_throughout

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

X = torch.linspace(-1, 1, 6, dtype=torch.float64).reshape(2, 3)
LOW = torch.zeros(2, dtype=torch.float32)
F = torch.nn.functional

REQUESTS = {
    "float": lambda x: x.float(),
    "half": lambda x: x.half(),
    "bfloat16": lambda x: x.bfloat16(),
    "to-dtype": lambda x: x.to(torch.float32),
    "to-keyword": lambda x: x.to(dtype=torch.bfloat16),
    "to-device-dtype": lambda x: x.to("cpu", torch.float16),
    "to-tensor": lambda x: x.to(LOW),
    "type-dtype": lambda x: x.type(torch.float32),
    "type-string": lambda x: x.type("torch.FloatTensor"),
    "type-class": lambda x: x.type(torch.FloatTensor),
    "type-as": lambda x: x.type_as(LOW),
    "torch-softmax": lambda x: torch.softmax(x, -1, dtype=torch.float32),
    "torch-softmax-positional": lambda x: torch.softmax(x, -1, torch.float32),
    "functional-softmax": lambda x: F.softmax(x, dim=-1, dtype=torch.float32),
    "log-softmax": lambda x: F.log_softmax(x, dim=-1, dtype=torch.float32),
    "method-softmax": lambda x: x.softmax(-1, dtype=torch.float32),
    "sum": lambda x: x.sum(-1, dtype=torch.float32),
    "empty": lambda x: torch.empty(3, dtype=torch.float32),
    "arange": lambda x: torch.arange(3, dtype=torch.float),
    "new-zeros": lambda x: x.new_zeros(3, dtype=torch.float16),
    "int-to-float": lambda x: torch.arange(3).float(),
}


@pytest.mark.parametrize("request_of", REQUESTS.values(), ids=REQUESTS.keys())
def test_request_is_promoted(request_of: Any) -> None:
    assert request_of(X).dtype != torch.float64
    with float64_throughout() as report:
        assert request_of(X).dtype == torch.float64
    assert report.promoted == 1
    assert report.dtype == "float64"
    assert request_of(X).dtype != torch.float64


def test_values_keep_their_precision() -> None:
    with float64_throughout():
        assert torch.equal(X.float(), X)


@pytest.mark.parametrize(
    ("request_of", "dtype"),
    [
        (lambda x: x.to(torch.int64), torch.int64),
        (lambda x: x.bool(), torch.bool),
        (lambda x: x.type(torch.LongTensor), torch.int64),
        (lambda x: x.view(torch.float32), torch.float32),
        (lambda x: torch.frombuffer(bytearray(8), dtype=torch.float32), torch.float32),
        (lambda x: x.to(torch.complex64), torch.complex128),
    ],
    ids=["int64", "bool", "type-long", "view", "frombuffer", "complex"],
)
def test_other_requests(request_of: Any, dtype: Any) -> None:
    with float64_throughout():
        assert request_of(X).dtype == dtype


def test_type_without_argument_is_a_question() -> None:
    with float64_throughout() as report:
        assert X.type() == "torch.DoubleTensor"
    assert report.promoted == 0


def test_default_dtype_is_float64_meanwhile() -> None:
    with float64_throughout() as report:
        assert torch.zeros(3).dtype == torch.float64
        assert (torch.arange(3) / 3).dtype == torch.float64
    assert torch.zeros(3).dtype == torch.float32
    assert report.promoted == 0


def test_a_block_inside_another_shares_its_report() -> None:
    with float64_throughout() as outer:
        X.float()
        with float64_throughout() as inner:
            assert X.float().dtype == torch.float64
        assert X.float().dtype == torch.float64
    assert inner is outer
    assert outer.promoted == 3
    with float64_throughout() as later:
        pass
    assert later is not outer


def fail() -> None:
    raise KeyError("stop")


def test_everything_is_restored_after_an_error() -> None:
    with pytest.raises(KeyError), float64_throughout():
        fail()
    assert torch.get_default_dtype() == torch.float32
    assert X.float().dtype == torch.float32


def test_the_report_tells_when_float32_remains() -> None:
    with float64_throughout() as report:
        LOW + 1
    assert report.dtype == "float32"
    assert str(report) == "ran in float32 (0 lower-precision requests promoted)"
    with float64_throughout() as report:
        X.float()
    assert str(report) == "ran in float64 (1 lower-precision request promoted)"
    assert str(PrecisionReport()) == "ran in none (0 lower-precision requests promoted)"


@pytest.mark.parametrize("transform", ["jacrev", "vmap"])
def test_works_under_the_transforms(transform: str) -> None:
    def call(x: Any) -> Any:
        return torch.softmax(x.float() ** 2, -1, dtype=torch.float32).to(x.dtype)

    x = X[0]
    with float64_throughout() as report:
        if transform == "vmap":
            result, expected = torch.func.vmap(call)(X), torch.softmax(X**2, -1)
        else:
            result = getattr(torch.func, transform)(call)(x)
            p = torch.softmax(x**2, -1)
            expected = (torch.diag(p) - torch.outer(p, p)) * 2 * x
    assert report.promoted >= 2
    assert report.dtype == "float64"
    np.testing.assert_allclose(result.numpy(), expected.numpy(), rtol=1e-14, atol=1e-16)
