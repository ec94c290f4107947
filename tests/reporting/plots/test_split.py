"""The bubble chart: areas, axes, and partition files that cannot be drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.collections import EllipseCollection

from modelfuse.errors import ContentError, FileError
from modelfuse.files.writer import save
from modelfuse.reporting.plots.split import Split, draw_split, read_split
from modelfuse.types import Kind, Metadata


def _partition(folder: Path, kind: Kind = "partition", **details: Any) -> Path:
    path = folder / "split.safetensors"
    save(path, {"client_0": np.arange(2)}, Metadata(kind, details=details))
    return path


def test_the_area_of_a_bubble_is_in_proportion_to_the_examples() -> None:
    counts = np.array([[100, 25], [0, 50]])
    (axes,) = draw_split(Split(counts, ("cat", "dog"), "a split")).axes
    bubbles = axes.collections[0]
    assert isinstance(bubbles, EllipseCollection)
    at = {
        tuple(map(int, place)): float(width)
        for place, width in zip(bubbles.get_offsets(), bubbles.get_widths(), strict=True)
    }
    assert at.keys() == {(0, 0), (0, 1), (1, 1)}  # (client, class); nothing where there is nothing
    areas = {place: width**2 for place, width in at.items()}
    assert areas[0, 1] / areas[0, 0] == pytest.approx(0.25)
    assert areas[1, 1] / areas[0, 0] == pytest.approx(0.5)


def test_axes_name_clients_classes_totals_and_sizes() -> None:
    (axes,) = draw_split(Split(np.array([[1200, 25], [0, 50]]), ("cat", "dog"), "a split")).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["cat", "dog"]
    assert (axes.get_xlabel(), axes.get_title(loc="left")) == ("client", "a split")
    assert [text.get_text() for text in axes.texts] == ["1,225", "50", "1,000", "300", "60"]


def test_a_partition_file_says_what_to_draw(tmp_path: Path) -> None:
    path = _partition(tmp_path, data="pets", scheme="iid", alpha=0.1, classes=["cat", "dog"], class_counts=[[1, 2]])
    split = read_split(path)
    np.testing.assert_array_equal(split.counts, [[1, 2]])
    assert (split.classes, split.title) == (("cat", "dog"), "pets, iid, α = 0.1")


@pytest.mark.parametrize(
    ("details", "message"),
    [
        ({}, "does not say how many examples of each class a client has"),
        ({"class_counts": [[1], [1, 2]]}, "class_counts is no table"),
        ({"class_counts": [[1, -2]]}, "class_counts is no table of counts"),
        ({"class_counts": [1, 2]}, "class_counts is no table of counts"),
        ({"class_counts": [[1, 2]], "classes": ["cat"]}, "names 1 classes and counts 2"),
    ],
)
def test_a_partition_without_counts_is_an_error(tmp_path: Path, details: dict[str, Any], message: str) -> None:
    with pytest.raises(ContentError, match=message):
        read_split(_partition(tmp_path, **details))


def test_a_model_is_no_partition(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="a model file where a partition file is needed"):
        read_split(_partition(tmp_path, kind="model"))
