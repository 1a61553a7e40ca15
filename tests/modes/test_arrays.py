"""Arrays of either library."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from trajcli.arrays import columns_at, counting


@pytest.mark.parametrize(
    "numbers",
    [[0, 0, 0, 1, 2, 3, 4, 4, 4], [3, 4, 5], [2, 2, 2], [5], [0, 2, 1], [0, 1, 1, 2], [8, 8], []],
)
def test_columns_are_those_of_the_numbers(numbers):
    values, at = torch.randn(2, 9), np.array(numbers, dtype=np.int64)
    np.testing.assert_array_equal(columns_at(values, at), values.numpy()[:, at])
    np.testing.assert_array_equal(columns_at(values.numpy(), at), values.numpy()[:, at])


def test_counting_is_alike_in_both_libraries():
    np.testing.assert_array_equal(counting(2, 5, torch.zeros(1)), [2.0, 3.0, 4.0])
    np.testing.assert_array_equal(counting(2, 5, np.zeros(1)), [2.0, 3.0, 4.0])
