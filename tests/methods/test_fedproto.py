"""FedProto's merge: by hand, by the authors' code, by pooling, and with files that do not belong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from federation import random_model, write_client
from hypothesis import given, settings
from hypothesis import strategies as st

from modelfuse.cli.app import run
from modelfuse.files.artifacts import open_kind
from modelfuse.files.prototypes import Prototypes, read_prototypes
from modelfuse.files.writer import save
from modelfuse.types import ClientInfo, FloatArray, IndexArray, Metadata

CLASSES = ("cat", "dog", "eel", "fox")


def of_features(features: FloatArray, labels: IndexArray) -> Prototypes:
    """Return the prototypes of one client's features, class by class."""
    present = np.unique(labels)
    vectors = np.stack([features[labels == label].mean(0) for label in present])
    return Prototypes(vectors, present, np.array([(labels == label).sum() for label in present]))


def write(folder: Path, client: int, prototypes: Prototypes, classes: tuple[str, ...] = CLASSES) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"prototypes_{client}.safetensors"
    info = ClientInfo(client, int(prototypes.counts.sum()), classes=classes)
    save(path, prototypes.tensors(), Metadata("prototypes", client=info, model_id=f"model of {client}"))
    return path


def merged(folder: Path, *words: object) -> Prototypes:
    output = folder / "global.safetensors"
    assert run(["-q", "merge", "-m", "fedproto", *map(str, words), "-o", str(output)]) == 0
    return read_prototypes(open_kind(output, "prototypes"))


@pytest.fixture
def two(tmp_path: Path) -> list[Path]:
    """Return two clients' files: cat of both (3 examples and 1), eel of the second alone; dog and fox of nobody."""
    first = Prototypes(np.array([[2.0, 0.0]]), np.array([0]), np.array([3]))
    second = Prototypes(np.array([[6.0, 4.0], [1.0, 1.0]]), np.array([0, 2]), np.array([1, 5]))
    return [write(tmp_path, 0, first), write(tmp_path, 1, second)]


@pytest.mark.parametrize(
    ("weighting", "cat", "eel"),
    [("uniform", [4.0, 2.0], [1.0, 1.0]), ("count", [3.0, 1.0], [1.0, 1.0]), ("paper", [1.5, 0.5], [1.0, 1.0])],
)
def test_each_weighting_by_hand(
    tmp_path: Path, two: list[Path], weighting: str, cat: list[float], eel: list[float]
) -> None:
    found = merged(tmp_path, *two, "--weighting", weighting)
    np.testing.assert_array_equal(found.classes, [0, 2])  # nobody holds dog and fox: they are not there
    np.testing.assert_allclose(found.vectors, [cat, eel])
    np.testing.assert_array_equal(found.counts, [4, 5])


def test_the_plain_mean_is_the_default_and_a_folder_stands_for_its_files(tmp_path: Path, two: list[Path]) -> None:
    np.testing.assert_array_equal(
        merged(tmp_path, two[0].parent).vectors, merged(tmp_path, *two[::-1], "--weighting", "uniform").vectors
    )


def test_the_output_says_whose_it_is(tmp_path: Path, two: list[Path]) -> None:
    merged(tmp_path, *two)
    metadata = open_kind(tmp_path / "global.safetensors", "prototypes").metadata
    assert metadata is not None
    assert metadata.client == ClientInfo(None, 9, None, CLASSES)
    step = metadata.history[-1]
    assert (step.options["method"], step.options["weighting"]) == ("fedproto", "uniform")
    assert step.inputs == ("model of 0", "model of 1")


def test_the_authors_code_gives_the_same(tmp_path: Path, shared: Path) -> None:
    case = np.load(shared / "reference" / "fedproto" / "J4_K6.npz")
    names = tuple("abcdef")
    paths = []
    for client in range(4):
        local = of_features(case[f"sample_features_{client}"].astype(np.float64), case[f"sample_labels_{client}"])
        np.testing.assert_array_equal(local.classes, case[f"local_proto_labels_{client}"])
        np.testing.assert_allclose(local.vectors, case[f"local_protos_{client}"], rtol=1e-5, atol=1e-6)
        paths.append(write(tmp_path, client, local, names))
    found = merged(tmp_path, *paths)
    np.testing.assert_array_equal(found.classes, case["global_labels"])
    np.testing.assert_allclose(found.vectors, case["global_protos"], rtol=1e-5, atol=1e-6)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), clients=st.integers(1, 4))
def test_weighted_by_counts_it_is_the_prototypes_of_the_pooled_data(
    tmp_path_factory: pytest.TempPathFactory, seed: int, clients: int
) -> None:
    folder = tmp_path_factory.mktemp("pooled")
    rng = np.random.default_rng(seed)
    features = [rng.normal(size=(rng.integers(1, 9), 3)) for _ in range(clients)]  # one-example clients too
    labels = [rng.integers(0, 4, len(rows)) for rows in features]
    paths = [
        write(folder, client, of_features(*pair)) for client, pair in enumerate(zip(features, labels, strict=True))
    ]
    found = merged(folder, *paths, "--weighting", "count")
    pooled = of_features(np.concatenate(features), np.concatenate(labels))
    np.testing.assert_array_equal(found.classes, pooled.classes)
    np.testing.assert_array_equal(found.counts, pooled.counts)
    np.testing.assert_allclose(found.vectors, pooled.vectors, rtol=1e-5, atol=1e-6)


def fails(capfd: pytest.CaptureFixture[str], folder: Path, *words: object) -> str:
    output = folder / "out.safetensors"
    assert run(["merge", *map(str, words), "-o", str(output)]) == 2
    assert not output.exists()
    return capfd.readouterr().err


def test_widths_that_differ_name_both_files(tmp_path: Path, two: list[Path], capfd: pytest.CaptureFixture[str]) -> None:
    wide = write(tmp_path, 2, Prototypes(np.ones((1, 3)), np.array([0]), np.array([1])))
    message = fails(capfd, tmp_path, "-m", "fedproto", *two, wide)
    assert f"{wide}: its embedding has 3 entries, that of {two[0]} 2" in message


def test_label_orders_that_differ_name_both_files(
    tmp_path: Path, two: list[Path], capfd: pytest.CaptureFixture[str]
) -> None:
    other = write(tmp_path, 2, Prototypes(np.ones((1, 2)), np.array([0]), np.array([1])), CLASSES[::-1])
    message = fails(capfd, tmp_path, "-m", "fedproto", *two, other)
    assert f"{other}: its label order is not that of {two[0]}" in message


def test_models_and_prototypes_are_not_taken_for_each_other(
    tmp_path: Path, two: list[Path], capfd: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    model, _ = write_client(tmp_path / "models", 0, random_model(rng), random_model(rng))
    assert "a prototypes file where a model is needed" in fails(capfd, tmp_path, "-m", "fedavg", model, two[0])
    assert "a model file where prototypes are needed" in fails(capfd, tmp_path, "-m", "fedproto", two[0], model)


def test_an_option_of_models_is_none_of_prototypes(
    tmp_path: Path, two: list[Path], capfd: pytest.CaptureFixture[str]
) -> None:
    for option, value in (("--num-examples", "1,2"), ("--architecture", "lenet"), ("--only", "p*")):
        message = fails(capfd, tmp_path, "-m", "fedproto", *two, option, value)
        assert f"{option}: prototypes are merged, not models" in message
    message = fails(capfd, tmp_path, "-m", "fedproto", *two, "--validate", "digits", "--partition", two[0])
    assert "--validate: prototypes alone predict nothing" in message
    assert "'median' is not a choice" in fails(capfd, tmp_path, "-m", "fedproto", *two, "--weighting", "median")
