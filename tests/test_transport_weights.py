"""Weights as sizes and as bytes: cut like a model, read from a file, and checked to the last byte."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ncclbench.errors import RequestError
from ncclbench.plan.weights import MOST_TENSORS, parse_weights, split_weights
from ncclbench.units import parse_bytes
from ncclbench.worker.device import CpuDevice
from ncclbench.worker.weights import Weights, mask_word

SIZES = [70_001, 3, 8, 130_000]


def make(seed: int = 3, sizes: list[int] = SIZES) -> Weights:
    return Weights(sizes, seed, CpuDevice(), lambda: None)


# --- sizes


@pytest.mark.parametrize("size", ["1", "4095", "4M", "64M", "100M", "1G", "7G", "40G", "2T"])
def test_a_model_has_just_the_bytes_asked_for(size: str) -> None:
    sizes = split_weights(parse_bytes(size))
    assert sum(sizes) == parse_bytes(size)
    assert min(sizes) > 0
    assert len(sizes) <= MOST_TENSORS


def test_a_gibibyte_looks_like_a_transformer() -> None:
    embedding, *layers, norm = split_weights(1 << 30)
    assert norm == 2 * 2048
    assert len(layers) % 9 == 0
    assert layers[:9] == layers[-9:]
    assert layers[1] == 2 * 2048 * 2048
    assert 0.05 < embedding / (1 << 30) < 0.3


def test_a_file_lists_sizes_and_shapes(tmp_path: Path) -> None:
    file = tmp_path / "model.txt"
    file.write_text("# a model\n\n128x64 fp32  # embedding\n 128x64\n16x16X2 float8_e4m3fn\n1.5K\n7\n")
    assert parse_weights(str(file), "--weights") == [32768, 16384, 512, 1536, 7]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "lists no tensor"),
        ("# nothing\n", "lists no tensor"),
        ("64M\nmany\n", "line 2: 'many' is not a size"),
        ("4x4 float33\n", "line 1: unknown dtype 'float33'"),
        ("0x4\n", "line 1: '0x4' is 0 bytes"),
        ("999999999999x999999999999\n", "take 1 byte to 64T"),
        ("40T\n40T\n", "more than 64T in all"),
        ("1\n" * (MOST_TENSORS + 1), "take up to 200,000"),
        ("-4x4\n", "is not a size"),
        ("y" * 1_000_000, "yyy...' is neither a size nor a shape"),
        ("9" * 1_000_000, "999...' is neither a size nor a shape"),
    ],
)
def test_what_a_file_may_not_hold_is_said_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "model.txt"
    file.write_text(text)
    with pytest.raises(RequestError) as refused:
        parse_weights(str(file), "--weights")
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 400


def test_what_is_neither_a_size_nor_a_file_says_so(tmp_path: Path) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")
    large = tmp_path / "large"
    large.write_bytes(b"1\n" * (9 << 20))
    for text, said in (
        ("nowhere.txt", "neither a size nor a file"),
        ("1 GiBi", "is not a size"),
        ("0", "is zero"),
        (str(tmp_path), "is no file"),
        (str(binary), "is no text"),
        (str(large), "no list of tensors"),
        ("", "is empty"),
        (" ", "is empty"),
        ("a" * 5000, r"aaa\.\.\.' is neither a size nor a file"),
        ("5" * 5000, r"555\.\.\.' is neither a size nor a file"),
    ):
        with pytest.raises(RequestError, match=said):
            parse_weights(text, "--weights")


# --- bytes


def test_ranks_make_the_same_bytes_of_one_seed_and_others_of_another() -> None:
    assert torch.equal(make().flat, make().flat)
    assert not torch.equal(make(3).flat, make(4).flat)
    assert [tensor.numel() for tensor in make().tensors] == SIZES


def test_every_byte_changes_with_every_version() -> None:
    weights = make()
    seen = weights.flat.clone()
    for version in (1, 2, 255, 256, 300):
        weights.become(version)
        assert weights.wrong(version) == 0
        assert bool((weights.flat != seen).all())
        seen = weights.flat.clone()
    assert mask_word(0x1FF) == -1


def test_wrong_bytes_are_counted_wherever_they_are() -> None:
    """The first and the last, and whatever was left of the version before: all of it, where nothing came."""
    weights = make()
    weights.become(7)
    weights.flat[0] += 1
    weights.tensors[-1][-1] += 1
    assert weights.wrong(7) == 2
    assert weights.wrong(8) == weights.nbytes
    fresh = make()
    fresh.tensors[0].copy_(weights.tensors[0])
    assert fresh.wrong(7) == 1 + sum(SIZES[1:])


def test_bytes_that_are_looked_at_are_of_that_version_or_counted() -> None:
    weights = make()
    weights.become(300)
    assert weights.wrong_samples(300) == 0
    assert weights.wrong_samples(301) == 64
    weights.flat[0] += 1
    assert weights.wrong_samples(300) == 1
    single = make(sizes=[1])
    assert (single.wrong_samples(0), single.wrong_samples(1)) == (0, 1)


def test_weights_of_two_versions_are_torn() -> None:
    trainer, generator = make(), make()
    trainer.become(1)
    assert not generator.is_torn()
    generator.tensors[0].copy_(trainer.tensors[0])
    assert generator.is_torn()
    generator.flat.copy_(trainer.flat)
    assert not generator.is_torn()
