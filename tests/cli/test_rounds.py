"""FedMA's layer-wise rounds and localisation, from files to files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from federation import ARCHITECTURE, metadata, random_model, write_federation
from safetensors.numpy import load_file

from modelfuse.cli.app import run
from modelfuse.files.checkpoint import open_checkpoint
from modelfuse.files.writer import save
from modelfuse.types import ClientInfo, Metadata


def _merge(*arguments: object) -> int:
    return run(["-q", "merge", "-m", "fedma", *map(str, arguments)])


def _error(capfd: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Run a command that must end in exit status 2 and return its message."""
    assert run([*map(str, arguments)]) == 2
    return capfd.readouterr().err


def _retrained(folder: Path, output: Path, change: dict[str, float]) -> Path:
    """Write what clients send back: some tensors moved, everything that their files say kept."""
    output.mkdir()
    for path in sorted(folder.glob("client_*.safetensors")):
        file = open_checkpoint(path)
        assert file.metadata is not None
        moved = {name: array + np.float32(change.get(name, 0.0)) for name, array in file.read_all().items()}
        said = Metadata(
            "model", file.metadata.architecture, file.metadata.spec, file.metadata.client, details=file.metadata.details
        )
        save(output / path.name, moved, said)
    return output


@pytest.fixture
def clients(tmp_path: Path) -> Path:
    """Write three clients and return their folder."""
    write_federation(tmp_path / "clients")
    return tmp_path / "clients"


@pytest.fixture
def first(tmp_path: Path, clients: Path) -> Path:
    """Return the folder of the first round."""
    assert _merge(clients, "--through", "fc1", "-o", tmp_path / "first") == 0
    return tmp_path / "first"


def test_rounds_without_retraining_are_the_one_shot(tmp_path: Path, clients: Path, first: Path) -> None:
    assert _merge(clients, "-o", tmp_path / "one.safetensors", "--orders", tmp_path / "orders.safetensors") == 0
    assert _merge(first, "--through", "fc2", "-o", tmp_path / "second") == 0
    final, orders = tmp_path / "rounds.safetensors", tmp_path / "final_orders.safetensors"
    assert _merge(tmp_path / "second", "--final", "-o", final, "--orders", orders) == 0
    one, rounds = load_file(tmp_path / "one.safetensors"), load_file(final)
    for name in one:
        np.testing.assert_array_equal(one[name], rounds[name])
    one, rounds = load_file(tmp_path / "orders.safetensors"), load_file(orders)
    assert one.keys() == rounds.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], rounds[name])


def test_a_round_makes_one_group_global_and_leaves_the_rest(tmp_path: Path, clients: Path, first: Path) -> None:
    orders = load_file(first / "orders.safetensors")
    assert set(orders) == {f"fc1.client_{client}" for client in range(3)}
    before = [load_file(clients / f"client_{client}.safetensors") for client in range(3)]
    after = [load_file(first / f"client_{client}.safetensors") for client in range(3)]
    width = len(after[0]["fc1.bias"])
    assert width > 6
    for client, (own, back) in enumerate(zip(before, after, strict=True)):
        np.testing.assert_array_equal(back["fc1.weight"], after[0]["fc1.weight"])
        scattered = np.zeros((4, width), dtype=np.float32)
        scattered[:, orders[f"fc1.client_{client}"]] = own["fc2.weight"]
        np.testing.assert_array_equal(back["fc2.weight"], scattered)
        for name in ("fc2.bias", "fc3.weight", "fc3.bias"):
            np.testing.assert_array_equal(back[name], own[name])
        said = open_checkpoint(first / f"client_{client}.safetensors").metadata
        assert said is not None
        assert said.architecture == ARCHITECTURE
        assert said.client is not None
        assert said.client.id == client
        assert sum(said.client.class_counts or ()) == said.client.num_examples
        assert said.details["fedma"]["through"] == "fc1"
        assert said.history[-1].options["through"] == "fc1"


def test_retrained_layers_are_matched_and_global_ones_stay(tmp_path: Path, first: Path) -> None:
    back = _retrained(first, tmp_path / "back", {"fc2.weight": 0.5, "fc3.bias": 1.0})
    report = tmp_path / "report.json"
    assert _merge(back, "--through", "fc2", "-o", tmp_path / "second", "--report", report) == 0
    said = json.loads(report.read_text())
    assert said["through"] == "fc2"
    assert list(said["groups"]) == ["fc2"]
    assert said["groups"]["fc2"]["local_widths"] == [4, 4, 4]
    second = load_file(tmp_path / "second" / "client_1.safetensors")
    np.testing.assert_array_equal(second["fc1.weight"], load_file(first / "client_1.safetensors")["fc1.weight"])
    output = tmp_path / "global.safetensors"
    assert _merge(tmp_path / "second", "--final", "-o", output, "--report", report) == 0
    biases = [load_file(back / f"client_{client}.safetensors")["fc3.bias"] for client in range(3)]
    shares = np.array([[5, 5], [15, 15], [10, 10]]) / 30
    np.testing.assert_allclose(load_file(output)["fc3.bias"], sum(shares * np.array(biases)), rtol=1e-6)
    said = json.loads(report.read_text())
    assert said["groups"]["fc1"]["local_widths"] == [6, 6, 6]
    assert said["parameters"]["growth"] > 1


def test_the_same_round_gives_the_same_bytes(tmp_path: Path, clients: Path, first: Path) -> None:
    assert _merge(clients, "--through", "fc1", "-o", tmp_path / "again") == 0
    for path in first.iterdir():
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes()


def test_rounds_out_of_order_say_where_the_files_are(
    tmp_path: Path, clients: Path, first: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    merge = ("merge", "-m", "fedma")
    before = "the files are the clients' own, before round 1. Pass --through fc1 next."
    after = "the files are global through fc1, after round 1 of 2. Pass --through fc2 next."
    out = tmp_path / "out"
    assert f"it is not fc2's turn: {before}" in _error(capfd, *merge, clients, "--through", "fc2", "-o", out)
    assert f"it is not fc1's turn: {after}" in _error(capfd, *merge, first, "--through", "fc1", "-o", out)
    assert "no group is called 'fc9'. There are fc1, fc2" in _error(
        capfd, *merge, clients, "--through", "fc9", "-o", out
    )
    assert f"hidden layers are left to match: {before}" in _error(capfd, *merge, clients, "--final", "-o", out)
    assert f"a layer-wise pass is under way: {after}" in _error(capfd, *merge, first, "-o", out)
    assert f"a layer-wise pass is under way: {after}" in _error(capfd, "merge", "-m", "pfnm", first, "-o", out)
    mixed = [first / "client_0.safetensors", clients / "client_1.safetensors"]
    message = _error(capfd, *merge, *mixed, "--through", "fc2", "-o", out)
    assert "client_1.safetensors: it is its client's own" in message
    assert "client_0.safetensors is global through fc1" in message
    assert not out.exists()


def test_a_global_layer_that_a_client_trained_is_refused(
    tmp_path: Path, first: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    back = _retrained(first, tmp_path / "back", {})
    tensors = load_file(back / "client_2.safetensors")
    said = open_checkpoint(back / "client_2.safetensors").metadata
    assert said is not None
    save(back / "client_2.safetensors", tensors | {"fc1.bias": tensors["fc1.bias"] + 1}, said)
    message = _error(capfd, "merge", "-m", "fedma", back, "--through", "fc2", "-o", tmp_path / "out")
    assert "client_2.safetensors: fc1.bias is global, and not what it is in" in message
    assert "--freeze-through" in message


def test_what_does_not_go_with_a_round_is_an_error(
    tmp_path: Path, clients: Path, first: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    through = (clients, "--through", "fc1", "-o", tmp_path / "out")
    assert "method fedavg does not know it" in _error(capfd, "merge", "-m", "fedavg", *through)
    assert "--final: it does not go" in _error(capfd, "merge", "-m", "fedma", *through, "--final")
    assert "--orders: it does not go" in _error(capfd, "merge", "-m", "fedma", *through, "--orders", tmp_path / "o")
    grid = ("--gamma", "1", "--gamma", "7")
    assert "--gamma/--sigma/--sigma0: it does not go" in _error(capfd, "merge", "-m", "fedma", *through, *grid)
    message = _error(capfd, "merge", "-m", "fedma", first, "--through", "fc2", "-o", first)
    assert "the output is also an input" in message
    assert not (tmp_path / "out").exists()


def test_two_clients_of_one_number_are_an_error(
    tmp_path: Path, clients: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    twin, output = tmp_path / "twin.safetensors", tmp_path / "out"
    save(twin, random_model(np.random.default_rng(9)), metadata("model", 1, 5))
    for words in (("--through", "fc1"), ("--orders", tmp_path / "orders.safetensors")):
        message = _error(capfd, "merge", "-m", "fedma", clients, twin, "-o", output, *words)
        assert "is from client 1, and so is" in message
        assert str(twin) in message
        assert not output.exists()
    assert _merge(clients, twin, "-o", output) == 0


def test_unreadable_progress_is_an_error(tmp_path: Path, clients: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = open_checkpoint(clients / "client_0.safetensors")
    assert file.metadata is not None
    said = Metadata("model", spec=file.metadata.spec, details={"fedma": {"through": "fc1", "orders": {"fc1": [0, 0]}}})
    save(tmp_path / "odd.safetensors", file.read_all(), said)
    message = _error(
        capfd, "merge", "-m", "fedma", tmp_path / "odd.safetensors", "--through", "fc2", "-o", tmp_path / "o"
    )
    assert "what it says of its FedMA pass cannot be read" in message


def test_class_counts_from_a_file(tmp_path: Path, clients: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "foreign").mkdir()
    for client in range(3):
        tensors = load_file(clients / f"client_{client}.safetensors")
        save(tmp_path / "foreign" / f"client_{client}.safetensors", tensors, Metadata("model", ARCHITECTURE))
    foreign = ("merge", "-m", "fedma", tmp_path / "foreign", "--architecture", ARCHITECTURE, "-o", tmp_path / "a")
    assert "how many examples of each class" in _error(capfd, *foreign)
    counts = tmp_path / "counts.json"
    counts.write_text("[[5, 5], [15, 15]]")
    assert "2 rows for 3 models" in _error(capfd, *foreign, "--class-counts", counts)
    counts.write_text('{"client_0": [5, 5]}')
    assert "it holds no class counts" in _error(capfd, *foreign, "--class-counts", counts)
    counts.write_text("[[5, 5], [15")
    assert "not JSON" in _error(capfd, *foreign, "--class-counts", counts)
    assert "cannot be read" in _error(capfd, *foreign, "--class-counts", tmp_path / "none.json")
    counts.write_text("[[5, 5], [15, 15], [10, 10]]")
    assert run(["-q", *map(str, foreign), "--class-counts", str(counts)]) == 0
    assert _merge(clients, "-o", tmp_path / "b") == 0
    one, other = load_file(tmp_path / "a"), load_file(tmp_path / "b")
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])


def test_sweep_orders_from_a_file(tmp_path: Path, clients: Path, capfd: pytest.CaptureFixture[str]) -> None:
    sweeps, report = tmp_path / "sweeps.json", tmp_path / "report.json"
    sweeps.write_text('{"fc1": [[2, 0, 1]], "fc2": []}')
    told = (clients, "-o", tmp_path / "a", "--sweep-orders", sweeps, "--report", report)
    assert _merge(*told) == 0
    assert len(json.loads(report.read_text())["groups"]["fc1"]["iterations"]) == 2
    sweeps.write_text("[[2, 0, 1]]")
    assert "it holds no sweep orders" in _error(capfd, "merge", "-m", "fedma", *told)


def test_clients_of_unequal_widths(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    wide = {
        "fc1.weight": rng.normal(size=(8, 3)),
        "fc1.bias": rng.normal(size=8),
        "fc2.weight": rng.normal(size=(3, 8)),
        "fc2.bias": rng.normal(size=3),
        "fc3.weight": rng.normal(size=(2, 3)),
        "fc3.bias": rng.normal(size=2),
    }
    for client, tensors in enumerate((random_model(rng), {name: np.float32(array) for name, array in wide.items()})):
        save(tmp_path / f"client_{client}.safetensors", tensors, metadata("model", client, 10))
    files = [tmp_path / f"client_{client}.safetensors" for client in (0, 1)]
    message = _error(capfd, "merge", "-m", "fedavg", *files, "-o", tmp_path / "no")
    assert "or use a method that takes several (pfnm, fedma)" in message
    for method in ("fedma", "pfnm"):
        output, orders = tmp_path / "global", tmp_path / "orders"
        assert run(["-q", "merge", "-m", method, *map(str, files), "-o", str(output), "--orders", str(orders)]) == 0
        told = ["-q", "localize", str(output), "--orders", str(orders), "--client", "all", "-o", str(tmp_path / "own")]
        assert run(told) == 0
        for client, path in enumerate(files):
            own = open_checkpoint(tmp_path / "own" / f"client_{client}.safetensors")
            assert own.shapes() == open_checkpoint(path).shapes()
    odd = {name: np.float32(array) for name, array in wide.items()} | {"fc1.weight": np.ones((8, 5), np.float32)}
    save(files[1], odd, metadata("model", 1, 10))
    message = _error(capfd, "merge", "-m", "fedma", *files, "-o", tmp_path / "no")
    assert "fc1.weight is [8, 5]" in message
    assert "axis 1 is no group's" in message


def test_localize_takes_the_units_that_were_the_clients(tmp_path: Path, clients: Path) -> None:
    output, orders = tmp_path / "global.safetensors", tmp_path / "orders.safetensors"
    assert _merge(clients, "-o", output, "--orders", orders) == 0
    told = ["-q", "localize", str(output), "--orders", str(orders), "--client", "2", "-o", str(tmp_path / "own")]
    assert run(told) == 0
    whole, own, order = load_file(output), load_file(tmp_path / "own"), load_file(orders)
    np.testing.assert_array_equal(own["fc1.weight"], whole["fc1.weight"][order["fc1.client_2"]])
    cut = whole["fc2.weight"][np.ix_(order["fc2.client_2"], order["fc1.client_2"])]
    np.testing.assert_array_equal(own["fc2.weight"], cut)
    said = open_checkpoint(tmp_path / "own").metadata
    assert said is not None
    assert said.client == ClientInfo(2, classes=("cat", "dog"))
    assert said.history[-1].command == "localize"


def test_bad_input_to_localize_is_an_error(tmp_path: Path, clients: Path, capfd: pytest.CaptureFixture[str]) -> None:
    one, other = tmp_path / "one.safetensors", tmp_path / "other.safetensors"
    orders = tmp_path / "orders.safetensors"
    assert _merge(clients, "-o", one, "--orders", orders) == 0
    assert _merge(clients, "--gamma", "1e-6", "-o", other) == 0
    out = ("-o", tmp_path / "own")
    message = _error(capfd, "localize", other, "--orders", orders, "--client", "0", *out)
    assert f"the orders of another model than {other}" in message
    assert "do not know client 7. They know 0, 1, 2" in _error(
        capfd, "localize", one, "--orders", orders, "--client", "7", *out
    )
    assert "'two' is neither a number nor all" in _error(
        capfd, "localize", one, "--orders", orders, "--client", "two", *out
    )
    assert "a model file where an orders file is needed" in _error(
        capfd, "localize", one, "--orders", other, "--client", "0", *out
    )
    file = open_checkpoint(orders)
    assert file.metadata is not None
    save(orders, file.read_all() | {"fc1.client_0": np.array([0, 0, 99])}, file.metadata)
    message = _error(capfd, "localize", one, "--orders", orders, "--client", "0", *out)
    assert "fc1.client_0: it does not name units among" in message
    assert not (tmp_path / "own").exists()
