"""The recipe of local training."""

from __future__ import annotations

from typing import Any

import pytest

from modelfuse.client.settings import Schedule, TrainSettings, pick
from modelfuse.errors import OptionError


def test_cosine_annealing_from_epoch_to_epoch() -> None:
    rates = [TrainSettings(lr=0.4, epochs=4, schedule="cosine").rate(epoch) for epoch in range(4)]
    assert rates == pytest.approx([0.4, 0.2 + 0.2 * 0.5**0.5, 0.2, 0.2 - 0.2 * 0.5**0.5])
    assert TrainSettings(lr=0.4, epochs=4).rate(3) == 0.4


@pytest.mark.parametrize(
    ("setting", "option"),
    [
        ({"epochs": 0}, "-E"),
        ({"batch_size": 0}, "--batch-size"),
        ({"lr": 0.0}, "--lr"),
        ({"lr": float("nan")}, "--lr"),
        ({"momentum": 1.0}, "--momentum"),
        ({"weight_decay": -1e-3}, "--weight-decay"),
        ({"prox_mu": float("inf")}, "--prox-mu"),
    ],
)
def test_settings_out_of_range(setting: dict[str, Any], option: str) -> None:
    with pytest.raises(OptionError, match=f"{option}: .* is out of range. It must be"):
        TrainSettings(**setting)


def test_unknown_choices_are_listed() -> None:
    assert pick("cosine", Schedule, "--schedule") == "cosine"
    with pytest.raises(OptionError, match="--schedule: 'linear' is unknown. Choose constant, cosine"):
        pick("linear", Schedule, "--schedule")
