"""A small federation of files for the tests of methods and of the merge command."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from modelfuse.core.units import realign
from modelfuse.files.artifacts import model_id
from modelfuse.files.writer import save
from modelfuse.spec.architectures import parse_architecture
from modelfuse.types import ClientInfo, Metadata

ARCHITECTURE = "mlp:in=3,hidden=6-4,out=2"
CLASSES = ("cat", "dog")

Arrays = dict[str, NDArray[np.float32]]


def random_model(rng: np.random.Generator) -> Arrays:
    """Return random float32 tensors of the architecture."""
    tensors: Arrays = {}
    for layer, shape in {"fc1": (6, 3), "fc2": (4, 6), "fc3": (2, 4)}.items():
        tensors[f"{layer}.weight"] = rng.normal(size=shape).astype(np.float32)
        tensors[f"{layer}.bias"] = rng.normal(size=shape[0]).astype(np.float32)
    return tensors


def random_fisher(rng: np.random.Generator, model: Arrays) -> Arrays:
    """Return a random Fisher of a model, over many decades."""
    return {name: (10 ** rng.uniform(-8, 0, size=array.shape)).astype(np.float32) for name, array in model.items()}


def shuffled(rng: np.random.Generator, *bundles: Arrays) -> list[Arrays]:
    """Return models and Fishers with all hidden units shuffled alike."""
    spec = parse_architecture(ARCHITECTURE).spec()
    orders = {"fc1": rng.permutation(6), "fc2": rng.permutation(4)}
    return [realign(bundle, spec, orders) for bundle in bundles]


def metadata(kind: str, client: int, num_examples: int, owner: str | None = None) -> Metadata:
    """Return what such a file says of itself."""
    counts = (num_examples - num_examples // 2, num_examples // 2)
    return Metadata(
        kind=kind,  # type: ignore[arg-type]
        architecture=ARCHITECTURE,
        spec=parse_architecture(ARCHITECTURE).spec().to_json(),
        client=ClientInfo(client, num_examples, counts, CLASSES),
        model_id=owner,
    )


def write_client(folder: Path, client: int, model: Arrays, fisher: Arrays, num_examples: int = 10) -> tuple[Path, Path]:
    """Write a client's model and Fisher."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = folder / f"client_{client}.safetensors", folder / f"fisher_{client}.safetensors"
    owner = save(paths[0], model, metadata("model", client, num_examples))
    save(paths[1], fisher, metadata("fisher", client, num_examples, owner))
    return paths


def write_gram(folder: Path, client: int, model: Arrays, seed: int = 0) -> Path:
    """Write Gram matrices of a client's fully connected layers, of rank 2."""
    rng = np.random.default_rng((seed, client))
    widths = {name: array.shape[1] for name, array in model.items() if array.ndim == 2}
    rows = {name: rng.normal(size=(2, width)).astype(np.float32) for name, width in widths.items()}
    path = folder / f"gram_{client}.safetensors"
    grams = {name: array.T @ array for name, array in rows.items()}
    save(path, grams, metadata("gram", client, 10, model_id(model)))
    return path


def write_federation(
    folder: Path, seed: int = 0, sizes: tuple[int, ...] = (10, 30, 20)
) -> tuple[list[Path], list[Path]]:
    """Write one client a size and return the paths of models and of Fishers."""
    rng = np.random.default_rng(seed)
    pairs = []
    for client, size in enumerate(sizes):
        model = random_model(rng)
        pairs.append(write_client(folder, client, model, random_fisher(rng, model), size))
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]
