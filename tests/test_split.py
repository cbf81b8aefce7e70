"""Splitting a data set: what is drawn, what stays together, what is copied."""

import dataclasses
import itertools
import pathlib

import numpy as np
import pytest
from commands import result, run

from data_prep.split import drawn
from facekp_jax import datasets, images, keypoint_images, lesion_images
from facekp_jax.records import Instance, KeypointImage, LesionImage, Patch, Region
from facekp_jax.skeletons import Skeleton

DOG = Skeleton("dog", ("head", "tail"), ((0, 1),), (0, 1), (0.1, 0.2))
COW = Skeleton("cow", ("head", "tail"), ((0, 1),), None, (0.1, 0.1))


def picture(seed):
    return np.random.default_rng(seed).integers(0, 256, (20, 30, 3), np.uint8)


def write(directory, names, *, split="train", first=0, damaged=()):
    """Photos with 0, 1, 2, 0, ... regions, every fourth one without a face."""

    def photos():
        for i, name in enumerate(names, first):
            mask = Patch(2, 3, np.ones((2, 1 + i % 5), bool))
            regions = tuple(
                Region("acne", np.float32([1, 2, 10, 12.5]), mask, mask, crowd=j > 0)
                for j in range(i % 3)
            )
            face = np.float32([0, 1, 20, 19.5]) if i % 4 else None
            photo = LesionImage(name, picture(i), regions, ("acne",), face)
            data = images.encode_png(photo.image)
            yield photo, data[:1000] if name in damaged else data

    settings = {"branches": ("acne", "mole"), "face_detector": "haar"}
    lesion_images.write(directory, split, photos(), apply_exif=False, **settings)


def write_keypoints(directory, photos, videos):
    """Photos of these names, and videos, name -> number of frames, between them."""

    def records():
        middle = len(photos) // 2
        names = [("", name, 0) for name in photos]
        names[middle:middle] = [
            (video, f"{video}/{i}.png", i)
            for video, length in videos.items()
            for i in range(length)
        ]
        for i, (video, name, frame) in enumerate(names):
            instances = tuple(
                Instance(
                    "dog",
                    np.float32([[5, 6 + j, 2], [0, 0, 0]]),
                    np.float32([1, 2, 10, 12.5]),
                    area=40.0 + j,
                    track=j if video else None,
                )
                for j in range(i % 3)
            )
            ignore = Patch(3, 4, np.ones((2, 2), bool)) if i % 2 else None
            photo = KeypointImage(
                name, picture(i), instances, ("dog",), ignore, video, frame, frame / 10
            )
            yield photo, images.encode_png(photo.image)

    keypoint_images.write(directory, "train", records(), skeletons=(DOG, COW))


def split(*arguments, **options):
    return run("data_prep.split", *arguments, **options)


def names_of(directory):
    return [
        [photo.name for photo in datasets.open_split(directory, name)]
        for name in ("train", "val")
    ]


def check_copied(source, directory):
    """Each photo of the source is there once, with all that is known of it."""
    old = {source[i].name: source.with_bytes(i) for i in range(len(source))}
    for name in ("train", "val"):
        part = datasets.open_split(directory, name)
        for i in range(len(part)):
            photo, data = part.with_bytes(i)
            was, bytes_there = old.pop(photo.name)
            assert data == bytes_there
            np.testing.assert_equal(dataclasses.asdict(photo), dataclasses.asdict(was))
    assert not old


NAMES = [b"%d.png" % i for i in range(1000)]


@pytest.mark.parametrize(
    "total, share, number",
    [
        (90, 0.2, 18),
        (116, 0.2, 23),  # of 23.2
        (3, 0.5, 2),
        (1000, 0.25, 250),
        (10, 0.01, 1),  # not none
        (10, 0.99, 9),  # not all
        (2, 0.5, 1),
        (1, 0.5, 0),
        (0, 0.5, 0),
    ],
)
def test_the_share_is_exact(total, share, number):
    chosen = drawn(NAMES[:total], share, 0)
    assert len(chosen) == number and chosen <= {*NAMES[:total]}


def test_what_is_drawn_depends_on_names_and_seed_alone():
    chosen = drawn(NAMES, 0.2, 0)
    assert chosen == drawn(NAMES[::-1], 0.2, 0)
    assert chosen < drawn(NAMES, 0.3, 0)
    # Of 200 and 200 of 1000, 40 are the same by chance, give or take 5.
    assert 15 < len(chosen & drawn(NAMES, 0.2, 1)) < 65
    # Nor by the place in the list, of which each fifth has 40, give or take 6.
    assert all(
        15 < len(chosen & {*NAMES[i : i + 200]}) < 65 for i in range(0, 1000, 200)
    )


@pytest.mark.parametrize("added", [1, 10, 100, 1000])
def test_photos_that_are_added_exchange_none(added):
    before = drawn(NAMES, 0.2, 0)
    after = drawn([*NAMES, *(b"new/%d.png" % i for i in range(added))], 0.2, 0)
    kept = after & {*NAMES}
    assert kept <= before or before <= kept
    assert len(kept ^ before) <= 30  # 200, give or take 13 where 1000 are added


def test_regions_faces_and_settings_are_copied(tmp_path):
    names = [f"{i}.png" for i in range(10)]
    folder, out = tmp_path / "all", tmp_path / "out"
    write(folder, names)
    done = split(folder, f"--output={out}", "--val=0.3")
    source = lesion_images.LesionImages(folder, "train")
    check_copied(source, out)
    train, val = names_of(out)
    assert (len(train), len(val)) == (7, 3)
    # In the order of the source, whatever the order of the hashes.
    assert train == [n for n in names if n in train]
    assert val == [n for n in names if n in val]
    for name in ("train", "val"):
        part = lesion_images.LesionImages(out, name)
        assert part.branches == ("acne", "mole")
        assert (part.face_detector, part.apply_exif) == ("haar", False)
    summary = result(done)
    assert summary.pop("seconds") > 0
    of_train, of_val = (sum(int(n[0]) % 3 for n in part) for part in (train, val))
    assert of_train + of_val == 0 + 1 + 2 + 0 + 1 + 2 + 0 + 1 + 2 + 0
    assert summary == {
        "experiment": None,
        "output": str(out),
        "source": str(folder),
        "splits": {
            "train": {
                "photos": 7,
                "regions": of_train,
                "branches": {"acne": of_train, "mole": 0},
            },
            "val": {
                "photos": 3,
                "regions": of_val,
                "branches": {"acne": of_val, "mole": 0},
            },
        },
        "counts": {
            "photos": {"read": 10, "kept": 10, "repaired": 0, "refused": 0},
            "regions": {"read": 9, "kept": 9, "repaired": 0, "refused": 0},
            "notes": {},
        },
    }
    lines = done.stdout.splitlines()
    assert f"val: 3 photos, {of_val} regions (acne {of_val}, mole 0)" in lines

    again = split(folder, f"--output={out}", status=2)
    assert "split 'train' exists" in again.stderr and names_of(out) == [train, val]
    split(folder, f"--output={out}", "--val=0.3", "--seed=1", "--overwrite")
    assert names_of(out)[1] != val


def test_videos_stay_whole(tmp_path):
    folder, out = tmp_path / "all", tmp_path / "out"
    write_keypoints(
        folder, ["a.png", "b.png", "c.png", "d.png"], {"v": 3, "w": 2, "x": 4}
    )
    summary = result(split(folder, f"--output={out}", "--val=0.34"))
    source = keypoint_images.KeypointImages(folder, "train")
    check_copied(source, out)
    parts = [keypoint_images.KeypointImages(out, name) for name in ("train", "val")]
    lengths = [{v: len(r) for v, r in part.videos.items()} for part in parts]
    assert [len(videos) for videos in lengths] == [2, 1]
    assert lengths[0] | lengths[1] == {"v": 3, "w": 2, "x": 4}
    # Of the four photos one, beside the frames.
    assert [len(p) - sum(v.values()) for p, v in zip(parts, lengths, strict=True)] == [
        3,
        1,
    ]
    assert parts[0].skeletons == parts[1].skeletons == (DOG, COW)
    assert summary["splits"]["val"]["videos"] == 1
    assert summary["counts"]["photos"]["kept"] == 13


def test_a_video_that_is_everything_is_cut_in_time(tmp_path):
    folder, out = tmp_path / "all", tmp_path / "out"
    write_keypoints(folder, [], {"v": 8})
    done = split(folder, f"--output={out}", "--val=0.25")
    check_copied(keypoint_images.KeypointImages(folder, "train"), out)
    assert names_of(out) == [[f"v/{i}.png" for i in range(6)], ["v/6.png", "v/7.png"]]
    for name, length in (("train", 6), ("val", 2)):
        videos = keypoint_images.KeypointImages(out, name).videos
        assert videos == {"v": range(length)}
    assert "videos cut in time, as there is nothing else: 1" in done.stdout


def test_a_video_beside_photos_is_trained_on(tmp_path):
    folder, out = tmp_path / "all", tmp_path / "out"
    write_keypoints(folder, ["a.png", "b.png"], {"v": 3})
    split(folder, f"--output={out}", "--val=0.9")
    train, val = names_of(out)
    assert len(train) == 4 and {*val} < {"a.png", "b.png"}


def test_photos_of_one_name_stay_together(tmp_path):
    folder, out = tmp_path / "all", tmp_path / "out"
    write(folder, ["a.png", "b.png", "a.png", "b.png"])
    split(folder, f"--output={out}")
    assert sorted(names_of(out)) == [["a.png", "a.png"], ["b.png", "b.png"]]


def test_damaged_records_and_pictures_are_refused_and_counted(tmp_path):
    folder, out = tmp_path / "all", tmp_path / "out"
    write(folder, [f"{i}.png" for i in range(6)], damaged=["4.png"])
    (path,) = pathlib.Path(folder / "train").glob("*.array_record*")
    data = bytearray(path.read_bytes())
    pixels = data.find(b"IDAT") + 1000  # of the first photo
    data[pixels : pixels + 64] = bytes(64)
    path.write_bytes(data)
    done = split(folder, f"--output={out}", "--val=0.5")
    counts = result(done)["counts"]["photos"]
    assert counts == {"read": 6, "kept": 4, "repaired": 0, "refused": 2}
    for number in (0, 4):
        assert f"(train of all, photo {number})" in done.stdout
    assert sorted(itertools.chain(*names_of(out))) == [
        "1.png",
        "2.png",
        "3.png",
        "5.png",
    ]
    strict = split(folder, f"--output={tmp_path / 'o'}", "--strict", status=1)
    assert strict.stderr.startswith(f"error: train of all, photo 0: {folder}")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("folders")
    write(folder / "one", ["a.png"])
    write(folder / "several", ["a.png", "b.png"])
    write(folder / "several", ["c.png", "d.png"], split="test", first=2)
    write_keypoints(folder / "frame", [], {"v": 1})
    write_keypoints(folder / "mixed", ["a.png"], {"v": 2})
    return folder


def test_one_split_of_several(folders, tmp_path):
    split(folders / "several", f"--output={tmp_path}", "--split=test", "--val=0.5")
    assert sorted(itertools.chain(*names_of(tmp_path))) == ["c.png", "d.png"]


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["one"], "--output=DIR is missing"),
        (["--output=o"], "DIR is missing; give it"),
        (["nowhere", "--output=o"], "nowhere: no such folder"),
        (["one", "--output=o"], "one: too small to split; it takes two photos"),
        (["frame", "--output=o"], "frame: too small to split"),
        (["mixed", "--output=o"], "mixed: too small to split"),
        (["one", "--output", "one"], "--output=one is the data set to split"),
        (
            ["several", "--output=o"],
            "several: has the splits train, test; name the one",
        ),
        (["several", "--output=o", "--split=x"], "no split 'x', only train, test"),
        (["one", "--output=o", "--val=1"], "--val=1.0: give a share between 0 and 1"),
        (["one", "--output=o", "--val=nan"], "--val=nan: give a share between 0 and 1"),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(folders, arguments, message):
    places = [a if a.startswith("-") else str(folders / a) for a in arguments]
    done = split(*places, status=2)
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ") and message in line.replace(f"{folders}/", "")
