"""Tests for near-duplicates: what is like what, and what must not be."""

import cv2
import numpy as np
import pytest

from data_prep import duplicates
from facekp_jax import images


def texture(seed, height=90, width=120):
    noise = np.random.default_rng(seed).integers(0, 256, (9, 12), np.uint8)
    grey = cv2.resize(noise, (width, height), interpolation=cv2.INTER_CUBIC)
    return cv2.cvtColor(grey, cv2.COLOR_GRAY2RGB)


def noisy(level, seed, height=90, width=120, deviation=2):
    noise = np.random.default_rng(seed).normal(level, deviation, (height, width, 3))
    return noise.clip(0, 255).astype(np.uint8)


def pairs(**splits):
    """Pairs among splits of pictures, each named by its number."""
    names = {split: [str(i) for i in range(len(p))] for split, p in splits.items()}
    prints = {
        split: duplicates.stacked([duplicates.fingerprint(image) for image in pictures])
        for split, pictures in splits.items()
    }
    return duplicates.across_splits(names, prints)


def test_fingerprint_is_the_sign_of_each_step_to_the_right():
    ramp = np.tile(np.arange(17, dtype=np.uint8) * 10, (16, 1))
    ramp[8:] = ramp[8:, ::-1]
    image = cv2.cvtColor(ramp, cv2.COLOR_GRAY2RGB)
    expected = np.repeat([1, -1], 128)
    np.testing.assert_array_equal(duplicates.fingerprint(image), expected)
    np.testing.assert_array_equal(duplicates.fingerprint(image // 20), np.zeros(256))


def test_fingerprints_survive_size_brightness_and_compression():
    original = texture(0, 180, 240)
    small = cv2.resize(original, (120, 90), interpolation=cv2.INTER_AREA)
    darker = (small * 0.8).astype(np.uint8)
    jpeg = cv2.imencode(".jpg", darker, [cv2.IMWRITE_JPEG_QUALITY, 60])[1].tobytes()
    found = pairs(
        train=[texture(1), texture(2)],
        val=[images.decode(jpeg)],
        test=[texture(3), original],
    )
    assert found == [("val/0", "test/1")]


def test_each_picture_is_reported_once_with_the_most_similar():
    original = texture(0, 180, 240)
    copy = cv2.resize(original, (120, 90), interpolation=cv2.INTER_AREA)
    changed = copy.copy()
    changed[:9, :30] = 0
    found = pairs(train=[changed, copy, texture(1)], val=[texture(2), original])
    assert found == [("train/1", "val/1")]
    assert pairs(train=[original], val=[copy, changed]) == [
        ("train/0", "val/0"),
        ("train/0", "val/1"),
    ]


def test_splits_in_blocks_are_compared_whole(monkeypatch):
    monkeypatch.setattr(duplicates, "_BLOCK", (2, 3))
    many = [texture(seed) for seed in range(14)]
    expected = [(f"a/{6 - i}", f"b/{i}") for i in range(7)]
    assert pairs(a=many[6::-1], b=many[:7]) == expected
    assert pairs(a=many[:7], b=many[7:]) == []


@pytest.mark.parametrize(
    "pictures",
    [
        [np.full((90, 120, 3), level, np.uint8) for level in (0, 0, 128)],
        [noisy(128, seed) for seed in range(3)],
        [noisy(3, seed) for seed in range(3)],  # dark, and cut off at 0
    ],
    ids=["uniform", "grey", "dark"],
)
def test_flat_pictures_are_like_no_other(pictures):
    assert pairs(train=pictures[:1], val=pictures[1:]) == []
    prints = duplicates.stacked([duplicates.fingerprint(p) for p in pictures])
    assert duplicates.flat(prints).all()


def test_a_common_background_is_no_likeness():
    white = np.full((90, 120, 3), 255, np.uint8)
    a, b = white.copy(), white.copy()
    a[30:60, 40:80] = texture(1, 30, 40)
    b[30:60, 40:80] = texture(2, 30, 40)
    assert pairs(train=[a], val=[b]) == []


def test_dark_pictures_with_something_in_them_are_compared():
    dark = [(texture(seed) * 0.15).astype(np.uint8) for seed in (0, 1)]
    assert pairs(train=dark, val=dark[1:]) == [("train/1", "val/0")]


def test_duplicates_inside_a_split_and_empty_splits_are_no_pairs():
    assert pairs(train=[texture(0)] * 2, val=[]) == []
    assert not duplicates.flat(duplicates.stacked([])).any()
