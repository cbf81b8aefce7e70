"""Tests for the check of keypoint images: faults, counts, and the contact sheet."""

import dataclasses

import numpy as np
import pytest
from commands import result, run

from data_prep import check
from facekp_jax import images, keypoint_images
from facekp_jax.records import Instance, KeypointImage, Patch
from facekp_jax.skeletons import Skeleton

HEIGHT, WIDTH = 90, 120
DOG = Skeleton("dog", ("nose", "tail"), ((0, 1),), (0, 1), (0.1, 0.1))
BIRD = Skeleton("bird", ("head", "left", "right"), ((0, 1), (0, 2)), None, (0.1,) * 3)


def picture(seed):
    blocks = np.random.default_rng(seed).integers(0, 256, (9, 12, 1), np.uint8)
    return np.repeat(blocks.repeat(10, 0).repeat(10, 1), 3, axis=2)


def dog(*, nose=(20, 30, 2), tail=(60, 40, 1), box=(10, 20, 70, 50), **fields):
    keypoints = np.array([nose, tail], np.float32)
    return Instance("dog", keypoints, np.float32(box), **{"area": 900.0, **fields})


def photo(*instances, name="a.png", seed=0, **fields):
    labelled = fields.pop("labelled", ("dog",))
    return KeypointImage(name, picture(seed), instances, labelled, **fields)


@pytest.fixture(scope="module")
def checker(tmp_path_factory):
    """Makes the check of a split of dogs and birds, as if it had not read a photo."""
    folder = tmp_path_factory.mktemp("keypoints")
    write(folder, "train", [photo()])
    source = keypoint_images.KeypointImages(folder, "train")
    return lambda: check.KeypointCheck(source)


def write(directory, split, photos, skeletons=(DOG, BIRD)):
    records = ((p, images.encode_png(p.image)) for p in photos)
    keypoint_images.write(directory, split, records, skeletons=skeletons)


def test_good_photos_have_no_faults(checker):
    unlabelled = dog(nose=(0, 0, 0), tail=(0, 0, 0))
    at_the_border = dog(nose=(0, 0, 2), tail=(120, 90, 1), box=(0, 0, 120, 90))
    whole = Patch(0, 0, np.ones((HEIGHT, WIDTH), bool))
    for good in (photo(), photo(unlabelled), photo(at_the_border, ignore=whole)):
        assert list(checker().faults(good)) == []


@pytest.mark.parametrize(
    "instance, message",
    [
        (dog(nose=(20, 30, 3)), "nose: visibility 3.0 is not 0, 1 or 2"),
        (dog(nose=(20, 30, np.nan)), "nose: visibility nan is not 0, 1 or 2"),
        (dog(nose=(20, 30, 0)), "nose: unlabelled, but at 20.0, 30.0"),
        (dog(nose=(np.nan, 0, 0)), "nose: unlabelled, but at nan, 0.0"),
        (dog(tail=(121, 30, 1)), "tail: 121.0, 30.0 is not in the photo of 120x90"),
        (dog(tail=(20, -1, 2)), "tail: 20.0, -1.0 is not in the photo"),
        (dog(tail=(np.inf, 5, 2)), "tail: inf, 5.0 is not in the photo"),
        (dog(tail=(5, np.nan, 2)), "tail: 5.0, nan is not in the photo"),
        (dog(box=(10, 20, 121, 50)), "box [10.0, 20.0, 121.0, 50.0] is not in the"),
        (dog(box=(10, 20, 10, 50)), "is not in the photo of 120x90"),
        (dog(box=(np.nan, 20, 30, 50)), "is not in the photo of 120x90"),
        (dog(area=0.0), "its area is 0.0"),
        (dog(area=np.nan), "its area is nan"),
        (
            dataclasses.replace(dog(), keypoints=np.zeros((3, 3), np.float32)),
            "keypoints (3, 3), not (2, 3)",
        ),
    ],
)
def test_what_does_not_fit_is_one_fault(checker, instance, message):
    (fault,) = checker().faults(photo(dog(), instance))
    assert fault.startswith("dog, instance 1: ") and message in fault


def test_types_that_the_photo_is_not_labelled_for_are_faults(checker):
    (fault,) = checker().faults(photo(dog(), labelled=("bird",)))
    assert fault == "dog, instance 0: the photo is not labelled for dog"


def test_ignored_areas_must_have_pixels_in_the_photo(checker):
    empty = Patch(5, 5, np.zeros((3, 3), bool))
    beyond = Patch(118, 80, np.ones((10, 4), bool))
    (fault,) = checker().faults(photo(ignore=empty))
    assert fault == "its ignored area is empty"
    (fault,) = checker().faults(photo(ignore=beyond))
    assert fault == "20 ignored pixels are not in the photo"


@pytest.mark.parametrize(
    "frames, message",
    [
        ([("a", 0, 0.0), ("a", 2, 0.2), ("", 0, 0.0), ("", 0, 0.0), ("b", 0, 0.0)], ""),
        (
            [("a", 1, 0.1), ("a", 0, 0.2)],
            "frame 0 at 0.2 s of a after frame 1 at 0.1 s",
        ),
        (
            [("a", 1, 0.1), ("a", 1, 0.2)],
            "frame 1 at 0.2 s of a after frame 1 at 0.1 s",
        ),
        (
            [("a", 0, 0.1), ("a", 1, 0.1)],
            "frame 1 at 0.1 s of a after frame 0 at 0.1 s",
        ),
        ([("a", 0, 0.0), ("b", 0, 0.0), ("a", 1, 0.1)], "frame 1 of a is apart from"),
        ([("a", 0, 0.0), ("", 0, 0.0), ("a", 1, 0.1)], "frame 1 of a is apart from"),
    ],
)
def test_frames_of_a_video_are_together_and_in_order(checker, frames, message):
    one, faults = checker(), []
    for video, frame, time in frames:
        faults += one.faults(photo(video=video, frame=frame, time=time))
    assert [message in fault for fault in faults] == [True] * bool(message)


def test_a_track_is_one_animal(checker):
    one = checker()
    bird = Instance("bird", np.zeros((3, 3)), np.float32([1, 1, 5, 5]), 9.0, track=2)
    both = {"video": "a", "labelled": ("dog", "bird")}
    first = photo(dog(track=1), dog(track=1), bird, dog(), dog(), **both)
    assert list(one.faults(first)) == ["track 1 is there 2 times"]
    second = photo(dog(track=2), dog(track=1), frame=1, time=0.1, **both)
    assert list(one.faults(second)) == ["track 2 is dog, and was bird"]
    other = photo(dog(track=2), **{**both, "video": "b"})
    assert list(one.faults(other)) == []
    assert one.counts()["tracks"] == 3


def test_command_line_on_a_good_data_set(tmp_path):
    frames = [
        photo(dog(track=t), name=f"{t}.png", seed=t, video="v", frame=t, time=t / 10)
        for t in range(2)
    ]
    write(tmp_path, "train", [*frames, photo(dog(), dog(nose=(0, 0, 0)), seed=5)])
    write(tmp_path, "val", [photo(name="copy.png", seed=5)], skeletons=(DOG,))
    sheet = tmp_path / "sheet.png"
    done = run("data_prep.check", tmp_path, f"--contact_sheet={sheet}")
    summary = result(done)
    assert (summary["faults"], summary["near_duplicates"]) == (0, 1)
    assert "train/a.png = val/copy.png" in done.stdout
    train = summary["splits"]["train"]
    assert [train[k] for k in ("photos", "instances", "videos", "tracks")] == [
        3,
        4,
        1,
        2,
    ]
    assert train["skeletons"]["dog"]["keypoints"] == {
        "nose": [1, 0, 3],
        "tail": [0, 4, 0],
    }
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["nose", "1", "0", "3"] in rows and ["tail", "0", "4", "0"] in rows
    assert ["bird:", "0", "instances"] in rows
    drawn = images.read(sheet)
    assert drawn.shape == (480, 1920, 3)
    for tile in np.split(drawn, 4, axis=1):
        assert tile[150:330, 150:330].std() > 10


def test_command_line_reports_faults(tmp_path):
    outside = dog(nose=(500, 30, 2), box=(np.float32(500), 0, 600, 10))
    write(tmp_path, "train", [photo(outside), photo(name="b.png", seed=1)])
    sheet = tmp_path / "sheet.png"
    done = run("data_prep.check", tmp_path, f"--contact_sheet={sheet}", status=1)
    assert result(done)["faults"] == 2
    assert "train/a.png: dog, instance 0: nose: 500.0, 30.0 is not in" in done.stdout
    assert sheet.exists()


def test_photos_of_other_sources_may_have_the_same_tracks(checker):
    keypoints = np.zeros((3, 3), np.float32)
    bird = Instance("bird", keypoints, np.float32([0, 0, 9, 9]), 81.0, track=0)
    check_of = checker()
    photos = photo(dog(track=0)), photo(bird, name="b.png", labelled=("bird",))
    assert [list(check_of.faults(p)) for p in photos] == [[], []]
