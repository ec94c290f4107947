"""The history that a merge inherits."""

from __future__ import annotations

from modelfuse.methods.history import common_history
from modelfuse.types import Step


def test_a_merge_inherits_what_its_clients_agree_on() -> None:
    init = Step("init", "1", {"seed": 0})
    clients = [
        (init, Step("train-client", "1", {"client": client, "epochs": 25, "lr": 0.02}, ("abc",))) for client in (0, 1)
    ]
    assert common_history(clients) == (init, Step("train-client", "1", {"epochs": 25, "lr": 0.02}, ("abc",)))


def test_it_ends_where_the_clients_part() -> None:
    one = (Step("init", "1", {}), Step("train-client", "1", {}))
    other = (Step("init", "1", {}), Step("merge", "1", {}), Step("train-client", "1", {}))
    assert common_history([one, other]) == (Step("init", "1", {}),)
    assert common_history([one, ()]) == ()


def test_different_inputs_are_all_named() -> None:
    steps = [(Step("train-client", "1", {}, (name,)),) for name in ("b", "a", "b")]
    assert common_history(steps) == (Step("train-client", "1", {}, ("a", "b")),)
