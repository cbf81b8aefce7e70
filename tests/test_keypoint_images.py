import dataclasses
import json
import pickle

import cv2
import numpy as np
import pytest
import tensorflow_datasets as tfds

from facekp_jax import images, keypoint_images, skeletons
from facekp_jax.keypoint_images import KeypointImages, KeypointVideos
from facekp_jax.records import Instance, KeypointImage, Patch
from facekp_jax.skeletons import Skeleton

IMAGE = np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)
PNG = images.encode_png(IMAGE)
FISH = Skeleton("fish", ("head", "tail"), ((0, 1),), None, (0.1, 0.2))
BIRD = Skeleton(
    "bird", ("beak", "wingL", "wingR"), ((0, 1), (0, 2)), (0, 2, 1), (0.05,) * 3
)
BOX = np.float32([0.1, 2, 30, 12.5])


def fish(keypoints=((0.3, 0.5, 2), (29.5, 20, 1)), **fields):
    fields = {"box": BOX, "area": 0.1, **fields}
    return Instance("fish", np.float32(keypoints), **fields)


def bird(keypoints=((1, 2, 2), (0, 0, 0), (3, 4, 1)), **fields):
    return dataclasses.replace(fish(keypoints, **fields), skeleton="bird")


def photo(name="a.png", instances=(), labelled=("fish", "bird"), **fields):
    return KeypointImage(name, IMAGE, tuple(instances), labelled, **fields)


def write(directory, photos, split="train", types=(FISH, BIRD), **settings):
    records = [(record, PNG) for record in photos]
    keypoint_images.write(directory, split, records, skeletons=types, **settings)


def assert_same(got, wanted):
    """All of two records is equal, bit for bit."""
    for one, other in (
        (got, wanted),
        *zip(got.instances, wanted.instances, strict=True),
    ):
        one, other = dataclasses.asdict(one), dataclasses.asdict(other)
        one.pop("instances", None), other.pop("instances", None)
        assert json.dumps(one, default=repr) == json.dumps(other, default=repr)
        for field, value in one.items():
            assert type(value) is type(other[field]), field
            if isinstance(value, np.ndarray):
                assert value.dtype == other[field].dtype, field
                np.testing.assert_array_equal(value, other[field])


def test_records_come_back_as_they_were_written(tmp_path):
    ignored = Patch(2, 3, np.array([[True, False, True], [True, True, False]]))
    records = [
        photo("ü b.png", [fish(area=1 / 3, track=0, score=0.3)]),
        photo("empty.png", labelled=("bird",)),
        photo("unknown.png", labelled=()),
        photo("many.png", [bird(), fish(track=2**40), bird(), bird(area=0.0)]),
        photo("unlabelled.png", [fish(np.zeros((2, 3)))], ignore=ignored),
        photo("f7.png", [bird()], video="ü 1", frame=7, time=7 / 30),
        photo("f9.png", video="ü 1", frame=9, time=0.3),
    ]
    write(tmp_path, records)
    source = KeypointImages(tmp_path, "train")
    assert len(source) == len(records)
    for got, wanted in zip(source, records, strict=True):
        assert_same(got, wanted)
    np.testing.assert_array_equal(source[4].ignore.pixels, ignored.pixels)
    assert (source.skeletons, source.apply_exif) == ((FISH, BIRD), True)


def test_instances_are_those_with_a_labelled_keypoint(tmp_path):
    nothing = np.zeros((2, 3))
    records = [
        photo(instances=[fish(nothing), bird(), fish()]),
        photo(),
        photo(instances=[fish(nothing)]),
        photo(instances=[bird()]),
    ]
    write(tmp_path, records)
    write(tmp_path, [photo()], split="val")
    instances = KeypointImages(tmp_path, "train").instances
    assert instances.tolist() == [[0, 1], [0, 2], [3, 0]]
    none = KeypointImages(tmp_path, "val").instances
    assert (none.shape, none.dtype) == ((0, 2), instances.dtype)


def test_metadata_covers_all_splits(tmp_path):
    write(tmp_path, [photo(instances=[bird()] * 3)], split="val")
    write(
        tmp_path,
        [
            photo("1.png", [fish()], ("fish",), video="a"),
            photo("2.png", [fish(), fish(np.zeros((2, 3)))], ("fish",)),
        ],
        types=(FISH,),
    )
    train, val = (KeypointImages(tmp_path, s) for s in ("train", "val"))
    assert train.splits == val.splits == ("train", "val")
    # Those of train come first, whichever split is opened or was built first.
    assert train.skeletons == val.skeletons == (FISH, BIRD)
    assert train.max_instances == val.max_instances == 3
    assert train.counts == val.counts
    assert train.counts["train"] == {
        "photos": 2,
        "instances": 3,
        "videos": 1,
        "skeletons": {
            "fish": {
                "instances": 3,
                "keypoints": {"head": [1, 0, 2], "tail": [1, 2, 0]},
            }
        },
    }
    assert val.counts["val"]["skeletons"]["bird"] == {
        "instances": 3,
        "keypoints": {"beak": [0, 0, 3], "wingL": [3, 0, 0], "wingR": [0, 3, 0]},
    }
    assert val.counts["val"]["skeletons"]["fish"]["instances"] == 0
    assert val[0].instances[0].skeleton == "bird"
    assert train[0].labelled == ("fish",)


def frames(video, *numbers):
    return [
        photo(f"{video}{n}.png", video=video, frame=n, time=n / 25) for n in numbers
    ]


def test_videos_are_their_frames_in_order(tmp_path):
    records = [photo(), *frames("b", 3, 4, 8), *frames("a", 0), photo("last.png")]
    write(tmp_path, records)
    write(tmp_path, [photo()], split="val")
    assert KeypointImages(tmp_path, "train").videos == {
        "b": range(1, 4),
        "a": range(4, 5),
    }
    videos = KeypointVideos(tmp_path, "train")
    assert [video.name for video in videos] == ["b", "a"]
    found = pickle.loads(pickle.dumps(videos))[0].frames
    assert [(f.frame, f.time) for f in found] == [(3, 0.12), (4, 0.16), (8, 0.32)]
    assert (len(found), found[-1].name) == (3, "b8.png")
    assert [f.frame for f in found[1:]] == [4, 8]
    with pytest.raises(IndexError):
        found[3]
    assert len(KeypointVideos(tmp_path, "val")) == 0


def test_frames_are_decoded_when_they_are_asked_for(tmp_path):
    def decode(data, *, apply_exif):
        decoded.append(apply_exif)
        return images.decode(data)

    decoded = []
    write(tmp_path, frames("a", 0, 1, 2), apply_exif=False)
    (video,) = KeypointVideos(tmp_path, "train", decode=decode)
    assert not decoded
    assert video.frames[2].frame == 2
    assert decoded == [False]


@pytest.mark.parametrize(
    "records, message",
    [
        (
            [*frames("a", 0), photo("x.png"), *frames("a", 1)],
            "a1.png: video 'a' goes on after x.png; its frames must follow",
        ),
        ([*frames("a", 0), *frames("b", 0), *frames("a", 1)], "goes on after b0.png"),
        (frames("a", 2, 1), "a1.png: frame 1 at 0.04 s of 'a' comes after frame 2"),
        (
            [photo("1.png", video="a"), photo("2.png", video="a", frame=1)],
            "2.png: frame 1 at 0.0 s of 'a' comes after frame 0 at 0.0 s",
        ),
        (frames("a", float("nan")), "its time is nan s"),
    ],
)
def test_a_video_out_of_order_names_the_record(tmp_path, records, message):
    with pytest.raises(ValueError, match=message):
        write(tmp_path, records)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "instance, message",
    [
        (fish([(1, 1, 2), (1, 1, 0)]), "'tail' is .*an unlabelled keypoint lies at 0"),
        (fish([(1, 1, 2), (1, 1, 3)]), "'tail' is .*visibility is 0, 1 or 2"),
        (fish([(1, 1, 2), (1, 1, 1.5)]), "visibility is 0, 1 or 2"),
        (fish([(1, 1, 2), (np.nan, 1, 1)]), "'tail' is .*a position is finite"),
        (fish([(1, 1, 2), (np.nan, 0, 0)]), "a position is finite"),
        (fish([(1, 1, 2), (1, 1, np.nan)]), "visibility is 0, 1 or 2"),
        (fish([(1, 1, 2)]), r"keypoints \(1, 3\); those of 'fish' are \(2, 3\)"),
        (fish(np.zeros((2, 2))), r"keypoints \(2, 2\); those of"),
        (fish(box=np.float32([0, 0, np.inf, 1])), "box .* is not four finite"),
        (fish(box=np.zeros(3)), "box .* is not four finite"),
        (fish(area=float("nan")), "area nan"),
        (fish(area=-1.0), r"area -1\.0"),
        (fish(track=-1), "track -1; tracks count from 0"),
        (fish(keypoint_scores=np.ones(2)), "scores of keypoints"),
        (bird(), "is 'bird', but the photo is labelled for fish"),
    ],
)
def test_a_wrong_instance_names_its_record(tmp_path, instance, message):
    records = [photo("b.png", [fish(), instance], labelled=("fish",))]
    with pytest.raises(ValueError, match=f"b.png: instance 1: .*{message}"):
        write(tmp_path, records)
    assert list(tmp_path.iterdir()) == []


def test_a_photo_is_labelled_for_skeletons_that_there_are(tmp_path):
    with pytest.raises(ValueError, match=r"a.png: labelled for 'bird', none of .*fish"):
        write(tmp_path, [photo()], types=(FISH,))


@pytest.mark.parametrize("x, y", [(-1, 0), (28, 0), (0, 18), (40, 50)])
def test_what_is_ignored_lies_in_the_picture(tmp_path, x, y):
    ignored = Patch(x, y, np.ones((3, 3), bool))
    with pytest.raises(ValueError, match=r"a.png: ignored pixels outside its 30 x 20"):
        write(tmp_path, [photo(ignore=ignored)])
    # A window over the border with nothing set there is none of a fault.
    ignored.pixels[:] = False
    write(tmp_path, [photo(ignore=ignored)])
    assert KeypointImages(tmp_path, "train")[0].ignore.pixels.size == 0


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"split": "train"}, "split 'train' exists"),
        ({"apply_exif": False}, "apply_exif is False here but True in split 'train'"),
        (
            {"types": (dataclasses.replace(FISH, sigmas=(0.1, 0.1)),)},
            r"sigmas of the skeleton 'fish' is \[0.1, 0.1\] here but \[0.1, 0.2\] in",
        ),
        (
            {"types": (dataclasses.replace(BIRD, mirror=None),)},
            "mirror of the skeleton 'bird' is None here but",
        ),
        ({"types": ()}, "no skeleton"),
        ({"types": (FISH, FISH)}, "two skeletons of the name 'fish'"),
    ],
)
def test_what_cannot_be_written_says_why(tmp_path, settings, message):
    write(tmp_path, [photo()])
    settings = {"split": "val", **settings}
    with pytest.raises(ValueError, match=message):
        write(tmp_path, [photo(labelled=())], **settings)
    types = settings.pop("types", (FISH, BIRD))
    with pytest.raises(ValueError, match=message):
        keypoint_images.check_writable(tmp_path, skeletons=types, **settings)


def test_splits_may_hold_other_types(tmp_path):
    write(tmp_path, [photo(labelled=("fish",))], types=(FISH,))
    write(tmp_path, [photo(labelled=("coco",))], split="val", types=[skeletons.COCO])
    assert KeypointImages(tmp_path, "train").skeletons == (FISH, skeletons.COCO)


def test_no_photo_is_no_split(tmp_path):
    with pytest.raises(ValueError, match="not one photo"):
        write(tmp_path, [])
    assert list(tmp_path.iterdir()) == []


def test_records_come_with_the_bytes_that_they_were_written_with(tmp_path):
    jpeg = cv2.imencode(".jpg", IMAGE)[1].tobytes()
    keypoint_images.write(tmp_path, "train", [(photo(), jpeg)], skeletons=[FISH, BIRD])
    source = pickle.loads(pickle.dumps(KeypointImages(tmp_path, "train")))
    record, data = source.with_bytes(-1)
    assert data == jpeg
    np.testing.assert_array_equal(record.image, images.decode(jpeg))
    with pytest.raises(IndexError):
        source[1]


def test_a_picture_of_another_size_is_named(tmp_path):
    data = images.encode_png(IMAGE.swapaxes(0, 1).copy())
    keypoint_images.write(tmp_path, "train", [(photo(), data)], skeletons=[FISH, BIRD])
    message = r"a.png: decodes to \(30, 20\) .*annotations are for \[20, 30\]"
    with pytest.raises(ValueError, match=message):
        KeypointImages(tmp_path, "train")[0]


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_that_is_no_split_is_never_replaced(tmp_path, overwrite):
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "a.jpg").write_bytes(b"the only copy")
    with pytest.raises(ValueError, match=r"train: is there, but is no split"):
        write(tmp_path, [photo()], overwrite=overwrite)
    assert (tmp_path / "train" / "a.jpg").read_bytes() == b"the only copy"
    assert [path.name for path in tmp_path.iterdir()] == ["train"]


def test_a_split_is_replaced_by_a_whole_one_only(tmp_path, monkeypatch):
    write(tmp_path, [photo()])

    def fail(*_):
        raise RuntimeError("write() failed: No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(tfds.core.SequentialWriter, "close_splits", fail)
        with pytest.raises(OSError, match=r"cannot be written: .*No space left"):
            write(tmp_path, [photo(), photo(name="b.png")], overwrite=True)
    assert len(KeypointImages(tmp_path, "train")) == 1
    # Left behind by a process that was killed between two renames.
    (tmp_path / "train").rename(tmp_path / "train.replaced")
    write(tmp_path, [photo(), photo(name="b.png")])
    assert len(KeypointImages(tmp_path, "train")) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["train"]
