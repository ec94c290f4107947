"""Assignment matrices: dots, the moved share, and orders that are none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import ArrayLike

from modelfuse.errors import ContentError, FileError, OptionError
from modelfuse.files.writer import save
from modelfuse.reporting.plots.assignment import Assignment, draw_assignment, read_assignment
from modelfuse.types import Metadata


def _orders(folder: Path, **orders: ArrayLike) -> Path:
    path = folder / "orders.safetensors"
    tensors = {name.replace("__", "."): np.asarray(order) for name, order in orders.items()}
    save(path, tensors, Metadata("orders"))
    return path


def test_a_dot_stands_where_a_local_unit_became_a_global_one() -> None:
    figure = draw_assignment(Assignment("fc1", {0: np.array([0, 1, 2]), 4: np.array([3, 1, 0])}))
    first, second = figure.axes
    np.testing.assert_array_equal(second.collections[0].get_offsets(), [[3, 0], [1, 1], [0, 2]])  # (global, local)
    assert [axes.get_title(loc="left") for axes in (first, second)] == ["client 0: 0 % moved", "client 4: 67 % moved"]
    assert first.get_xlim() == (-0.5, 3.5)


def test_orders_are_read_by_group_in_the_order_of_the_clients(tmp_path: Path) -> None:
    path = _orders(tmp_path, fc1__client_10=[1, 0], fc1__client_2=[0, 1], block__conv1__client_0=[0])
    assert list(read_assignment(path, "fc1").orders) == [2, 10]
    assert list(read_assignment(path, "fc1", [10]).orders) == [10]
    assert list(read_assignment(path, "block.conv1").orders) == [0]


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ([0, 0], "maps two units to one, or one to none"),
        ([0, -1], "maps two units to one, or one to none"),
        ([[0, 1]], r"of shape \(1, 2\), no sequence of units"),
        ([0.0, 1.0], "is float64 of shape"),
    ],
)
def test_an_order_that_is_none_is_named(tmp_path: Path, order: ArrayLike, message: str) -> None:
    with pytest.raises(ContentError, match=rf"tensor fc1\.client_0 .*{message}|{message}"):
        read_assignment(_orders(tmp_path, fc1__client_0=order), "fc1")


def test_an_unknown_group_or_client_lists_what_there_is(tmp_path: Path) -> None:
    path = _orders(tmp_path, fc1__client_0=[0], fc2__client_0=[0])
    with pytest.raises(OptionError, match=r"has no group 'fc3'\. It has fc1, fc2\."):
        read_assignment(path, "fc3")
    with pytest.raises(OptionError, match=r"has no client 7\. It has 0\."):
        read_assignment(path, "fc1", [0, 7])


def test_a_foreign_file_is_no_orders_file(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save(path, {"fc1.weight": np.zeros((1, 1))}, Metadata("model"))
    with pytest.raises(FileError, match="a model file where an orders file is needed"):
        read_assignment(path, "fc1")
