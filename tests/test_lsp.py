import cv2
import numpy as np
import pytest
import scipy.io

from data_prep.readers import Damaged, Source, Tally, lsp
from facekp_jax import skeletons

NOISE = np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)
JPEG = cv2.imencode(".jpg", NOISE)[1].tobytes()


def joints(people, third=1.0):
    """[14, 3, N]: joint k of person n at pixel (k + 1, n + 1), counted from 1."""
    k, n = np.mgrid[:14, :people] + 1.0
    return np.stack([k, n, np.full_like(k, third)], 1)


def dataset(folder, values, names):
    (folder / "images").mkdir(exist_ok=True)
    scipy.io.savemat(folder / "joints.mat", {"joints": values})
    for name in names:
        (folder / "images" / name).write_bytes(JPEG)
    return folder


def read(folder, *, strict=False, **settings):
    tally = Tally(strict=strict)
    reading = lsp.read(Source(folder, **settings), tally)
    return reading, [photo for photo, _ in reading.photos], tally


def test_matlabs_pixels_from_1_become_centres(tmp_path):
    values = joints(2)
    values[3, :, 1] = -7, 99, 0  # not labelled, and anywhere
    dataset(tmp_path, values, ["im00001.jpg", "im00002.jpg", "notes.txt"])
    reading, photos, tally = read(tmp_path, strict=True)
    assert [photo.name for photo in photos] == ["im00001.jpg", "im00002.jpg"]
    (skeleton,) = reading.skeletons
    assert skeleton.name == "person" and skeleton.edges == skeletons.LSP.edges
    expected = np.stack([np.arange(14) + 0.5, np.full(14, 0.5), np.full(14, 2)], axis=1)
    np.testing.assert_array_equal(photos[0].instances[0].keypoints, expected)
    expected[:, 1], expected[3] = 1.5, 0
    np.testing.assert_array_equal(photos[1].instances[0].keypoints, expected)
    # 13 pixels wide, a tenth of it around, clipped at the picture's corner.
    np.testing.assert_allclose(photos[0].instances[0].box, [0, 0, 14.8, 1.8], rtol=1e-6)
    assert tally.counts["keypoints"]["kept"] == 27
    assert tally.notes["instances without a box (that of their keypoints taken)"] == 2


def test_the_older_form_tells_hidden_joints(tmp_path):
    values = joints(1, 0).transpose(1, 0, 2)
    values[2, 4] = 1
    _, (photo,), _ = read(dataset(tmp_path, values, ["im0001.jpg"]), strict=True)
    visibility = photo.instances[0].keypoints[:, 2]
    np.testing.assert_array_equal(visibility, np.where(np.arange(14) == 4, 1, 2))


@pytest.mark.parametrize(
    "people, names, rows, without",
    [
        (4, ["im0002.jpg", "im0004.jpg"], [1.5, 3.5], 2),
        (2, ["im2501.jpg", "im2502.jpg"], [0.5, 1.5], 0),
        (2, ["im9999.jpg", "im10000.jpg"], [0.5, 1.5], 0),
    ],
)
def test_a_part_of_the_pictures(tmp_path, people, names, rows, without):
    _, photos, tally = read(dataset(tmp_path, joints(people), names))
    assert [photo.name for photo in photos] == names
    found = [photo.instances[0].keypoints[0, 1] for photo in photos]
    np.testing.assert_array_equal(found, rows)
    assert tally.notes["joints without a picture, left out"] == without


@pytest.mark.parametrize(
    "point, reason",
    [
        ((31, 1, 1), "outside the picture"),
        ((0, 1, 1), "outside the picture"),
        ((np.nan, 1, 1), "labelled, but not finite"),
    ],
)
def test_a_bad_joint_is_lost_alone(tmp_path, point, reason):
    values = joints(1)
    values[5, :, 0] = point
    dataset(tmp_path, values, ["im0001.jpg"])
    _, (photo,), tally = read(tmp_path)
    assert np.count_nonzero(photo.instances[0].keypoints[:, 2]) == 13
    assert f"keypoints refused, 1: {reason} (im0001.jpg, joints 1)" in tally.table()
    with pytest.raises(Damaged, match=reason):
        read(tmp_path, strict=True)


def test_a_person_without_joints_is_refused(tmp_path):
    dataset(tmp_path, joints(1, 0), ["im0001.jpg"])
    _, (photo,), tally = read(tmp_path)
    assert photo.instances == ()
    assert "neither box nor mask nor labelled keypoint" in tally.table()


@pytest.mark.parametrize(
    "values, names, message",
    [
        (joints(2), ["im0001.jpg", "im0003.jpg"][1:], "1 pictures up to number 3"),
        (joints(2), [], "no picture im0001.jpg"),
        (joints(1), ["im001.jpg", "im0001.jpg"], "im0001.jpg and im001.jpg have the"),
        (np.zeros((14, 2, 1)), ["im0001.jpg"], r"joints of shape \(14, 2"),
        (np.zeros(3), ["im0001.jpg"], "joints of shape"),
        ("text", ["im0001.jpg"], "not joints of MATLAB"),
    ],
)
def test_what_does_not_fit(tmp_path, values, names, message):
    with pytest.raises(ValueError, match=message):
        read(dataset(tmp_path, values, names))


def test_a_file_that_is_not_matlabs(tmp_path):
    dataset(tmp_path, joints(1), ["im0001.jpg"])
    for data in (b"", b"not a mat file", (tmp_path / "joints.mat").read_bytes()[:150]):
        (tmp_path / "joints.mat").write_bytes(data)
        with pytest.raises(ValueError, match=r"joints.mat: not joints of MATLAB"):
            read(tmp_path)
    (tmp_path / "joints.mat").unlink()
    with pytest.raises(ValueError, match=r"joints.mat: no such file; .*--annotations"):
        read(tmp_path)


def test_the_types_name(tmp_path):
    dataset(tmp_path, joints(1), ["im0001.jpg"])
    reading, *_ = read(tmp_path, group="all:Athlete")
    assert [s.name for s in reading.skeletons] == ["athlete"]
    reading, *_ = read(tmp_path, skeleton=skeletons.LSP)
    assert [s.name for s in reading.skeletons] == ["lsp"]
    with pytest.raises(ValueError, match="--none=nobody: this source has no categor"):
        read(tmp_path, none=["nobody"])
    with pytest.raises(ValueError, match="--group=supercategory: this source has one"):
        read(tmp_path, group="supercategory")
    with pytest.raises(ValueError, match="14 keypoints, but --skeleton has 17"):
        read(tmp_path, skeleton=skeletons.COCO)


@pytest.mark.parametrize("third", [np.nan, 2, -1, 1e300])
@pytest.mark.parametrize("extended", [False, True])
def test_a_third_number_is_0_or_1(tmp_path, third, extended):
    values = joints(1)
    values[4, 2, 0] = third
    if not extended:
        values = values.transpose(1, 0, 2)
    _, (photo,), tally = read(dataset(tmp_path, values, ["im0001.jpg"]))
    assert photo.instances[0].keypoints[4].tolist() == [0, 0, 0]
    assert tally.counts["keypoints"]["refused"] == 1
