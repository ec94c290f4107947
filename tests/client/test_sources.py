"""Readers of data: what they return, and what they say of data that cannot be used."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from modelfuse.client.sources.idx import read_idx
from modelfuse.client.sources.shakespeare import VOCABULARY
from modelfuse.client.sources.source import NORMALISATIONS, channels_first, parse_normalisation, usual_normalisation
from modelfuse.client.sources.strings import open_source
from modelfuse.errors import ContentError, FileError, InputError, OptionError


def test_digits_are_split_once_and_for_all_class_by_class() -> None:
    train, test = open_source("digits", "train"), open_source("digits", "test")
    assert len(train.labels) + len(test.labels) == 1797
    together = np.bincount(train.labels) + np.bincount(test.labels)
    np.testing.assert_allclose(np.bincount(test.labels) / together, 0.2, atol=0.005)
    images = np.concatenate([train.read(None), test.read(None)])
    assert images.shape == (1797, 1, 8, 8)
    assert len(np.unique(images.reshape(1797, -1), axis=0)) == 1797  # no image is in both, as none is there twice
    assert images.mean() == pytest.approx(train.normalisation.mean[0], abs=1e-4)  # type: ignore[union-attr]
    assert images.std() == pytest.approx(train.normalisation.std[0], abs=1e-4)  # type: ignore[union-attr]


def test_indices_choose_what_is_read() -> None:
    source = open_source("digits", "test")
    chosen = np.array([5, 0, 5])
    np.testing.assert_array_equal(source.read(chosen), source.read(None)[chosen])


def idx_bytes(array: NDArray[np.uint8]) -> bytes:
    header = bytes([0, 0, 8, array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape)
    return header + array.tobytes()


def write_mnist(folder: Path, suffix: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (7, 28, 28), dtype=np.uint8)
    labels = generator.integers(0, 10, 7, dtype=np.uint8)
    folder.mkdir(parents=True)
    for stem, array in (("t10k-images-idx3-ubyte", images), ("t10k-labels-idx1-ubyte", labels)):
        data = idx_bytes(array)
        (folder / f"{stem}{suffix}").write_bytes(gzip.compress(data) if suffix else data)
    return images, labels


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("inside", ["MNIST/raw", "."])
def test_mnist_is_read_zipped_or_not_from_a_folder_that_stays_as_it_is(
    tmp_path: Path, suffix: str, inside: str
) -> None:
    root = tmp_path / "data"
    images, labels = write_mnist(root / inside, suffix)
    before = sorted(root.rglob("*"))
    root.chmod(0o500)
    source = open_source(f"mnist:{root}", "test")
    np.testing.assert_array_equal(source.read(None)[:, 0], images)
    np.testing.assert_array_equal(source.read(np.array([6, 1]))[:, 0], images[[6, 1]])
    np.testing.assert_array_equal(source.labels, labels)
    root.chmod(0o700)
    assert sorted(root.rglob("*")) == before


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_real_idx_files(shared: Path, name: str) -> None:
    source = open_source(f"{name}:{shared / 'data' / name}", "test")
    assert source.read(None).shape == (10_000, 1, 28, 28)
    assert len(source.classes) == 10
    pixels = source.read(None) / 255
    assert pixels.mean() == pytest.approx(source.normalisation.mean[0], abs=0.005)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: data[:0],
        lambda data: data[:3] + b"\x02" + data[4:],
        lambda data: b"\x00\x00\x0d" + data[3:],
    ],
)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_damaged_idx_file_is_named(tmp_path: Path, damage: Any, suffix: str) -> None:
    data = damage(idx_bytes(np.zeros((2, 3, 3), dtype=np.uint8)))
    path = tmp_path / f"images{suffix}"
    path.write_bytes(gzip.compress(data) if suffix else data)
    with pytest.raises(ContentError, match=f"{path}.*idx"):
        read_idx(path, axes=3)


def test_a_truncated_gzip_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "images.gz"
    path.write_bytes(gzip.compress(idx_bytes(np.zeros((2, 3, 3), dtype=np.uint8)))[:-5])
    with pytest.raises(ContentError, match="cannot be read"):
        read_idx(path, axes=3)


def write_folder(root: Path, sizes: dict[str, int], mode: str = "RGB", side: int = 6) -> NDArray[np.uint8]:
    generator = np.random.default_rng(1)
    images = []
    for split in ("train", "test"):
        for name, count in sizes.items():
            (root / split / name).mkdir(parents=True)
            for number in range(count):
                pixels = generator.integers(0, 256, (side, side, 3) if mode == "RGB" else (side, side), dtype=np.uint8)
                Image.fromarray(pixels).save(root / split / name / f"{number}.png")
                images += [pixels] if split == "train" else []
    return np.stack(images)


def test_an_image_folder_has_torchvisions_order(tmp_path: Path) -> None:
    from torchvision.datasets import ImageFolder

    expected = write_folder(tmp_path, {"cat": 12, "ape": 1, "Bee": 2})
    source = open_source(f"imagefolder:{tmp_path}", "train")
    theirs = ImageFolder(str(tmp_path / "train"))
    assert list(source.classes) == theirs.classes == ["Bee", "ape", "cat"]
    assert source.labels.tolist() == theirs.targets
    assert source.name == tmp_path.name
    mine = source.read(None).transpose(0, 2, 3, 1)  # (n, 3, H, W) -> (n, H, W, 3)
    np.testing.assert_array_equal(mine, np.stack([np.asarray(image) for image, _ in theirs]))
    assert len(np.unique(np.concatenate([mine, expected]), axis=0)) == len(expected)


def test_an_image_folder_reads_only_what_is_asked_for(tmp_path: Path) -> None:
    write_folder(tmp_path, {"a": 3, "b": 2}, mode="L")
    source = open_source(f"imagefolder:{tmp_path}", "train")
    everything = source.read(None)
    (tmp_path / "train" / "a" / "0.png").write_bytes(b"broken")
    np.testing.assert_array_equal(source.read(np.array([4, 1])), everything[[4, 1]])
    assert everything.shape == (5, 1, 6, 6)  # grey stays grey
    with pytest.raises(ContentError, match=r"a/0.png.*cannot be decoded"):
        source.read(None)


def test_faults_of_an_image_folder(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="there is no folder train/"):
        open_source(f"imagefolder:{tmp_path}", "train")
    (tmp_path / "train").mkdir()
    with pytest.raises(FileError, match="no folder of a class"):
        open_source(f"imagefolder:{tmp_path}", "train")
    (tmp_path / "train" / "a").mkdir()
    with pytest.raises(ContentError, match=r"train/a: it holds no image"):
        open_source(f"imagefolder:{tmp_path}", "train")
    (tmp_path / "test" / "b").mkdir(parents=True)
    with pytest.raises(ContentError, match="other classes"):
        open_source(f"imagefolder:{tmp_path}", "train")


def test_images_of_two_sizes_are_named(tmp_path: Path) -> None:
    write_folder(tmp_path, {"a": 2})
    Image.new("RGB", (7, 5)).save(tmp_path / "train" / "a" / "1.png")
    with pytest.raises(ContentError, match=r"1.png.*7×5 pixels and the first image 6×6"):
        open_source(f"imagefolder:{tmp_path}", "train").read(None)


def npz(path: Path, **change: Any) -> str:
    arrays = {
        "x_train": np.arange(12, dtype=np.float64).reshape(3, 4),
        "y_train": np.array([0, 2, 1]),
        "x_test": np.zeros((1, 4)),
        "y_test": np.array([3]),
    }
    np.savez(path, **{key: value for key, value in (arrays | change).items() if value is not None})
    return f"npz:{path}"


def test_npz_arrays(tmp_path: Path) -> None:
    source = open_source(npz(tmp_path / "mine.npz", mean=0.5, std=[2.0]), "train")
    assert (source.name, source.classes) == ("mine", ("0", "1", "2", "3"))  # the test split has a class more
    assert source.read(None).dtype == np.float32
    np.testing.assert_array_equal(source.read(np.array([2])), [[8, 9, 10, 11]])
    assert source.normalisation is not None
    assert (source.normalisation.mean, source.normalisation.std) == ((0.5,), (2.0,))
    assert open_source(npz(tmp_path / "mine.npz", classes=list("abcd")), "test").classes == tuple("abcd")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x_train": None}, "there is no array x_train. It holds y_train"),
        ({"x_train": np.zeros((2, 4))}, r"x_train: inputs have shape \(2, 4\) for 3 labels"),
        ({"x_train": np.full((3, 4), np.nan)}, "NaN"),
        ({"x_train": np.zeros(3)}, r"shape \(3,\)"),
        ({"x_train": np.array(["a", "b", "c"])[:, None]}, "dtype <U1"),
        ({"x_train": np.zeros((3, 2), dtype=np.uint8)}, "uint8 inputs"),
        ({"y_train": np.array([0.0, 1.0, 2.0])}, "labels have .* float64"),
        ({"y_train": np.array([0, -1, 2])}, "labels run from -1"),
        ({"y_train": np.array([], dtype=int)}, "no examples"),
        ({"y_train": np.array([0, 1, 10**12])}, "labels run to 1000000000000. Number the classes from 0 to at most"),
        ({"classes": ["a", "b", "c"], "y_train": np.array([0, 1, 3])}, "from 0 to 2"),
        ({"x_train": np.array([None, 1, 2], dtype=object)}, "not an .npz file that can be read"),
    ],
)
def test_faults_of_npz_files(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    text = npz(tmp_path / "mine.npz", **change)
    with pytest.raises(InputError, match=message):
        open_source(text, "train").read(None)


def test_an_npz_file_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "mine.npz").write_bytes(b"PK\x03\x04 and no more")
    with pytest.raises(FileError, match=r"mine.npz: not an .npz file"):
        open_source(f"npz:{tmp_path / 'mine.npz'}", "train")
    with pytest.raises(FileError, match="no such file"):
        open_source(f"npz:{tmp_path / 'absent.npz'}", "train")


def test_a_users_own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_data.py").write_text(
        "import numpy as np\n"
        "def arrays(split): return np.eye(3), [0, 1, 1], ['no', 'yes']\n"
        "def pairs(split): return [(np.ones(2), 0), (np.zeros(2), 1)]\n"
        "def wrong(split): return np.eye(3), [0, 1]\n"
        "def nothing(split): return 5\n"
    )
    monkeypatch.chdir(tmp_path)
    arrays = open_source("python:own_data:arrays", "test")
    assert (arrays.name, arrays.classes, arrays.labels.tolist()) == ("arrays", ("no", "yes"), [0, 1, 1])
    pairs = open_source("python:own_data:pairs", "train")
    np.testing.assert_array_equal(pairs.read(None), [[1, 1], [0, 0]])
    with pytest.raises(ContentError, match=r"python:own_data:wrong: inputs have shape \(3, 3\) for 2 labels"):
        open_source("python:own_data:wrong", "train")
    with pytest.raises(ContentError, match="returned int"):
        open_source("python:own_data:nothing", "train")


PLAY = "ADAM:\n{}\nGod $ave\n\nEVE:\n{}\n\nADAM:\n{}\n"


def write_play(folder: Path, *speeches: str) -> str:
    folder.mkdir(parents=True)
    (folder / "eden.txt").write_text(PLAY.format(*speeches))
    return f"shakespeare:{folder}"


def decoded(codes: NDArray[np.int64]) -> list[str]:
    return ["".join(VOCABULARY[code] for code in row) for row in codes]


def test_a_role_is_cut_into_sequences_in_the_order_it_speaks(tmp_path: Path) -> None:
    first, second, third = "abcdefghij" * 30, "short", "klmnopqrst" * 30
    text = write_play(tmp_path / "plays", first, second, third)
    spoken = f"{first}\nGod }}ave\n{third}"
    cut = len(spoken) * 80 // 100
    for split, part in (("train", spoken[:cut]), ("test", spoken[cut:])):
        source = open_source(text, split)  # type: ignore[arg-type]
        inputs = source.read(None)
        assert source.owners is not None
        assert source.owners.names == ("eden/ADAM", "eden/EVE")
        assert source.owners.characters.tolist() == [len(spoken), len(second)]
        assert source.owners.of.tolist() == [0] * ((len(part) - 1) // 80)  # Eve speaks too little for a sequence
        assert inputs.shape == source.labels.shape == (len(source.owners.of), 80)
        assert "".join(decoded(inputs)) == part[: inputs.size]
        assert "".join(decoded(source.labels)) == part[1 : inputs.size + 1]
        np.testing.assert_array_equal(source.read(np.array([0])), inputs[:1])


def test_plays_lie_in_the_folder_or_in_plays(tmp_path: Path) -> None:
    inside = write_play(tmp_path / "a" / "plays", *["x" * 90] * 3)
    assert (
        open_source(f"shakespeare:{tmp_path / 'a'}", "train").labels.shape == open_source(inside, "train").labels.shape
    )


def test_the_shared_plays(shared: Path) -> None:
    """The roles and their characters are those of roles.tsv, whose counts have one newline more each."""
    folder = shared / "data" / "shakespeare"
    source = open_source(f"shakespeare:{folder}", "train")
    lines = [line.split("\t") for line in (folder / "roles.tsv").read_text().splitlines()[1:]]
    assert source.owners is not None
    counted = dict(zip(source.owners.names, source.owners.characters + 1, strict=True))
    assert counted == {f"{play}/{role}": int(characters) for play, role, _, _, characters in lines}
    assert (source.owners.characters >= 10_000).sum() == 135


def test_faults_of_plays(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=f"shakespeare:{tmp_path}: there is no play"):
        open_source(f"shakespeare:{tmp_path}", "train")
    (tmp_path / "one.txt").write_text("ADAM:\nMadam, I'm Adam.\n")
    with pytest.raises(ContentError, match="no role speaks enough"):
        open_source(f"shakespeare:{tmp_path}", "train")
    (tmp_path / "one.txt").write_text("ADAM:\nMadam\n\nExeunt\n")
    with pytest.raises(ContentError, match=r"one.txt: a block begins with 'Exeunt'. Begin"):
        open_source(f"shakespeare:{tmp_path}", "train")
    (tmp_path / "one.txt").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(FileError, match=r"one.txt: not a text"):
        open_source(f"shakespeare:{tmp_path}", "train")


def test_the_vocabulary_is_80_characters() -> None:
    assert len(set(VOCABULARY)) == len(VOCABULARY) == 80


def test_faults_of_data_strings(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"no data set is called 'digit'. There are digits, mnist:ROOT"):
        open_source("digit", "train")
    with pytest.raises(OptionError, match="have no place"):
        open_source("digits:here", "train")
    for text in (f"mnist:{tmp_path}", f"cifar10:{tmp_path}", f"svhn:{tmp_path}", "svhn:", "mnist:"):
        with pytest.raises(FileError, match=f"--data {text}: .*"):
            open_source(text, "train")


def test_layouts_become_channels_first() -> None:
    images = np.arange(2 * 4 * 5 * 3, dtype=np.uint8).reshape(2, 4, 5, 3)
    np.testing.assert_array_equal(channels_first(images, "here")[1, 2], images[1, :, :, 2])
    assert channels_first(images[..., 0], "here").shape == (2, 1, 4, 5)
    assert channels_first(np.zeros((2, 7), dtype=np.int32), "here").dtype == np.int64
    assert channels_first(np.zeros((2, 3, 4, 5), dtype=np.float16), "here").dtype == np.float32


def test_the_usual_normalisation_is_a_rule_on_shapes() -> None:
    assert usual_normalisation(np.zeros((1, 3, 32, 32), dtype=np.uint8)) is NORMALISATIONS["cifar10"]
    assert usual_normalisation(np.zeros((1, 3, 64, 64), dtype=np.uint8)) is NORMALISATIONS["imagenet"]
    assert usual_normalisation(np.zeros((1, 1, 28, 28), dtype=np.uint8)) is NORMALISATIONS["half"]
    assert usual_normalisation(np.zeros((1, 3), dtype=np.float32)) is NORMALISATIONS["none"]


def test_normalisations_by_name_and_number() -> None:
    assert parse_normalisation("svhn") is NORMALISATIONS["svhn"]
    assert parse_normalisation("0.1,0.2/3,4").std == (3.0, 4.0)
    for text in ("cifar", "1/2/3", "0.1,0.2/3", "0/0", "nan/1", "", "0.5"):
        with pytest.raises(OptionError, match="--normalize"):
            parse_normalisation(text)


def test_labels_come_without_torch() -> None:
    program = (
        "import sys; from modelfuse.client.sources.strings import open_source; import modelfuse.client.partition;"
        "open_source('digits', 'train'); sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("factory", ["os:getcwd", "json:loads"])
def test_a_factory_that_fails_is_named(factory: str) -> None:
    with pytest.raises(OptionError, match=rf"--data: {factory}\('train'\) failed with \w+Error"):
        open_source(f"python:{factory}", "train", False)
