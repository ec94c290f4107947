"""One client's run: its files, and going on after an interruption."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from modelfuse.client.cohort import metadata_of
from modelfuse.client.data import Dataset, load_data
from modelfuse.client.local import LocalRun, client_info, epoch_path, run_client
from modelfuse.client.models import create
from modelfuse.client.resume import Snapshot, read_snapshot, resume_path, write_snapshot
from modelfuse.client.settings import TrainSettings
from modelfuse.client.start import Start
from modelfuse.client.train import cross_entropy
from modelfuse.errors import ContentError, OptionError
from modelfuse.files.checkpoint import open_checkpoint
from modelfuse.types import ClientInfo

ARCHITECTURE = "mlp:in=64,hidden=5,out=10"
START = Start(lambda _: create(ARCHITECTURE, 0), ARCHITECTURE, None, (), ("f" * 64,))


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return load_data("digits", "test").subset(np.arange(40))


def planned(output: Path, dataset: Dataset, epochs: int = 3, **options: Any) -> LocalRun:
    settings = TrainSettings(epochs=epochs, batch_size=16)
    return LocalRun(
        client=4,
        network=lambda: create(ARCHITECTURE, 0),
        dataset=dataset,
        settings=settings,
        device=torch.device("cpu"),
        metadata=metadata_of(START, settings, dataset, 4, None),
        output=output,
        **{"resume_every": 0.0, **options},
    )


class StoppedError(Exception):
    """Stands for a process that dies."""


def interrupted_after(epoch: int) -> Any:
    """Return an objective that fails in the epoch after the given one (3 batches each)."""
    calls = [0]

    def objective(network: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
        calls[0] += 1
        if calls[0] > 3 * epoch + 1:
            raise StoppedError
        return cross_entropy(network, inputs, labels)

    return objective


def ignore(count: float) -> None:
    """Take no notice of progress."""


def test_the_file_says_who_trained_it_on_what_and_how(tmp_path: Path, digits: Dataset) -> None:
    done: list[float] = []
    summary = run_client(planned(tmp_path / "c.safetensors", digits), together=False, advance=done.append)
    metadata = open_checkpoint(tmp_path / "c.safetensors").metadata
    assert metadata is not None
    assert metadata.client == client_info(digits, 4)
    assert metadata.client == ClientInfo(4, 40, digits.class_counts(), tuple("0123456789"))
    (step,) = metadata.history
    assert (step.command, step.inputs) == ("train-client", ("f" * 64,))
    assert {"client": 4, "data": "digits", "epochs": 3, "batch_size": 16}.items() <= step.options.items()
    assert sum(done) == summary.examples == 120
    assert summary.resumed == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.safetensors"]


@pytest.mark.parametrize("epoch", [1, 2])
def test_an_interrupted_run_goes_on_and_ends_with_the_same_bytes(tmp_path: Path, digits: Dataset, epoch: int) -> None:
    run_client(planned(tmp_path / "whole", digits), together=False, advance=ignore)
    cut = planned(tmp_path / "cut", digits)
    with pytest.raises(StoppedError):
        run_client(replace(cut, objective=interrupted_after(epoch)), together=False, advance=ignore)
    assert not (tmp_path / "cut").exists()
    summary = run_client(cut, together=False, advance=ignore)
    assert (summary.resumed, summary.examples) == (epoch, 40 * (3 - epoch))
    assert (tmp_path / "cut").read_bytes() == (tmp_path / "whole").read_bytes()
    assert not resume_path(tmp_path / "cut").exists()


@pytest.mark.parametrize(
    "change", [{"settings": TrainSettings(epochs=3, batch_size=16, lr=0.1)}, {"client": 5}, {"dataset": "turned"}]
)
def test_the_state_of_another_run_is_not_gone_on_from(tmp_path: Path, digits: Dataset, change: dict[str, Any]) -> None:
    if "dataset" in change:
        change = {"dataset": digits.subset(np.arange(39, -1, -1))}
    run = planned(tmp_path / "cut", digits)
    with pytest.raises(StoppedError):
        run_client(replace(run, objective=interrupted_after(2)), together=False, advance=ignore)
    assert resume_path(tmp_path / "cut").exists()
    assert run_client(replace(run, **change), together=False, advance=ignore).resumed == 0


def test_epochs_on_the_way_are_points_of_one_run(tmp_path: Path, digits: Dataset) -> None:
    run_client(planned(tmp_path / "c.safetensors", digits, save_at=(1, 3)), together=False, advance=ignore)
    run_client(planned(tmp_path / "one.safetensors", digits, epochs=1), together=False, advance=ignore)
    names = ("c-epoch1", "c-epoch3", "c", "one")
    first, third, last, one = (open_checkpoint(tmp_path / f"{name}.safetensors") for name in names)
    assert first.model_id() == one.model_id()  # the rate is constant, so one epoch is one epoch
    assert third.model_id() == last.model_id() != first.model_id()
    assert first.metadata is not None
    assert first.metadata.history[-1].options["saved_epoch"] == 1


def test_a_state_is_not_gone_on_from_if_a_file_of_an_earlier_epoch_is_gone(tmp_path: Path, digits: Dataset) -> None:
    run = planned(tmp_path / "c", digits, save_at=(1,))
    with pytest.raises(StoppedError):
        run_client(replace(run, objective=interrupted_after(2)), together=False, advance=ignore)
    epoch_path(tmp_path / "c", 1, together=False).unlink()
    assert run_client(run, together=False, advance=ignore).resumed == 0
    assert epoch_path(tmp_path / "c", 1, together=False).exists()


def test_one_of_several_keeps_its_work_until_all_are_done(tmp_path: Path, digits: Dataset) -> None:
    run = planned(tmp_path / "c", digits)
    first = run_client(run, together=True, advance=ignore)
    before = (tmp_path / "c").stat().st_mtime_ns
    again = run_client(run, together=True, advance=ignore)
    assert (again.resumed, again.examples, again.loss) == (3, 0, first.loss)
    assert (tmp_path / "c").stat().st_mtime_ns == before


def test_epochs_are_in_the_name_of_the_output() -> None:
    assert epoch_path(Path("a/c3.safetensors"), 25, together=False) == Path("a/c3-epoch25.safetensors")
    assert epoch_path(Path("a/clients/client_3.x"), 25, together=True) == Path("a/clients-epoch25/client_3.x")


def test_a_quantised_upload_is_the_same_model(tmp_path: Path, digits: Dataset) -> None:
    run_client(planned(tmp_path / "q", digits, bits=16), together=False, advance=ignore)
    run_client(planned(tmp_path / "f", digits), together=False, advance=ignore)
    quantised, whole = open_checkpoint(tmp_path / "q"), open_checkpoint(tmp_path / "f")
    assert quantised.model_id() == whole.model_id()
    for name, array in quantised.read_all().items():
        largest = np.abs(whole.read(name)).max()
        np.testing.assert_allclose(array, whole.read(name), rtol=0, atol=largest / 2**16 * 1.01)


def test_faults_show_before_any_work(tmp_path: Path, digits: Dataset) -> None:
    with pytest.raises(OptionError, match="--save-at: 2,5 are not epochs of the run. Name epochs from 1 to 3"):
        planned(tmp_path / "c", digits, save_at=(2, 5))
    with pytest.raises(OptionError, match="--quantize: 12 bits"):
        planned(tmp_path / "c", digits, bits=12)
    empty = planned(tmp_path / "c", digits.subset(np.arange(0)))
    with pytest.raises(ContentError, match="client 4: it has no examples"):
        run_client(empty, together=False, advance=ignore)


def test_networks_that_do_not_fit_the_data(tmp_path: Path, digits: Dataset) -> None:
    def run_with(network: nn.Module) -> None:
        run = replace(planned(tmp_path / "c", digits), network=lambda: network)
        run_client(run, together=False, advance=ignore)

    with pytest.raises(ContentError, match=r"--data: .* 1×8×8"):
        run_with(create("mlp:in=63,out=10", 0))
    with pytest.raises(ContentError, match="there are 10 classes and the network tells 7 apart"):
        run_with(create("mlp:in=64,out=7", 0))
    with pytest.raises(ContentError, match="the network cannot read an example of shape 1×8×8"):
        run_with(nn.Linear(9, 10))


def test_snapshots_are_read_back_and_damaged_ones_are_none(tmp_path: Path) -> None:
    path = tmp_path / "c.resume"
    weights, momenta = {"a.b": np.ones((2, 3), np.float32)}, {"a.b": np.zeros(3, np.float32)}
    write_snapshot(path, Snapshot(7, weights, momenta, 0.5), "run")
    snapshot = read_snapshot(path, "run")
    assert snapshot is not None
    assert (snapshot.epoch, snapshot.loss) == (7, 0.5)
    np.testing.assert_array_equal(snapshot.weights["a.b"], weights["a.b"])
    np.testing.assert_array_equal(snapshot.momenta["a.b"], momenta["a.b"])
    assert read_snapshot(path, "other") is None
    path.write_bytes(path.read_bytes()[:-1])
    assert read_snapshot(path, "run") is None
    assert read_snapshot(tmp_path / "absent", "run") is None
