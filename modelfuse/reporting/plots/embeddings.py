"""Embeddings and class prototypes in the plane (FedProto fig. 2)."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from matplotlib import patheffects
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from modelfuse.errors import ContentError, FileError
from modelfuse.files.artifacts import open_kind
from modelfuse.files.checkpoint import open_checkpoint
from modelfuse.files.prototypes import read_prototypes
from modelfuse.reporting.plots.style import blank, house_style, new_figure
from modelfuse.types import FloatArray, IndexArray

__all__ = ["Embeddings", "Projection", "draw_embeddings", "project", "read_embeddings"]

Projection = Literal["pca", "tsne"]

COLORS = (
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#d55e00",
    "#7f7f7f",
    "#b8a800",
    "#6a3d9a",
    "#a0522d",
)
MARKERS = "osD^vPX<>p"


@dataclass(frozen=True, slots=True)
class Embeddings:
    """Points and prototypes of one embedding space.

    Args:
        points: (N, D) embeddings.
        labels: (N,) their classes, in [0, C).
        prototypes: (C, D) one a class, NaN where a class has none; (0, D) without prototypes.
        classes: The C class names.
    """

    points: FloatArray
    labels: IndexArray
    prototypes: FloatArray
    classes: tuple[str, ...]


def read_embeddings(path: Path, prototypes: Path | None = None) -> Embeddings:
    """Return what an npz or safetensors file with ``embeddings``, ``labels`` and perhaps ``prototypes`` holds.

    Args:
        path: The file; ``classes`` (an npz's array of names, or the metadata's) are optional.
        prototypes: A prototype file, whose prototypes are shown instead of the file's own.

    Raises:
        FileError: It cannot be read.
        ContentError: An array is missing, of the wrong shape, or not finite.
    """
    arrays, classes = _read_npz(path) if path.suffix == ".npz" else _read_safetensors(path)
    where = str(path)
    for name in ("embeddings", "labels"):
        if name not in arrays:
            raise ContentError(where, f"has no array {name!r}", "It needs embeddings (N, D) and labels (N,).")
    points = np.asarray(arrays["embeddings"], np.float64)
    labels = np.asarray(arrays["labels"])
    if points.ndim != 2 or points.shape[1] < 2 or not np.isfinite(points).all():
        raise ContentError(where, f"embeddings of shape {points.shape} are no finite (N, D ≥ 2)", "Write them again.")
    if labels.shape != points.shape[:1] or labels.dtype.kind not in "iu" or not labels.size or labels.min() < 0:
        what = (
            f"labels are {labels.dtype} of shape {labels.shape}, not one class number for each of {len(points)} points"
        )
        raise ContentError(where, what, "Write labels as integers from 0.")
    centres = np.asarray(arrays.get("prototypes", np.empty((0, points.shape[1]))), np.float64)
    if prototypes is not None:
        found, where = read_prototypes(open_kind(prototypes, "prototypes")), str(prototypes)
        centres = found.table(int(max(found.classes.max(initial=-1), labels.max())) + 1)
    if centres.ndim != 2 or centres.shape[1] != points.shape[1]:
        what = f"prototypes of shape {centres.shape} do not live in the {points.shape[1]} dimensions of the embeddings"
        raise ContentError(where, what, "Give prototypes of the same model.")
    count = max(int(labels.max()) + 1, len(centres))
    names = classes if len(classes) >= count else tuple(map(str, range(count)))
    return Embeddings(points, labels.astype(np.intp), centres, names)


def project(embeddings: Embeddings, method: Projection, seed: int = 0, max_points: int = 2000) -> Embeddings:
    """Return the same in two dimensions.

    Args:
        embeddings: Points of D dimensions; with D = 2 they stay as they are.
        method: ``pca``: the plane of the points' largest variance, into which the prototypes fall; ``tsne``: points
            and prototypes laid out together.
        seed: Of the draw of points and of t-SNE.
        max_points: A random subset of so many points is shown.
    """
    kept = np.arange(len(embeddings.points))
    if len(kept) > max_points:
        kept = np.sort(np.random.default_rng(seed).choice(kept, max_points, replace=False))
    points, labels, prototypes = embeddings.points[kept], embeddings.labels[kept], embeddings.prototypes
    if points.shape[1] > 2:
        present = ~np.isnan(prototypes).any(axis=1)  # (C,)
        flat = np.full((len(prototypes), 2), np.nan)
        points, flat[present] = _flatten(points, prototypes[present], method, seed)
        prototypes = flat
    return Embeddings(points, labels, prototypes, embeddings.classes)


def draw_embeddings(embeddings: Embeddings, title: str | None = None) -> Figure:
    """Return the scatter plot; classes have a colour and a marker each, prototypes are large and named.

    Args:
        embeddings: Points of two dimensions.
        title: The heading.
    """
    with house_style():
        figure = new_figure(5.4, 4.2)
        axes = figure.add_subplot()
        for label in np.unique(embeddings.labels).tolist():
            x, y = embeddings.points[embeddings.labels == label].T
            axes.scatter(
                x, y, s=14, c=COLORS[label % len(COLORS)], marker=MARKERS[label % len(MARKERS)],
                linewidth=0, alpha=0.6, label=embeddings.classes[label],
            )  # fmt: skip
        _prototypes(axes, embeddings)
        blank(axes)
        axes.set_aspect("equal")
        named = "Embeddings and prototypes" if len(embeddings.prototypes) else "Embeddings"
        axes.set_title(title or named)
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), markerscale=1.5)
    return figure


def _prototypes(axes: Axes, embeddings: Embeddings) -> None:
    halo = [patheffects.withStroke(linewidth=2.5, foreground="white")]
    for label, (x, y) in enumerate(embeddings.prototypes):
        if np.isnan(x):
            continue
        color, marker = COLORS[label % len(COLORS)], MARKERS[label % len(MARKERS)]
        axes.scatter([x], [y], s=110, c=color, marker=marker, edgecolor="black", linewidth=1.4, zorder=4)
        axes.annotate(
            embeddings.classes[label], (x, y), (7, 5), textcoords="offset points",
            fontsize=9, weight="bold", path_effects=halo, zorder=5,
        )  # fmt: skip


def _flatten(
    points: FloatArray, prototypes: FloatArray, method: Projection, seed: int
) -> tuple[FloatArray, FloatArray]:
    """Return (N, 2) points and (P, 2) prototypes."""
    if method == "pca":
        from sklearn.decomposition import PCA

        plane = PCA(2, svd_solver="full").fit(points)
        return plane.transform(points), plane.transform(prototypes) if len(prototypes) else np.empty((0, 2))
    from sklearn.manifold import TSNE

    together = np.concatenate([points, prototypes])
    perplexity = min(30.0, max(1.0, (len(together) - 1) / 3))
    flat = TSNE(2, perplexity=perplexity, init="pca", random_state=seed).fit_transform(together).astype(np.float64)
    return flat[: len(points)], flat[len(points) :]


def _read_npz(path: Path) -> tuple[Mapping[str, NDArray[Any]], tuple[str, ...]]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise FileError(str(path), f"cannot be read ({error})", "Give an npz of plain arrays.") from error
    return arrays, tuple(map(str, arrays.get("classes", ())))


def _read_safetensors(path: Path) -> tuple[Mapping[str, NDArray[Any]], tuple[str, ...]]:
    checkpoint = open_checkpoint(path)
    wanted = [name for name in ("embeddings", "labels", "prototypes") if name in checkpoint.layout]
    client = checkpoint.metadata.client if checkpoint.metadata else None
    return {name: checkpoint.read(name) for name in wanted}, (client and client.classes) or ()
