"""Architecture strings and the specs that follow from them."""

from __future__ import annotations

import pytest

from modelfuse.errors import ContentError, OptionError
from modelfuse.spec.architectures import ZOO, parse_architecture
from modelfuse.spec.axes import carry, consume, match
from modelfuse.spec.layers import (
    LSTM,
    BatchNorm2d,
    Conv2d,
    Embedding,
    GlobalAveragePool,
    Linear,
    ReLU,
    Residual,
)
from modelfuse.spec.rows import Signal, permutation_spec


def test_the_canonical_string_leaves_defaults_out_and_reads_back() -> None:
    architecture = parse_architecture("mlp:hidden=100-50,out=10,bias=true,in=64")
    assert architecture.text == "mlp:in=64,out=10,hidden=100-50"
    assert parse_architecture(architecture.text) == architecture


def test_fednet_has_flatten_blocks_and_no_biases() -> None:
    spec = parse_architecture("fednet").spec()
    assert list(spec.axes) == ["conv1.weight", "conv2.weight", "fc1.weight", "fc2.weight", "fc3.weight"]
    assert spec.axes["fc1.weight"] == (match("fc1"), consume("conv2", block=25))
    assert spec.axes["fc3.weight"] == (None, consume("fc2"))
    assert spec.class_axis == {"fc3.weight": 0}


def test_vgg9_ends_in_fc9_with_its_classes() -> None:
    spec = parse_architecture("vgg9").spec()
    assert spec.groups() == ("conv1", "conv2", "conv3", "conv4", "conv5", "conv6", "fc7", "fc8")
    assert spec.axes["fc7.weight"] == (match("fc7"), consume("conv6", block=16))
    assert spec.class_axis == {"fc9.weight": 0, "fc9.bias": 0}


def test_the_character_lstm_has_fedmas_names() -> None:
    spec = parse_architecture("char-lstm").spec()
    assert spec.groups() == ("encoder", "rnn")
    assert spec.axes["rnn.weight_ih_l0"] == (match("rnn", stack=4), consume("encoder"))
    assert spec.class_axis == {"decoder.weight": 0, "decoder.bias": 0}


def test_widths_follow_from_shapes() -> None:
    grown = parse_architecture("lenet").resized({"conv1.weight": (24, 1, 5, 5), "fc1.weight": (510, 800)})
    assert [layer.outputs for layer in grown.layers if isinstance(layer, Conv2d | Linear)] == [24, 50, 510, 10]


def test_an_lstm_carries_its_hidden_weights() -> None:
    spec = permutation_spec([Embedding("embed", 80, 8), LSTM("lstm", 16), Linear("out", 80)], Signal(1))
    assert spec.axes["embed.weight"] == (None, match("embed"))
    assert spec.axes["lstm.weight_ih_l0"] == (match("lstm", stack=4), consume("embed"))
    assert spec.axes["lstm.weight_hh_l0"] == (carry("lstm", stack=4), consume("lstm"))
    assert spec.axes["lstm.bias_hh_l0"] == (carry("lstm", stack=4),)


def test_a_residual_stream_shares_one_group() -> None:
    block = Residual("block1", (Conv2d("a", 8, 3, padding=1), ReLU(), Conv2d("b", 8, 3, padding=1), BatchNorm2d("bn")))
    layers = [Conv2d("stem", 8, 3, padding=1), block, GlobalAveragePool(), Linear("out", 10)]
    spec = permutation_spec(layers, Signal(3, (8, 8)))
    assert spec.groups() == ("stem", "a")
    assert spec.axes["b.weight"] == (match("stem"), consume("a"), None, None)
    assert spec.axes["bn.running_var"] == (carry("stem"),)
    assert spec.axes["out.weight"] == (None, consume("stem"))


def test_a_projection_opens_a_group_of_its_own() -> None:
    block = Residual("block1", (Conv2d("a", 8, 3, padding=1), BatchNorm2d("bn")), (Conv2d("short", 8, 1),))
    layers = [Conv2d("stem", 4, 3, padding=1), block, GlobalAveragePool(), Linear("out", 10)]
    spec = permutation_spec(layers, Signal(3, (8, 8)))
    assert spec.axes["short.weight"][:2] == (match("block1"), consume("stem"))
    assert spec.axes["a.weight"][:2] == (match("block1"), consume("stem"))
    assert spec.axes["bn.weight"] == (match("block1"),)
    assert spec.axes["out.weight"] == (None, consume("block1"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("resnet", "no architecture is called 'resnet'. There are mlp"),
        ("mlp:in=64", "mlp needs out. It has in=…, out=…, hidden=, bias=true"),
        ("fednet:depth=3", "has no setting 'depth=3'"),
        ("fednet:bias", "has no setting 'bias'"),
        ("fednet:bias=yes", "bias=yes is neither true nor false"),
        ("mlp:in=64,out=10,hidden=100-x", "hidden=100-x is not made of positive whole numbers"),
        ("lenet:out=0", "out=0 is not made of positive whole numbers"),
    ],
)
def test_a_string_that_names_no_network_is_refused(text: str, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_architecture(text)
    assert message in str(caught.value)


def test_images_too_small_for_the_network_are_refused() -> None:
    with pytest.raises(ContentError, match="does not fit"):
        parse_architecture("fednet:size=8").spec()


def test_every_zoo_network_has_a_valid_spec() -> None:
    for name in ZOO:
        text = "mlp:in=4,hidden=3,out=2" if name == "mlp" else name
        spec = parse_architecture(text).spec()
        spec.validate(name)
        assert spec.class_axis
