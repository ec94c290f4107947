"""The choice of a device."""

from __future__ import annotations

import pytest
import torch

from modelfuse.client.device import pick_device
from modelfuse.errors import OptionError


def test_auto_takes_an_accelerator_if_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert pick_device("auto").type == "cpu"
    with pytest.raises(OptionError, match="--device: this machine or this torch has no cuda"):
        pick_device("cuda")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert pick_device("auto").type == pick_device("mps").type == "mps"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert pick_device("auto").type == "cuda"
    assert pick_device("cpu").type == "cpu"


def test_unknown_devices_are_refused() -> None:
    with pytest.raises(OptionError, match="there is no device 'gpu'. Choose auto, cpu, cuda or mps"):
        pick_device("gpu")


def test_a_command_computes_with_the_threads_it_was_given() -> None:
    before = torch.get_num_threads()
    try:
        pick_device("cpu", 2)
        assert torch.get_num_threads() == 2
        pick_device("cpu")
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)
