import numpy as np
import pytest

from facekp_jax import datasets, images, keypoint_images, lesion_images, skeletons
from facekp_jax.keypoint_images import KeypointImages
from facekp_jax.lesion_images import LesionImages
from facekp_jax.records import KeypointImage, LesionImage

IMAGE = np.zeros((4, 6, 3), np.uint8)
PNG = images.encode_png(IMAGE)


def write_lesions(directory, split="train"):
    photo = LesionImage("face.png", IMAGE, (), ("acne",))
    lesion_images.write(
        directory, split, [(photo, PNG)], branches=("acne",), face_detector="whole"
    )


def write_keypoints(directory, split="train", **settings):
    photo = KeypointImage("dog.png", IMAGE, (), ("ap10k",))
    settings = {"skeletons": [skeletons.AP10K], **settings}
    keypoint_images.write(directory, split, [(photo, PNG)], **settings)


@pytest.mark.parametrize(
    "write, kind, name",
    [
        (write_lesions, LesionImages, "face.png"),
        (write_keypoints, KeypointImages, "dog.png"),
    ],
)
def test_a_split_is_opened_as_what_it_holds(tmp_path, write, kind, name):
    def decode(data, *, apply_exif):
        asked.append(apply_exif)
        return images.decode(data)

    asked = []
    write(tmp_path, "val")
    write(tmp_path, "train")
    assert datasets.splits(tmp_path) == ("train", "val")
    source = datasets.open_split(tmp_path, "val", decode=decode)
    assert isinstance(source, kind)
    assert [record.name for record in source] == [name]
    assert asked == [True]
    with pytest.raises(ValueError, match="no split 'test', only train, val"):
        datasets.open_split(tmp_path, "test")


def test_a_data_set_holds_one_form(tmp_path):
    write_lesions(tmp_path / "lesions")
    write_keypoints(tmp_path / "keypoints")
    message = "split 'train' holds lesion images, not keypoint images; name another"
    with pytest.raises(ValueError, match=message):
        write_keypoints(tmp_path / "lesions", "val")
    with pytest.raises(ValueError, match="holds keypoint images, not lesion images"):
        write_lesions(tmp_path / "keypoints", "val")
    with pytest.raises(ValueError, match="holds keypoint images, not lesion images"):
        LesionImages(tmp_path / "keypoints", "train")
    with pytest.raises(ValueError, match="holds lesion images, not keypoint images"):
        KeypointImages(tmp_path / "lesions", "train")
    # Its only split may become one of the other form.
    write_keypoints(tmp_path / "lesions", overwrite=True)
    assert datasets.open_split(tmp_path / "lesions", "train")[0].name == "dog.png"


def test_what_is_no_data_set_says_so(tmp_path):
    message = "not a data set of lesion or keypoint images; make one with"
    with pytest.raises(ValueError, match=message):
        datasets.splits(tmp_path)
    with pytest.raises(ValueError, match="none: no such folder"):
        datasets.open_split(tmp_path / "none", "train")


def test_a_data_set_of_others_is_not_read(tmp_path):
    write_lesions(tmp_path)
    info = tmp_path / "train" / "dataset_info.json"
    info.write_text(info.read_text().replace("lesion_images", "mnist"))
    with pytest.raises(ValueError, match="holds mnist, not lesion or keypoint images"):
        datasets.splits(tmp_path)
