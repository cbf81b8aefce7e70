import pathlib
import re

import cv2
import numpy as np
import pytest
from commands import result, run

from data_prep import check
from facekp_jax import images, lesion_images
from facekp_jax.records import LesionImage, Region


def texture(seed, height=90, width=120):
    noise = np.random.default_rng(seed).integers(0, 256, (9, 12), np.uint8)
    grey = cv2.resize(noise, (width, height), interpolation=cv2.INTER_CUBIC)
    return cv2.cvtColor(grey, cv2.COLOR_GRAY2RGB)


def write(directory, split, pictures, *, box=(10, 20, 40, 50), labelled=("acne",)):
    def photos():
        for name, image in pictures.items():
            region = Region("acne", np.float32(box))
            face = np.float32([0, 0, image.shape[1], image.shape[0]])
            photo = LesionImage(name, image, (region,), labelled, face)
            yield photo, images.encode_png(image)

    lesion_images.write(
        directory, split, photos(), branches=("acne",), face_detector="whole"
    )


def test_command_line_on_a_good_data_set(tmp_path):
    write(tmp_path, "train", {"a.png": texture(1), "b.png": texture(2)})
    write(tmp_path, "val", {"c.png": texture(3, 120, 90)})
    sheet = tmp_path / "my sheet.png"
    done = run("data_prep.check", tmp_path, f"--contact_sheet={sheet}")
    summary = result(done)
    assert (summary["faults"], summary["near_duplicates"]) == (0, 0)
    assert summary["splits"]["train"]["branches"] == {"acne": 2}
    drawn = images.read(sheet)
    # Three tiles beside each other, each with a picture and not only background.
    assert drawn.shape == (480, 1440, 3)
    for tile in np.split(drawn, 3, axis=1):
        assert tile[150:330, 150:330].std() > 10


def test_command_line_reports_duplicates_and_faults(tmp_path):
    write(tmp_path, "train", {"a.png": texture(1)}, box=(100, 50, 130, 60))
    write(tmp_path, "val", {"copy.png": texture(1, 180, 240)}, labelled=())
    done = run("data_prep.check", tmp_path, status=1)
    summary = result(done)
    assert (summary["faults"], summary["near_duplicates"]) == (2, 1)
    assert "train/a.png = val/copy.png" in done.stdout
    assert "is not in the photo of 120x90" in done.stdout
    assert "not labelled for acne" in done.stdout
    assert done.stderr.splitlines()[-1].startswith(
        f"error: {tmp_path}: faults found: 2"
    )


@pytest.mark.parametrize(
    "box", [(1, 1, 1, 5), (5, 5, 2, 9), (np.nan, 1, 5, 5), (-1, 1, 5, 5)]
)
def test_boxes_that_do_not_fit_are_faults(tmp_path, box):
    write(tmp_path, "train", {"a.png": texture(1)}, box=box)
    faults = []
    source = lesion_images.LesionImages(tmp_path, "train")
    check.read_split(check.LesionCheck(source), faults)
    assert len(faults) == 1 and "is not in the photo" in faults[0]


def test_a_damaged_file_is_a_fault(tmp_path):
    write(tmp_path, "train", {f"{i}.png": texture(i) for i in range(3)})
    (path,) = pathlib.Path(tmp_path / "train").glob("*.array_record*")
    data = bytearray(path.read_bytes())
    pixels = data.find(b"IDAT") + 1000  # of the first photo
    data[pixels : pixels + 64] = bytes(64)
    path.write_bytes(data)
    done = run("data_prep.check", tmp_path, status=1)
    assert re.search(r"  train, photo 0: .*Corrupted", done.stdout)
    assert result(done)["faults"] == 1


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "DIR is missing; give it"),
        (["nowhere"], "nowhere: no such folder"),
        (["nowhere", "--contact_sheet=x.doc"], "x.doc: end in .bmp"),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(arguments, message):
    done = run("data_prep.check", *arguments, status=2)
    (line,) = done.stderr.splitlines()
    assert message in line
