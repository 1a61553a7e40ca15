"""Small arrays are sent to a device once, and what a graph captures was there before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from trajcli import UsageError, arrays


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[torch.Tensor]:
    """What goes to a device that is none: it stays where it is."""
    to, calls = torch.Tensor.to, []

    def send(self: torch.Tensor, *arguments: Any, **more: Any) -> torch.Tensor:
        if arguments and arguments[0] == "cuda":
            calls.append(self)
            return self.clone()
        return to(self, *arguments, **more)

    monkeypatch.setattr(torch.Tensor, "to", send)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(arrays, "_cache", {})
    monkeypatch.setattr(arrays, "_numbers", {})
    monkeypatch.setattr(arrays, "_captured", {})
    monkeypatch.setattr(arrays, "current_stream", lambda device: 1)
    full = torch.full
    monkeypatch.setattr(torch, "full", lambda *size, device, **more: full(*size, **more))
    return calls


def test_small_arrays_are_sent_once(sent):
    for _ in range(3):
        assert arrays.to_torch(np.array([1.0, 2.0]), "cuda").tolist() == [1, 2]
    assert len(sent) == 1


def test_one_number_is_filled_in_once_for_each_stream(sent, monkeypatch):
    first, again = (arrays.to_torch(np.array([[0.3]]), "cuda") for _ in range(2))
    monkeypatch.setattr(arrays, "current_stream", lambda device: 2)
    assert again is first is not arrays.to_torch(np.array([[0.3]]), "cuda")
    for number in (np.array([[0.1]]), np.array([7]), np.array([3], np.int32)):
        filled = arrays.to_torch(number, "cuda")
        assert filled.dtype == torch.from_numpy(number).dtype
        assert torch.equal(filled, torch.from_numpy(number))
    assert not sent


def test_arrays_that_change_at_every_call_do_not_pile_up(sent, monkeypatch):
    capturing = []
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: bool(capturing))
    for k in range(300):
        arrays.to_torch(np.array([float(k), 1.0]), "cuda")
    assert len(arrays._cache) == 300 - 256
    capturing.append(1)  # the latest were sent before, whatever the number of those before them
    assert arrays.to_torch(np.array([299.0, 1.0]), "cuda").tolist() == [299, 1]
    assert [x.tolist() for x in arrays._captured.values()] == [[299, 1]]


def test_a_number_that_a_graph_captures_is_used_by_no_call(sent, monkeypatch):
    before = arrays.to_torch(np.array([0.1]), "cuda")
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    monkeypatch.setattr(arrays, "current_stream", lambda device: 2)
    assert arrays.to_torch(np.array([0.1]), "cuda") is before
    assert [*arrays._captured.values()] == [before]
    captured = arrays.to_torch(np.array([0.2]), "cuda")  # filled by replays alone
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    assert arrays.to_torch(np.array([0.2]), "cuda") is not captured


def test_large_ones_are_sent_each_time(sent):
    for _ in range(3):
        arrays.to_torch(np.zeros(100_000), "cuda")
    assert len(sent) == 3


def test_a_graph_captures_only_what_was_there_before(sent, monkeypatch):
    arrays.to_torch(np.array([1.0, 2.0]), "cuda")
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    for _ in range(2):
        assert arrays.to_torch(np.array([1.0, 2.0]), "cuda").tolist() == [1, 2]
    for lacking in (np.array([2.0, 3.0]), np.zeros(100_000)):
        with pytest.raises(UsageError, match="while a graph is captured"):
            arrays.to_torch(lacking, "cuda")


F32, F64 = torch.float32, torch.float64


@pytest.mark.parametrize("value", [1.0, float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, F32, F64])
def test_a_value_that_is_not_finite_is_found_among_others(value, dtype):
    values = torch.ones(3, 5, dtype=dtype)
    values[1, 2] = value
    others = [torch.zeros(4, dtype=F64), torch.ones(2, dtype=torch.int64), torch.zeros(0, 3)]
    values.requires_grad_()
    assert arrays.is_finite([*others, values]) == (value == 1.0)
    assert arrays.is_finite(others)
    assert arrays.is_finite([])
