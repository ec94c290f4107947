"""Embeddings with prototypes: reading, projecting, drawing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from modelfuse.errors import ContentError, FileError
from modelfuse.files.writer import save
from modelfuse.reporting.plots.embeddings import Embeddings, draw_embeddings, project, read_embeddings
from modelfuse.types import ClientInfo, Metadata

POINTS = np.array([[0.0, 0], [2, 0], [0, 1], [2, 1]])
LABELS = np.array([0, 1, 0, 1])


def _npz(folder: Path, **arrays: Any) -> Path:
    path = folder / "e.npz"
    np.savez(path, **arrays)
    return path


def test_an_npz_and_a_safetensors_file_hold_the_same(tmp_path: Path) -> None:
    prototypes = np.array([[0, 0.5], [2, 0.5]])
    npz = _npz(tmp_path, embeddings=POINTS, labels=LABELS, prototypes=prototypes, classes=np.array(["cat", "dog"]))
    tensors = tmp_path / "e.safetensors"
    save(
        tensors,
        {"embeddings": POINTS, "labels": LABELS, "prototypes": prototypes},
        Metadata("prototypes", client=ClientInfo(classes=("cat", "dog"))),
    )
    for path in (npz, tensors):
        embeddings = read_embeddings(path)
        np.testing.assert_array_equal(embeddings.points, POINTS)
        np.testing.assert_array_equal(embeddings.labels, LABELS)
        np.testing.assert_array_equal(embeddings.prototypes, prototypes)
        assert embeddings.classes == ("cat", "dog")


def test_prototypes_and_names_are_optional(tmp_path: Path) -> None:
    embeddings = read_embeddings(_npz(tmp_path, embeddings=POINTS, labels=LABELS))
    assert embeddings.prototypes.shape == (0, 2)
    assert embeddings.classes == ("0", "1")


def test_two_dimensions_stay_and_more_fall_into_the_plane_of_largest_variance() -> None:
    flat = Embeddings(POINTS, LABELS, np.empty((0, 2)), ("0", "1"))
    np.testing.assert_array_equal(project(flat, "pca").points, POINTS)
    lifted = np.insert(POINTS, 1, 7.0, axis=1)  # a constant third dimension carries no variance
    prototypes = np.array([[0.0, 7, 0.5], [np.nan, np.nan, np.nan]])
    plane = project(Embeddings(lifted, LABELS, prototypes, ("0", "1")), "pca")
    np.testing.assert_allclose(np.abs(plane.points), np.abs(POINTS - [1, 0.5]), atol=1e-12)
    np.testing.assert_allclose(np.abs(plane.prototypes), [[1, 0], [np.nan, np.nan]], atol=1e-12)


@pytest.mark.slow
def test_t_sne_repeats_with_its_seed_and_keeps_far_clusters_apart() -> None:
    generator = np.random.default_rng(0)
    points = np.concatenate([generator.normal(at, 0.1, (10, 5)) for at in (-9, 9)])
    embeddings = Embeddings(points, np.repeat([0, 1], 10), points[[0]], ("0", "1"))
    first, second = (project(embeddings, "tsne", seed=3) for _ in range(2))
    np.testing.assert_array_equal(first.points, second.points)
    centres = [first.points[first.labels == label].mean(axis=0) for label in (0, 1)]
    near, far = (np.linalg.norm(first.prototypes[0] - centre) for centre in centres)
    assert near < far


def test_a_subset_keeps_points_and_labels_together() -> None:
    points = np.arange(20.0).reshape(10, 2)
    subset = project(Embeddings(points, np.arange(10), np.empty((0, 2)), tuple("0123456789")), "pca", max_points=4)
    assert len(subset.points) == 4
    np.testing.assert_array_equal(subset.points[:, 0], 2 * subset.labels)


def test_every_class_has_its_marker_and_every_prototype_its_name() -> None:
    prototypes = np.array([[0, 0.5], [np.nan, np.nan]])
    (axes,) = draw_embeddings(Embeddings(POINTS, LABELS, prototypes, ("cat", "dog"))).axes
    cats, dogs, prototype = axes.collections
    np.testing.assert_array_equal(dogs.get_offsets(), POINTS[LABELS == 1])
    assert cats.get_paths()[0].vertices.shape != dogs.get_paths()[0].vertices.shape  # circle and square
    np.testing.assert_array_equal(prototype.get_offsets(), [[0, 0.5]])
    assert [text.get_text() for text in axes.texts] == ["cat"]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"embeddings": POINTS}, "has no array 'labels'"),
        ({"embeddings": POINTS[:, :1], "labels": LABELS}, r"embeddings of shape \(4, 1\)"),
        ({"embeddings": POINTS * np.nan, "labels": LABELS}, "are no finite"),
        ({"embeddings": POINTS, "labels": LABELS[:2]}, "not one class number for each of 4 points"),
        ({"embeddings": POINTS, "labels": LABELS - 1}, "labels are int64"),
        ({"embeddings": POINTS, "labels": LABELS, "prototypes": np.zeros((2, 3))}, "do not live in the 2 dimensions"),
    ],
)
def test_arrays_that_do_not_fit_are_named(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    with pytest.raises(ContentError, match=message):
        read_embeddings(_npz(tmp_path, **arrays))


def test_nothing_is_unpickled_and_a_broken_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"e\.npz: cannot be read"):
        read_embeddings(_npz(tmp_path, embeddings=np.array([object()])))
    (tmp_path / "e.npz").write_bytes(b"nonsense")
    with pytest.raises(FileError, match=r"e\.npz: cannot be read"):
        read_embeddings(tmp_path / "e.npz")
