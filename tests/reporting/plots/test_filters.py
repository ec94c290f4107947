"""First-layer filters: which tensor, which units, and models that do not fit together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import ArrayLike

from modelfuse.errors import ContentError, OptionError
from modelfuse.files.checkpoint import open_checkpoint
from modelfuse.files.writer import save
from modelfuse.reporting.plots.filters import draw_filters, first_layer, read_filters
from modelfuse.spec.axes import PermutationSpec, carry, consume, match
from modelfuse.types import ClientInfo, Metadata

SPEC = PermutationSpec(
    {
        "body.weight": (match("body"), consume("stem"), None, None),
        "norm.running_mean": (carry("stem"),),
        "stem.weight": (match("stem"), None, None, None),
    },
    {},
)


def _model(path: Path, weights: ArrayLike, client: int | None = None, tensor: str = "conv1.weight") -> Path:
    tensors = {tensor: np.asarray(weights, np.float32)}
    save(path, tensors, Metadata("model", client=None if client is None else ClientInfo(id=client)))
    return path


def _numbered(*units: float) -> np.ndarray:
    """(n, 1, 2, 2) filters, each of one value."""
    return np.array(units)[:, None, None, None] * np.ones((1, 1, 2, 2))


def test_columns_are_global_units_and_follow_the_orders(tmp_path: Path) -> None:
    paths = [
        _model(tmp_path / "a.safetensors", _numbered(1, 2, 3), client=5),
        _model(tmp_path / "b.safetensors", _numbered(3, 1), client=2),
        _model(tmp_path / "g.safetensors", _numbered(1, 2, 3, 4)),
    ]
    orders = tmp_path / "orders.safetensors"
    save(
        orders,
        {"conv1.client_5": np.array([0, 1, 2]), "conv1.client_2": np.array([2, 0])},
        Metadata("orders"),
    )
    filters = read_filters(paths, orders=orders)
    assert filters.models == ("client 5", "client 2", "global")
    assert filters.units == (0, 1, 2, 3)
    np.testing.assert_array_equal(
        filters.images[:, :, 0, 0, 0], [[1, 2, 3, np.nan], [1, np.nan, 3, np.nan], [1, 2, 3, 4]]
    )
    unmatched = read_filters(paths, count=2)
    np.testing.assert_array_equal(unmatched.images[:, :, 0, 0, 0], [[1, 2], [3, 1], [1, 2]])


def test_a_weight_of_zero_is_grey_and_a_missing_unit_white(tmp_path: Path) -> None:
    paths = [_model(tmp_path / "a.safetensors", _numbered(-2)), _model(tmp_path / "g.safetensors", _numbered(0, 1))]
    figure = draw_filters(read_filters(paths))
    (axes,) = figure.axes
    mosaic = np.asarray(axes.images[0].get_array())
    assert mosaic.shape == (5, 5)  # 2 × 2 filters of 2 × 2, one line between
    assert (mosaic[0, 0], mosaic[0, 3], mosaic[3, 0], mosaic[3, 3], mosaic[2, 2]) == (0, 1, 0.5, 0.75, 1)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["client 0", "global"]
    assert axes.get_title(loc="left") == "Filters of conv1.weight, by index"


def test_three_channels_are_colours_and_other_numbers_are_averaged(tmp_path: Path) -> None:
    weights = np.arange(12, dtype=float).reshape(1, 3, 2, 2)
    path = _model(tmp_path / "a.safetensors", weights)
    np.testing.assert_array_equal(read_filters([path, path]).images[0, 0, 1, 0], [2, 6, 10])
    path = _model(tmp_path / "b.safetensors", weights[:, :2])
    np.testing.assert_array_equal(read_filters([path, path]).images[0, 0, :, :, 0], [[2, 3], [4, 5]])


def test_rows_of_a_matrix_are_square_images(tmp_path: Path) -> None:
    path = _model(tmp_path / "a.safetensors", [[1, 2, 3, 4]], tensor="fc1.weight")
    np.testing.assert_array_equal(read_filters([path, path]).images[0, 0, :, :, 0], [[1, 2], [3, 4]])


def test_the_spec_knows_the_first_layer_whatever_its_name(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    tensors = {
        "body.weight": np.zeros((2, 2, 1, 1)),
        "stem.weight": np.zeros((2, 3, 1, 1)),
        "norm.running_mean": np.zeros(2),
    }
    save(path, tensors, Metadata("model", spec=SPEC.to_json()))
    assert first_layer(open_checkpoint(path)) == "stem.weight"


def test_models_and_orders_that_do_not_fit_are_named(tmp_path: Path) -> None:
    small = _model(tmp_path / "small.safetensors", np.zeros((1, 1, 2, 2)))
    large = _model(tmp_path / "large.safetensors", np.zeros((1, 1, 3, 3)))
    with pytest.raises(ContentError, match=r"small\.safetensors: filters of conv1\.weight are \(2, 2, 1\)"):
        read_filters([small, large])
    orders = tmp_path / "orders.safetensors"
    save(orders, {"conv1.client_3": np.array([0])}, Metadata("orders"))
    with pytest.raises(ContentError, match="has no order of group conv1 for client 0"):
        read_filters([small, small], orders=orders)
    save(orders, {"conv1.client_0": np.array([1])}, Metadata("orders"))
    with pytest.raises(ContentError, match=r"conv1\.client_0 does not fit .*small\.safetensors"):
        read_filters([small, small], orders=orders)


def test_a_tensor_that_is_no_stack_of_images_is_an_error(tmp_path: Path) -> None:
    path = _model(tmp_path / "a.safetensors", np.zeros((2, 3)), tensor="fc1.weight")
    with pytest.raises(OptionError, match=r"fc1\.weight .* has shape \(2, 3\), which is no stack of images"):
        read_filters([path, path])
    bias = _model(tmp_path / "b.safetensors", np.zeros(2), tensor="fc1.bias")
    with pytest.raises(OptionError, match="has no layer of filters"):
        read_filters([bias, bias])
