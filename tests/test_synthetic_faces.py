"""Synthetic faces: exact, varied, and neither trivial nor hopeless."""

import concurrent.futures
import functools
import pickle

import cv2
import numpy as np
import pytest

from data_prep.synthetic.faces import BRANCHES, SyntheticFaces
from facekp_jax import masks, pixels
from facekp_jax.metrics.detection import DetectionMetrics
from facekp_jax.pixels import ColourRule
from facekp_jax.records import Patch

RULES = {
    "acne": ColourRule("a", "brighter", "contrast", 4.0),
    "spot": ColourRule("L", "darker", "contrast", 4.0),
    "mole": ColourRule("L", "darker", "contrast", 8.0),
    "wrinkle": ColourRule("L", "darker", "contrast", 4.0),
    "dark_circle": ColourRule("L", "darker", "contrast", 4.0),
}


@functools.cache
def faces(count=40):
    source = SyntheticFaces(count, seed=11, partly_labelled=False)
    return [source[i] for i in range(count)]


def regions(branch=None):
    return [
        (record, region)
        for record in faces()
        for region in record.regions
        if branch in (None, region.branch)
    ]


def assert_same_record(a, b):
    np.testing.assert_array_equal(a.image, b.image)
    np.testing.assert_array_equal(a.face, b.face)
    assert (a.name, a.labelled) == (b.name, b.labelled)
    assert [r.branch for r in a.regions] == [r.branch for r in b.regions]
    for r, s in zip(a.regions, b.regions, strict=True):
        np.testing.assert_array_equal(r.box, s.box)
        np.testing.assert_array_equal(r.pixels.pixels, s.pixels.pixels)


def test_a_record_depends_on_seed_and_index_only():
    short, long = SyntheticFaces(8, seed=5), SyntheticFaces(500, seed=5)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for i, record in enumerate(pool.map(long.__getitem__, range(8))):
            assert_same_record(record, short[i])
    other = SyntheticFaces(8, seed=6)[0]
    assert other.name != short[0].name
    assert other.image.shape != short[0].image.shape or (
        (other.image != short[0].image).any()
    )


def test_a_source_travels_to_other_processes_as_its_settings():
    source = SyntheticFaces(8, seed=5)
    expected = source[7]
    pickled = pickle.dumps(source)
    assert len(pickled) < 1000  # bytes
    assert_same_record(pickle.loads(pickled)[7], expected)


def test_length_and_end():
    source = SyntheticFaces(3, seed=0)
    assert len(source) == 3 and source.branches == BRANCHES
    assert len(list(source)) == 3
    with pytest.raises(IndexError, match="face 3 of a source of 3"):
        source[3]


def test_photos_and_face_boxes():
    for record in faces():
        height, width = record.image.shape[:2]
        assert record.image.dtype == np.uint8
        assert 240 <= height <= 340 and 240 <= width <= 340
        x0, y0, x1, y1 = record.face
        assert record.face.dtype == np.float32
        assert 0 <= x0 < x1 <= width and 0 <= y0 < y1 <= height
        assert 140 < x1 - x0 < 240 and 140 < y1 - y0 < 240
    assert len({record.image.shape for record in faces()}) > 20


def test_annotations_are_tight_and_nested():
    for record, region in regions():
        height, width = record.image.shape[:2]
        expected = pixels.dilate(region.pixels, pixels.MARGIN, height, width)
        assert (region.mask.x, region.mask.y) == (expected.x, expected.y)
        np.testing.assert_array_equal(region.mask.pixels, expected.pixels)
        np.testing.assert_array_equal(region.box, masks.patch_box(region.mask))
        assert region.box.dtype == np.float32
        assert region.pixels.pixels.any()
        contained = masks.overlap(region.mask, region.pixels)
        assert contained == region.pixels.pixels.sum()


def test_regions_of_a_face_are_apart():
    for record in faces():
        for i, a in enumerate(record.regions):
            for b in record.regions[:i]:
                assert masks.overlap(a.mask, b.mask) == 0


def test_how_many_regions_a_face_has():
    most = {"acne": 6, "spot": 4, "mole": 4, "wrinkle": 4, "dark_circle": 2}
    for branch in BRANCHES:
        counts = [sum(r.branch == branch for r in f.regions) for f in faces()]
        assert max(counts) <= most[branch]
        assert np.mean(np.equal(counts, 0)) > 0.2
        assert np.mean(counts) > 0.35


def test_sizes_of_the_kinds():
    """Square roots of areas, or lengths, in pixels of the photo."""
    across = {
        branch: [2 * np.sqrt(r.pixels.pixels.sum() / np.pi) for _, r in regions(branch)]
        for branch in BRANCHES
    }
    assert min(across["mole"]) > 4 and max(across["mole"]) < 14
    assert min(across["acne"]) > 5 and max(across["acne"]) < 22
    assert min(across["spot"]) > 7 and max(across["spot"]) < 32
    for _, region in regions("wrinkle"):
        x0, y0, x1, y1 = masks.patch_box(region.pixels)
        width = region.pixels.pixels.sum() / np.hypot(x1 - x0, y1 - y0)
        assert 1.2 < width < 4
        assert np.hypot(x1 - x0, y1 - y0) > 7
        assert cv2.connectedComponents(region.mask.pixels.view(np.uint8))[0] == 2
    for _, region in regions("dark_circle"):
        assert 22 < region.box[2] - region.box[0] < 70


def test_partly_labelled_photos_keep_the_picture_and_hide_the_unknown():
    partly = SyntheticFaces(40, seed=11)
    shares = []
    for i, complete in enumerate(faces()):
        record = partly[i]
        np.testing.assert_array_equal(record.image, complete.image)
        np.testing.assert_array_equal(record.face, complete.face)
        assert record.labelled and set(record.labelled) <= set(BRANCHES)
        shares.append(len(record.labelled) == len(BRANCHES))
        expected = [r.box for r in complete.regions if r.branch in record.labelled]
        np.testing.assert_array_equal([r.box for r in record.regions], expected)
        assert complete.labelled == BRANCHES
    assert 0.4 < np.mean(shares) < 0.9


def eroded(patch):
    cross = cv2.getStructuringElement(cv2.MORPH_CROSS, (3, 3))
    padded = np.pad(patch.pixels, 1).astype(np.uint8)
    inner = cv2.erode(padded, cross)[1:-1, 1:-1].astype(bool)
    return Patch(patch.x, patch.y, inner)


@pytest.mark.parametrize("branch", BRANCHES)
def test_colour_rules_find_the_target_in_a_perturbed_mask(branch):
    ious = []
    for record, region in regions(branch):
        height, width = record.image.shape[:2]
        others = [r.mask for r in record.regions if r is not region]
        for mask in (
            region.mask,
            eroded(region.mask),
            pixels.dilate(region.mask, 1, height, width),
        ):
            got = pixels.target_pixels(record.image, mask, RULES[branch], others)
            ious.append(masks.iou(got, region.pixels))
    assert np.mean(ious) >= 0.85


def test_the_naive_baseline_fails():
    metrics = DetectionMetrics(BRANCHES)
    for record in faces()[:20]:
        found = [
            region
            for branch, rule in RULES.items()
            for region in pixels.naive_regions(record.image, record.face, rule, branch)
        ]
        metrics.update(record, found)
    assert 0.03 < metrics.result()["box_ap50"] < 0.3


def test_a_frontal_face_detector_sees_the_faces_where_they_are():
    cascade = cv2.CascadeClassifier(
        cv2.data.haarcascades + "haarcascade_frontalface_default.xml"
    )
    found = 0
    for record in faces()[:12]:
        grey = cv2.cvtColor(record.image, cv2.COLOR_RGB2GRAY)
        for x, y, w, h in cascade.detectMultiScale(grey, 1.1, 4, minSize=(80, 80)):
            middle = (record.face[:2] + record.face[2:]) / 2
            off = np.abs(middle - (x + w / 2, y + h / 2)).max()
            found += (
                off < 0.15 * w and 0.8 < (record.face[2] - record.face[0]) / w < 1.2
            )
    assert found >= 9
