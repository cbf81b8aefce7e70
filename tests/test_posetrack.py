import json

import cv2
import numpy as np
import pytest

from data_prep.readers import Damaged, Source, Tally, posetrack
from facekp_jax import masks, skeletons

NOISE = np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)
JPEG = cv2.imencode(".jpg", NOISE)[1].tobytes()
K = len(skeletons.POSETRACK.keypoints)
PERSON = {
    "id": 1,
    "name": "person",
    "keypoints": list(skeletons.POSETRACK.keypoints),
    "skeleton": [[16, 14], [1, 2]],
}


def frame(number, video="000001_mpii", **fields):
    name = f"images/train/{video}/{number:06}.jpg"
    return {"id": number, "file_name": name, "vid_id": video[:6], **fields}


def person(image_id, track=0, x=2.25, **fields):
    """Labelled: the nose, and head_top above the picture."""
    keypoints = [x, 3, 1, 0, 0, 0, 5, -2, 1, *[0] * (3 * K - 9)]
    return {
        "id": 100 * image_id + track,
        "image_id": image_id,
        "category_id": 1,
        "track_id": track,
        "keypoints": keypoints,
        "bbox": [1, 2, 8, 9],
        "scores": [],
        **fields,
    }


def dataset(folder, **videos):
    """One file for each video: (images, annotations)."""
    (folder / "annotations" / "train").mkdir(parents=True, exist_ok=True)
    for name, (images, annotations) in videos.items():
        content = {
            "images": images,
            "annotations": annotations,
            "categories": [PERSON],
        }
        path = folder / "annotations" / "train" / f"{name}.json"
        path.write_text(json.dumps(content))
        for image in images:
            picture = folder / image["file_name"]
            picture.parent.mkdir(parents=True, exist_ok=True)
            picture.write_bytes(JPEG)
    return folder


def read(folder, *, strict=False, **settings):
    tally = Tally(strict=strict)
    reading = posetrack.read(Source(folder, **settings), tally)
    return reading, [photo for photo, _ in reading.photos], tally


def test_videos_in_the_order_of_time(tmp_path):
    first = [frame(8), frame(4), frame(0, is_labeled=True)]
    second = [frame(1, "000002_mpii"), frame(3, "000002_mpii", is_labeled=False)]
    dataset(
        tmp_path,
        b=(first, [person(4, 7), person(4, 1), person(8, 7)]),
        a=(second, [person(1, x=2.0)]),
    )
    reading, photos, tally = read(tmp_path)
    assert [(p.video, p.frame, p.time) for p in photos] == [
        ("000001_mpii", 0, 0),
        ("000001_mpii", 4, 0.16),
        ("000001_mpii", 8, 0.32),
        ("000002_mpii", 1, 0.04),
    ]
    assert [[i.track for i in p.instances] for p in photos] == [[], [7, 1], [7], [0]]
    assert photos[1].name == "images/train/000001_mpii/000004.jpg"
    (skeleton,) = reading.skeletons
    assert skeleton.name == "person" and skeleton.edges == skeletons.POSETRACK.edges
    # One fraction in one file: all files are continuous. Labelled is visible.
    np.testing.assert_array_equal(photos[1].instances[0].keypoints[0], [2.25, 3, 2])
    np.testing.assert_array_equal(photos[3].instances[0].keypoints[0], [2, 3, 2])
    assert tally.notes["frames that are not labelled, left out"] == 1
    assert "keypoints refused, 4: outside the picture" in tally.table()
    assert tally.counts["instances"]["kept"] == 4 and reading.length == 5


def test_scores_that_are_given(tmp_path):
    annotation = person(0, scores=[0.5, 0.25])
    _, (photo,), _ = read(dataset(tmp_path, a=([frame(0)], [annotation])))
    assert photo.instances[0].score == 0.375


@pytest.mark.parametrize(
    "xs, ys, faults",
    [
        ([[2, 6, 6, 2], [10, 12]], [[3, 3, 8, 8], [1, 2]], 1),
        ([2, 6, 6, 2], [3, 3, 8, 8], 0),
        ([[2, 6, 6, 2], [10, 12, 13]], [[3, 3, 8, 8], [1, 2]], 1),
        ([[2, 6, 6, 2], "x"], [[3, 3, 8, 8], [1, 2, 3]], 1),
    ],
)
def test_regions_to_ignore(tmp_path, xs, ys, faults):
    image = frame(0, ignore_regions_x=xs, ignore_regions_y=ys)
    _, (photo,), tally = read(dataset(tmp_path, a=([image], [])))
    expected = np.zeros((20, 30), bool)
    expected[3:8, 2:6] = True
    np.testing.assert_array_equal(masks.to_full(photo.ignore, 20, 30), expected)
    assert tally.notes["areas to ignore (crowd, without labels)"] == 1
    assert tally.counts["photos"]["repaired"] == faults


@pytest.mark.parametrize("xs, ys", [([], []), (None, None), ([[]], [[]]), ([[1]], [])])
def test_no_region_to_ignore(tmp_path, xs, ys):
    image = frame(0, ignore_regions_x=xs, ignore_regions_y=ys)
    _, (photo,), _ = read(dataset(tmp_path, a=([image], [])))
    assert photo.ignore is None


@pytest.mark.parametrize("track", [None, -1, "3", 0.5, True, 2**31, 10**30])
def test_a_track_that_is_none(tmp_path, track):
    dataset(tmp_path, a=([frame(0)], [person(0, 5), person(0, track_id=track)]))
    _, (photo,), tally = read(tmp_path)
    assert [i.track for i in photo.instances] == [5, None]
    assert "no track_id that is a number from 0" in tally.table()


def test_crowds_join_the_regions_to_ignore(tmp_path):
    _, (photo,), _ = read(dataset(tmp_path, a=([frame(0)], [person(0, iscrowd=True)])))
    assert photo.instances == () and photo.ignore.pixels.sum() == 72


@pytest.mark.parametrize(
    "other, reason",
    [
        ({"file_name": "images/train/000001_mpii/0000.jpg"}, "number of an earlier"),
        ({"file_name": "images/train/000001_mpii/last.jpg"}, "no frame number"),
        ({"file_name": "../other/000003.jpg"}, "leaves the folder of images"),
        ({"file_name": None}, "no file_name"),
        ({"id": 0}, "id of an earlier image"),
        ({"width": 20, "height": 30}, "transposed"),
    ],
)
def test_a_bad_frame_is_refused_alone(tmp_path, other, reason):
    dataset(tmp_path, a=([frame(0), frame(3)], [person(0)]))
    (tmp_path / "images/train/000001_mpii/0000.jpg").write_bytes(JPEG)
    path = tmp_path / "annotations" / "train" / "a.json"
    content = json.loads(path.read_text())
    content["images"][1] |= other
    path.write_text(json.dumps(content))
    _, photos, tally = read(tmp_path)
    assert len(photos) == 1
    assert "photos refused, 1" in tally.table() and reason in tally.table()
    with pytest.raises(Damaged):
        read(tmp_path, strict=True)


def test_annotations_of_unlabelled_frames_are_counted(tmp_path):
    dataset(
        tmp_path, a=([frame(0), frame(1, is_labeled=False)], [person(1), person(9)])
    )
    _, (photo,), tally = read(tmp_path)
    assert photo.instances == ()
    assert tally.counts["instances"]["refused"] == 2
    for reason in ("on a frame that is not labelled", "image_id of no image"):
        assert f"instances refused, 1: {reason}" in tally.table()


def test_one_file_of_several_videos_and_pictures_elsewhere(tmp_path):
    images = [frame(5, "000002_mpii"), {**frame(5), "id": 6}]
    dataset(tmp_path / "x", a=(images, [person(6)]))
    _, photos, _ = read(
        tmp_path,
        annotations=tmp_path / "x" / "annotations" / "train" / "a.json",
        images=tmp_path / "x",
    )
    assert [p.video for p in photos] == ["000001_mpii", "000002_mpii"]
    assert len(photos[0].instances) == 1


def test_files_that_do_not_fit(tmp_path):
    with pytest.raises(ValueError, match=r"train: no such file or .*--annotations"):
        read(tmp_path)
    (tmp_path / "annotations" / "train").mkdir(parents=True)
    with pytest.raises(ValueError, match="no JSON file in it"):
        read(tmp_path)
    dataset(tmp_path, a=([frame(0)], []), b=([frame(1)], []))
    path = tmp_path / "annotations" / "train" / "b.json"
    content = json.loads(path.read_text())
    content["categories"][0]["id"] = 2
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"b\.json: categories are not those of .*a\."):
        read(tmp_path)
