import concurrent.futures
import pickle
import subprocess
import sys

import cv2
import numpy as np
import pytest

from facekp_jax import images, lesion_images
from facekp_jax.records import LesionImage, Patch, Region

IMAGE = np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)


def photo(name="a.png", regions=(), labelled=("acne", "mole"), face=None):
    return LesionImage(name, IMAGE, tuple(regions), labelled, face), images.encode_png(
        IMAGE
    )


def region(branch="acne", **fields):
    return Region(branch, np.float32([1, 2, 10, 12.5]), **fields)


def write(directory, photos, split="train", branches=("acne", "mole"), **settings):
    settings = {"face_detector": "whole", **settings}
    lesion_images.write(directory, split, photos, branches=branches, **settings)


def test_a_record_comes_back_as_it_was_written(tmp_path):
    mask = Patch(1, 2, np.array([[True, False, True], [True, True, True]]))
    pixels = Patch(3, 3, np.ones((1, 1), bool))
    regions = [
        region(mask=mask, pixels=pixels),
        region("mole", crowd=True),
        region(mask=mask),
    ]
    write(
        tmp_path,
        [
            photo("ü b.png", regions, face=np.float32([0, 1, 29.5, 20])),
            photo("empty.png", labelled=("mole",)),
        ],
    )
    source = lesion_images.LesionImages(tmp_path, "train")
    assert len(source) == 2
    full, empty = source
    assert full.name == "ü b.png"
    np.testing.assert_array_equal(full.image, IMAGE)
    np.testing.assert_array_equal(full.face, np.float32([0, 1, 29.5, 20]))
    assert full.labelled == ("acne", "mole")
    assert [r.branch for r in full.regions] == ["acne", "mole", "acne"]
    assert [r.crowd for r in full.regions] == [False, True, False]
    for r in full.regions:
        np.testing.assert_array_equal(r.box, np.float32([1, 2, 10, 12.5]))
    assert (full.regions[0].mask.x, full.regions[0].mask.y) == (1, 2)
    np.testing.assert_array_equal(full.regions[0].mask.pixels, mask.pixels)
    assert (full.regions[0].pixels.x, full.regions[0].pixels.y) == (3, 3)
    assert full.regions[1].mask is None and full.regions[2].pixels is None
    assert empty.regions == () and empty.face is None
    assert empty.labelled == ("mole",)


def test_metadata_covers_all_splits(tmp_path):
    write(
        tmp_path,
        [photo(regions=[region()] * 2)],
        split="val",
        branches=("acne", "mole"),
    )
    write(
        tmp_path,
        [
            photo(regions=[region("spot")], labelled=("spot",)),
            photo("b.png", labelled=()),
        ],
        branches=("spot",),
    )
    train, val = (lesion_images.LesionImages(tmp_path, s) for s in ("train", "val"))
    assert train.splits == val.splits == ("train", "val")
    # The branches of train come first, whichever split is opened or was built first.
    assert train.branches == val.branches == ("spot", "acne", "mole")
    assert train.max_regions == {"spot": 1, "acne": 2, "mole": 0}
    assert train.counts["train"] == {
        "photos": 2,
        "regions": 1,
        "branches": {"spot": 1},
    }
    assert train[0].labelled == ("spot",) and train[1].labelled == ()
    assert val[0].regions[1].branch == "acne"
    assert train.face_detector == "whole" and train.apply_exif is True


def test_records_come_with_the_bytes_that_they_were_written_with(tmp_path):
    jpeg = cv2.imencode(".jpg", IMAGE)[1].tobytes()
    write(tmp_path, [(photo("a.jpg")[0], jpeg), photo("b.png")])
    source = lesion_images.LesionImages(tmp_path, "train")
    record, data = source.with_bytes(0)
    assert (record.name, data) == ("a.jpg", jpeg)
    np.testing.assert_array_equal(record.image, images.decode(jpeg))
    assert source.with_bytes(-1)[1] == photo()[1]


@pytest.mark.parametrize("apply_exif", [True, False])
def test_pictures_are_decoded_as_they_were_annotated(tmp_path, apply_exif):
    def decode(data, *, apply_exif):
        asked.append(apply_exif)
        return images.decode(data)

    asked = []
    write(tmp_path, [photo()], apply_exif=apply_exif)
    assert (
        lesion_images.LesionImages(tmp_path, "train", decode=decode)[0].name == "a.png"
    )
    assert asked == [apply_exif]


def test_threads_and_processes(tmp_path):
    write(tmp_path, [photo(f"{i}.png") for i in range(130)])
    source = lesion_images.LesionImages(tmp_path, "train")
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        names = list(pool.map(lambda i: source[i].name, range(130)))
    assert names == [f"{i}.png" for i in range(130)]
    assert pickle.loads(pickle.dumps(source))[7].name == "7.png"
    assert source[-1].name == "129.png"
    with pytest.raises(IndexError):
        source[130]


def test_a_failed_write_leaves_what_was_there(tmp_path):
    def breaks():
        yield photo("new.png")
        raise RuntimeError("power cut")

    write(tmp_path, [photo("old.png")])
    with pytest.raises(RuntimeError, match="power cut"):
        write(tmp_path, breaks(), overwrite=True)
    with pytest.raises(RuntimeError, match="power cut"):
        write(tmp_path, breaks(), split="val")
    assert [p.name for p in tmp_path.iterdir()] == ["train"]
    assert lesion_images.LesionImages(tmp_path, "train")[0].name == "old.png"
    write(tmp_path, [photo("new.png")], overwrite=True)
    assert lesion_images.LesionImages(tmp_path, "train")[0].name == "new.png"


@pytest.mark.parametrize(
    "settings, message",
    [
        ({}, "split 'train' exists"),
        ({"split": "a/b"}, "split 'a/b': use letters"),
        ({"split": "all"}, "not the name 'all'"),
        ({"split": "val", "face_detector": "haar"}, "face_detector is 'haar' here but"),
        ({"split": "val", "apply_exif": False}, "apply_exif is False here but True"),
    ],
)
def test_what_cannot_be_written_says_why(tmp_path, settings, message):
    write(tmp_path, [photo()])
    with pytest.raises(ValueError, match=message):
        write(tmp_path, [photo()], **settings)
    settings = {"split": "train", "face_detector": "whole", **settings}
    with pytest.raises(ValueError, match=message):
        lesion_images.check_writable(tmp_path, **settings)


def test_no_photo_is_no_split(tmp_path):
    with pytest.raises(ValueError, match="not one photo"):
        write(tmp_path, [])
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_opened_says_why(tmp_path):
    with pytest.raises(ValueError, match=r"none: no such folder"):
        lesion_images.LesionImages(tmp_path / "none", "train")
    with pytest.raises(ValueError, match="not a data set of lesion images"):
        lesion_images.LesionImages(tmp_path, "train")
    write(tmp_path, [photo()])
    write(tmp_path, [photo()], split="val")
    with pytest.raises(ValueError, match="no split 'test', only train, val"):
        lesion_images.LesionImages(tmp_path, "test")


def test_a_newer_form_is_refused(tmp_path):
    write(tmp_path, [photo()])
    info = tmp_path / "train" / "dataset_info.json"
    info.write_text(info.read_text().replace("1.0.0", "2.0.0"))
    with pytest.raises(ValueError, match=r"written as version 2\.0\.0"):
        lesion_images.LesionImages(tmp_path, "train")


@pytest.mark.parametrize(
    "name, text", [("dataset_info.json", "{"), ("metadata.json", "{}")]
)
def test_a_damaged_description_is_named(tmp_path, name, text):
    write(tmp_path, [photo()])
    (tmp_path / "train" / name).write_text(text)
    with pytest.raises(ValueError, match=r"train: what describes it is damaged"):
        lesion_images.LesionImages(tmp_path, "train")


def test_a_lost_shard_is_named(tmp_path):
    write(tmp_path, [photo()])
    (shard,) = (tmp_path / "train").glob("*array_record*")
    shard.unlink()
    with pytest.raises(ValueError, match=r"train: record 0 cannot be read"):
        lesion_images.LesionImages(tmp_path, "train")[0]


def test_a_picture_that_does_not_decode_is_named(tmp_path):
    record, _ = photo()
    write(tmp_path, [(record, b"hello")])
    with pytest.raises(ValueError, match=f"{record.name}: not a picture"):
        lesion_images.LesionImages(tmp_path, "train")[0]


def test_tfds_itself_reads_a_split(tmp_path):
    import tensorflow_datasets as tfds

    write(tmp_path, [photo()])
    builder = tfds.builder_from_directory(tmp_path / "train")
    assert str(builder.info.version) == lesion_images.FORM.version
    assert builder.as_data_source("train")[0]["image"] == photo()[1]


def test_tensorflow_is_never_imported(tmp_path):
    write(tmp_path, [photo(regions=[region()])])
    program = (
        "import sys\n"
        "from facekp_jax import lesion_images\n"
        "photo = lesion_images.LesionImages(sys.argv[1], 'train')[0]\n"
        "lesion_images.write(sys.argv[1], 'val', [(photo, b'x')],"
        " branches=('acne', 'mole'), face_detector='whole')\n"
        "print(photo.regions[0].branch, 'tensorflow' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path], capture_output=True, text=True
    )
    assert done.stdout == "acne False\n", done.stderr
