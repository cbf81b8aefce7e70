import cv2
import numpy as np
import pytest
from commands import result, run

from facekp_jax import datasets, images, keypoint_images, lesion_images
from facekp_jax.records import Instance, KeypointImage, LesionImage, Patch, Region
from facekp_jax.skeletons import Skeleton

SHAPE = (20, 30, 3)


def picture(seed):
    return np.random.default_rng(seed).integers(0, 256, SHAPE, np.uint8)


def write(directory, split, branch, names, *, data=None, seed=0, **settings):
    """A split of photos each with one region of `branch`."""

    def photos():
        for i, name in enumerate(names):
            encoded = data or images.encode_png(picture(seed + i))
            image = images.decode(encoded, apply_exif=settings["apply_exif"])
            mask = Patch(2, 3, np.ones((2, 1 + i), bool))
            region = Region(
                branch, np.float32([1, 2, 10, 12.5]), mask=mask, crowd=i > 0
            )
            face = np.float32([0, 1, 20 + i, 19.5]) if i < 2 else None
            yield LesionImage(name, image, (region,), (branch,), face), encoded

    settings = {"face_detector": "whole", "apply_exif": True, **settings}
    lesion_images.write(directory, split, photos(), branches=(branch,), **settings)


def skeleton(name, sigma=0.1):
    return Skeleton(name, ("head", "tail"), ((0, 1),), (0, 1), (0.1, sigma))


def write_keypoints(directory, split, kind, names, *, video="", sigma=0.1):
    """A split of photos, or frames, each with one more animal of `kind`."""

    def photos():
        for i, name in enumerate(names):
            image = picture(i)
            instances = tuple(
                Instance(
                    kind,
                    np.float32([[5, 6 + j, 2], [0, 0, 0]]),
                    np.float32([1, 2, 10, 12.5]),
                    area=40.0 + j,
                    track=j if video else None,
                )
                for j in range(i)
            )
            ignore = Patch(3, 4, np.ones((2, 1 + i), bool)) if i else None
            record = KeypointImage(
                name, image, instances, (kind,), ignore, video, i, i / 10
            )
            yield record, images.encode_png(image)

    keypoint_images.write(
        directory, split, photos(), skeletons=(skeleton(kind, sigma),)
    )


def merge(*arguments, status=0):
    return run("data_prep.merge", *arguments, status=status)


def turned_jpeg(orientation):
    """A picture that its EXIF orientation turns, with as little EXIF as can be."""
    jpeg = cv2.imencode(".jpg", picture(7))[1].tobytes()
    entry = b"\x01\x12\x00\x03\x00\x00\x00\x01\x00" + bytes([orientation]) + b"\0\0"
    tiff = b"MM\x00\x2a\x00\x00\x00\x08\x00\x01" + entry + b"\0\0\0\0"
    block = b"Exif\0\0" + tiff
    return (
        jpeg[:2] + b"\xff\xe1" + (len(block) + 2).to_bytes(2, "big") + block + jpeg[2:]
    )


def test_photos_keep_what_they_know_and_nothing_more(tmp_path):
    a, b, out = tmp_path / "x" / "one", tmp_path / "y" / "one", tmp_path / "out"
    write(a, "train", "acne", ["a.png", "b.png", "c.png"])
    write(a, "val", "acne", ["v.png"])
    write(b, "train", "mole", ["a.png", "d.png"], seed=10, face_detector="haar")
    write(b, "test", "mole", ["a.png"], seed=20, face_detector="haar")
    done = merge(a, b, f"--output={out}", "--face_detector=haar")
    summary = result(done)
    assert datasets.splits(out) == ("train", "test", "val")
    train, val, test = (
        lesion_images.LesionImages(out, s) for s in ("train", "val", "test")
    )
    assert train.branches == val.branches == test.branches == ("acne", "mole")
    assert (train.face_detector, train.apply_exif) == ("haar", True)
    # Both sources are called "one": their titles go on to the left until they differ.
    assert [p.name for p in train] == [
        "a.png",
        "b.png",
        "c.png",
        "y_one/a.png",
        "d.png",
    ]
    assert [p.name for p in test] == ["a.png"]
    sources = [
        (lesion_images.LesionImages(a, "train"), 0),
        (lesion_images.LesionImages(b, "train"), 3),
    ]
    for source, start in sources:
        for i in range(len(source)):
            old, new = source[i], train[start + i]
            assert new.labelled == old.labelled and len(new.labelled) == 1
            (was,), (now,) = old.regions, new.regions
            np.testing.assert_array_equal(now.box, was.box)
            np.testing.assert_array_equal(now.mask.pixels, was.mask.pixels)
            assert (now.branch, now.crowd) == (was.branch, was.crowd)
            if old.face is None:
                assert new.face is None
            else:
                np.testing.assert_array_equal(new.face, old.face)
            assert train.with_bytes(start + i)[1] == source.with_bytes(i)[1]
    assert summary.pop("seconds") > 0
    assert summary == {
        "experiment": None,
        "output": str(out),
        "sources": [str(a), str(b)],
        "splits": {
            "train": {"photos": 5, "regions": 5, "branches": {"acne": 3, "mole": 2}},
            "val": {"photos": 1, "regions": 1, "branches": {"acne": 1}},
            "test": {"photos": 1, "regions": 1, "branches": {"mole": 1}},
        },
        "counts": {
            "photos": {"read": 7, "kept": 7, "repaired": 0, "refused": 0},
            "regions": {"read": 7, "kept": 7, "repaired": 0, "refused": 0},
            "notes": {"photos of a name that was taken, now SOURCE/NAME": 1},
        },
    }
    assert "train of x_one: 3 photos, 3 regions (acne 3)" in done.stdout
    assert "train merged: 5 photos, 5 regions (acne 3, mole 2)" in done.stdout


def test_photos_that_the_merged_setting_would_turn_are_refused(tmp_path):
    a, b, c, out = (tmp_path / name for name in ("a", "b", "c", "out"))
    write(a, "train", "acne", ["a.png"])
    write(b, "train", "mole", ["plain.png"], apply_exif=False)
    write(c, "train", "spot", ["turned.jpg"], data=turned_jpeg(3), apply_exif=False)
    # Turned by half, its size is the same, and its regions would silently be wrong.
    done = merge(a, b, c, f"--output={out}", "--apply_exif")
    assert result(done)["counts"]["photos"]["refused"] == 1
    assert "turned by it (c/turned.jpg)" in done.stdout
    merged = lesion_images.LesionImages(out, "train")
    assert [p.name for p in merged] == ["a.png", "plain.png"]
    assert merged.branches == ("acne", "mole", "spot") and merged.apply_exif is True
    arguments = (f"--output={out}", "--apply_exif", "--strict", "--overwrite")
    strict = merge(a, c, *arguments, status=1)
    assert "c/turned.jpg: annotated with apply_exif=False" in strict.stderr
    assert len(lesion_images.LesionImages(out, "train")) == 2


def test_keypoints_keep_their_types_videos_and_areas(tmp_path):
    a, b, c, out = (tmp_path / name for name in ("a", "b", "c", "out"))
    write_keypoints(a, "train", "dog", ["0.png", "1.png"], video="walk")
    write_keypoints(b, "train", "cow", ["0.png", "1.png", "2.png"], video="walk")
    write_keypoints(b, "val", "cow", ["0.png"])
    write_keypoints(c, "train", "dog", ["x.png", "y.png"])
    summary = result(merge(a, b, c, f"--output={out}"))
    assert summary["counts"]["instances"]["kept"] == 1 + 3 + 1
    assert summary["counts"]["notes"] == {
        "photos of a name that was taken, now SOURCE/NAME": 2,
        "videos of a name that was taken, now SOURCE/NAME": 1,
    }
    of_type = summary["splits"]["train"]["skeletons"]
    assert {kind: of_type[kind]["instances"] for kind in of_type} == {
        "dog": 2,
        "cow": 3,
    }
    train = keypoint_images.KeypointImages(out, "train")
    assert train.skeletons == (skeleton("dog"), skeleton("cow"))
    assert train.videos == {"walk": range(2), "b/walk": range(2, 5)}
    # The second split alone has one of the types: it is labelled for no other.
    assert list(summary["splits"]["val"]["skeletons"]) == ["cow"]
    start = 0
    for folder in (a, b, c):
        source = keypoint_images.KeypointImages(folder, "train")
        for i in range(len(source)):
            old, data = source.with_bytes(i)
            new, copied = train.with_bytes(start + i)
            assert copied == data
            assert new.labelled == old.labelled and len(new.labelled) == 1
            assert (new.frame, new.time) == (old.frame, old.time)
            assert len(new.instances) == len(old.instances) == i
            for now, was in zip(new.instances, old.instances, strict=True):
                np.testing.assert_array_equal(now.keypoints, was.keypoints)
                np.testing.assert_array_equal(now.box, was.box)
                assert (now.skeleton, now.area, now.track) == (
                    was.skeleton,
                    was.area,
                    was.track,
                )
            if old.ignore is None:
                assert new.ignore is None
            else:
                np.testing.assert_array_equal(new.ignore.pixels, old.ignore.pixels)
        start += len(source)
    assert len(train) == start
    again = merge(a, c, f"--output={out}", "--overwrite")
    assert "train of a: 2 photos, 1 instances (dog 1)" in again.stdout
    assert keypoint_images.KeypointImages(out, "train").videos == {"walk": range(2)}


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    write(folder / "a", "train", "acne", ["a.png"])
    write(folder / "b", "train", "mole", ["b.png"], apply_exif=False)
    write(folder / "c", "train", "mole", ["c.png"], face_detector="haar")
    write_keypoints(folder / "dogs", "train", "dog", ["d.png"])
    write_keypoints(folder / "others", "val", "dog", ["d.png"], sigma=0.2)
    return folder


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--output=o"], "DIR is missing; give it"),
        (["a", "b", "--output", "b"], "--output=b is one of the sources"),
        (["a", "b", "--output=o"], "apply_exif is True in a but False in b; choose"),
        (["a", "c", "--output=o"], "face_detector is 'whole' in a but 'haar' in c; ch"),
        (["a", "dogs", "--output=o"], "a holds lesion images but dogs holds keypoint"),
        (["dogs", "others", "--output=o"], "dog has other sigmas in others than in do"),
        (
            ["dogs", "others", "--output=o", "--face_detector=haar"],
            "--face_detector says nothing of keypoint images; leave it out",
        ),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(two, arguments, message):
    places = [a if a.startswith("-") else str(two / a) for a in arguments]
    done = merge(*places, status=2)
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert message in line.replace(f"{two}/", "")
