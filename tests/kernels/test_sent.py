"""Small arrays are sent to a device once, and what a graph captures was there before."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
import torch

from trajcli import UsageError, arrays


class Device:
    """Looks like a CUDA device; what is sent there stays where it is."""

    type = "cuda"


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Any:
    to, there = torch.Tensor.to, Device()
    sent: list[Any] = []

    def send(self: torch.Tensor, *given: Any, **more: Any) -> torch.Tensor:
        if given and given[0] is there:
            sent.append(self)
            return self
        return to(self, *given, **more)

    monkeypatch.setattr(torch.Tensor, "to", send)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda self, stream: None)
    monkeypatch.setattr(arrays, "_kept", OrderedDict())
    there.sent = sent  # type: ignore[attr-defined]
    return there


def test_small_arrays_are_sent_once_and_no_one_writes_into_what_is_kept(device):
    for _ in range(3):
        found = arrays._sent(np.array([1.0, 2.0]), device)
        assert found.tolist() == [1, 2]
        found.zero_()
    assert len(device.sent) == 1


def test_those_used_last_are_kept(device):
    for number in range(arrays._MANY + 50):
        arrays._sent(np.array([float(number)]), device)
        arrays._sent(np.array([0.0]), device)
    assert len(arrays._kept) == arrays._MANY
    before = len(device.sent)
    for number in (0, 60, arrays._MANY + 49):
        arrays._sent(np.array([float(number)]), device)
    assert len(device.sent) == before


def test_a_graph_captures_only_what_was_there_before(device, monkeypatch):
    arrays._sent(np.array([1.0]), device)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    captured: dict[int, Any] = {}
    monkeypatch.setattr(arrays, "_captured", captured)
    for _ in range(2):
        assert arrays._sent(np.array([1.0]), device).tolist() == [1]
    assert len(captured) == 1
    for lacking in (np.array([2.0]), np.zeros(arrays._FEW_BYTES)):
        with pytest.raises(UsageError, match="while a graph is captured"):
            arrays._sent(lacking, device)
