import re

import cv2
import numpy as np
import pytest

from data_prep.readers import Damaged, Source, Tally, yolo
from facekp_jax import masks

NAMES = "names: [Dark circle, mole, nothing]\n"
HEIGHT, WIDTH = 20, 30
BOX = "1 0.5 0.5 0.2 0.4"  # 12..18 across, 6..14 down


def picture(height=HEIGHT, width=WIDTH):
    return cv2.imencode(".png", np.full((height, width, 3), 90, np.uint8))[1].tobytes()


def dataset(folder, labels, *, split="train/images", yaml=NAMES):
    """Photos a.png, b.png, ... with these label files, None for a missing one."""
    pictures = folder / split
    texts = folder / split.replace("images", "labels")
    for part in (pictures, texts):
        part.mkdir(parents=True, exist_ok=True)
    for letter, text in zip("abcdefgh", labels, strict=False):
        (pictures / f"{letter}.png").write_bytes(picture())
        if text is not None:
            data = text if isinstance(text, bytes) else text.encode()
            (texts / f"{letter}.txt").write_bytes(data)
    if yaml is not None:
        (folder / "data.yaml").write_text(yaml)
    return folder


def read(folder, *, strict=False, **settings):
    tally = Tally(strict=strict)
    reading = yolo.read(Source(folder, **settings), tally)
    return reading, [photo for photo, _ in reading.photos], tally


def test_boxes_are_parts_of_the_size(tmp_path):
    reading, (photo,), tally = read(dataset(tmp_path, [f"{BOX}\n\n0 0.5 0.5 1 1\n"]))
    assert reading.branches == photo.labelled == ("dark_circle", "mole", "nothing")
    assert photo.name == "a.png"
    first, second = photo.regions
    np.testing.assert_allclose(first.box, [12, 6, 18, 14], rtol=1e-6)
    np.testing.assert_array_equal(second.box, [0, 0, 30, 20])
    assert (first.branch, second.branch) == ("mole", "dark_circle")
    assert first.mask is None and not first.crowd
    assert tally.counts["regions"]["repaired"] == 0


def test_a_polygon_gives_mask_and_box_beside_a_box(tmp_path):
    polygon = "1 0.2 0.25 0.4 0.25 0.4 0.75 0.2 0.75"
    _, (photo,), _ = read(dataset(tmp_path, [f"{polygon}\n{BOX}"]))
    region = photo.regions[0]
    expected = np.zeros((HEIGHT, WIDTH), bool)
    expected[5:15, 6:12] = True
    np.testing.assert_array_equal(masks.to_full(region.mask, HEIGHT, WIDTH), expected)
    np.testing.assert_allclose(region.box, [6, 5, 12, 15], rtol=1e-6)
    assert photo.regions[1].mask is None


def test_photos_without_labels_are_true_negatives(tmp_path):
    _, photos, tally = read(dataset(tmp_path, [BOX, "", None]), strict=True)
    assert [len(photo.regions) for photo in photos] == [1, 0, 0]
    assert all(photo.labelled == photos[0].labelled for photo in photos)
    assert tally.notes == {"photos without a label file (true negatives)": 1}


def test_no_label_file_at_all_is_a_wrong_folder(tmp_path):
    dataset(tmp_path, [None, None])
    with pytest.raises(ValueError, match=r"no photo with a label .*labels/a\.txt"):
        read(tmp_path)


@pytest.mark.parametrize(
    "line, reason",
    [
        ("1 0.5 0.5 0.2", "neither a box"),
        ("1 0.5 0.5 0.2 0.2 0.9", "scores are not read"),
        ("1 0.1 0.1 0.9 0.9 0.5 0.5 0.5", "neither a box"),
        ("1", "neither a box"),
        ("1 nan 0.5 0.2 0.2", "not finite"),
        ("1 0.5 0.5 inf 0.2", "not finite"),
        ("1 0.1 0.1 0.4 nan 0.4 0.4", "not finite"),
        ("1 0.5 0,5 0.2 0.2", "something else than numbers"),
        ("1 0.5 0.5 0 0.2", "zero or negative size"),
        ("1 0.5 0.5 0.2 -0.005", "zero or negative size"),
        ("1 0.1 0.5 0.4 0.5 0.7 0.5", "zero or negative size"),
        ("1 320 240 50 60", "not in parts of the picture"),
        ("1 0.5 0.5 1.2 0.2", "not in parts of the picture"),
        ("1 0.1 0.1 2 0.4 0.4 2", "not in parts of the picture"),
        ("3 0.5 0.5 0.2 0.2", "category 3 is not declared"),
        ("-1 0.5 0.5 0.2 0.2", "category '-1' is not declared"),
        ("mole 0.5 0.5 0.2 0.2", "category 'mole' is not declared"),
        (f"{BOX}\n{BOX}", "the same annotation twice"),
    ],
)
@pytest.mark.parametrize("group", ["category", "all:spot"])
def test_a_bad_line_is_refused_alone(tmp_path, line, reason, group):
    _, (photo,), tally = read(
        dataset(tmp_path, [f"0 0.5 0.5 0.5 0.5\n{line}"]), group=group
    )
    counts = tally.counts["regions"]
    assert len(photo.regions) == counts["kept"] == counts["read"] - 1
    assert counts["refused"] == 1
    assert reason in tally.table() and "(a.png, line " in tally.table()
    with pytest.raises(Damaged, match=re.escape(reason)):
        read(tmp_path, strict=True, group=group)


@pytest.mark.parametrize(
    "line, box",
    [
        ("1 0.0 0.5 0.2 0.4", (0, 6, 3, 14)),
        ("1 0.9 0.5 0.2012 0.4", (23.982, 6, 30, 14)),
        ("1 -0.002 0.1 0.5 0.1 0.5 0.5", (0, 2, 15, 10)),
    ],
)
def test_slightly_outside_is_clipped_and_counted(tmp_path, line, box):
    _, (photo,), tally = read(dataset(tmp_path, [line]))
    np.testing.assert_allclose(photo.regions[0].box, box, rtol=1e-5)
    assert tally.counts["regions"]["repaired"] == 1
    assert "box clipped to the picture (a.png, line 1)" in tally.table()


@pytest.mark.parametrize(
    "yaml", [NAMES, "names: {0: Dark circle, '1': mole, 2: nothing}\nnc: 3"]
)
def test_names_are_a_list_or_a_mapping(tmp_path, yaml):
    # 1.0 is how some programs write a class.
    dataset(tmp_path, [BOX.replace("1 ", "1.0 ", 1)], yaml=yaml)
    _, (photo,), _ = read(tmp_path)
    assert photo.labelled == ("dark_circle", "mole", "nothing")
    assert photo.regions[0].branch == "mole"


def test_without_names_there_is_one_branch(tmp_path):
    dataset(tmp_path, [f"{BOX}\n7 0.5 0.5 0.1 0.1\nx 0.5 0.5 0.1 0.1"], yaml=None)
    with pytest.raises(ValueError, match=r"no categories; --group=all:NAME"):
        read(tmp_path)
    reading, (photo,), tally = read(tmp_path, group="all:spot")
    assert reading.branches == ("spot",)
    assert [r.branch for r in photo.regions] == ["spot", "spot"]
    assert tally.counts["regions"]["refused"] == 1


def test_a_class_that_means_none(tmp_path):
    labels = ["2 0.5 0.5 0.2 0.2\n2 0.3 0.3 0.2 0.2", f"2 0.5 0.5 0.2 0.2\n{BOX}", BOX]
    dataset(tmp_path, labels)
    for group, branches in (
        ("category", ("dark_circle", "mole")),
        ("all:eye", ("eye",)),
    ):
        reading, photos, tally = read(
            tmp_path, none=["Nothing"], group=group, strict=True
        )
        assert reading.branches == branches
        assert [len(photo.regions) for photo in photos] == [0, 1, 1]
        assert all(photo.labelled == branches for photo in photos)
        assert tally.notes == {"annotations of nothing, which means none": 3}
        assert tally.counts["regions"]["read"] == 2


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"none": ["no_mole"]}, "--none=no_mole: no such category; .* has dark_circle"),
        ({"none": ["dark circle", "mole", "nothing"]}, "no category is left"),
        ({"group": "supercategory"}, "no id or no supercategory"),
        ({"group": "everything"}, "--group=everything: use one of"),
        ({"split": "test"}, "no folder of pictures of split 'test'; name it with --im"),
        ({"images": "nowhere"}, "nowhere: no such folder; name it with --images"),
        ({"annotations": "nowhere"}, "nowhere: no such file; .* --annotations"),
    ],
)
def test_settings_that_do_not_fit(tmp_path, settings, message):
    with pytest.raises(ValueError, match=message):
        read(dataset(tmp_path, [BOX]), **settings)


@pytest.mark.parametrize(
    "yaml, message",
    [
        ("names: [a", "not YAML"),
        ("- a", "it has no names"),
        ("names: 3", "names is neither"),
        ("names: {a: 1}", "names is neither"),
        ("names: [a, b]\nnc: 3", "nc is 3, but names has 2"),
        (f"{NAMES}kpt_shape: 17", "kpt_shape is 17"),
        (f"{NAMES}kpt_shape: [2, 4]", r"kpt_shape is \[2, 4\]"),
        (f"{NAMES}train: train.txt", "is a list of files"),
    ],
)
def test_a_data_yaml_that_is_none(tmp_path, yaml, message):
    with pytest.raises(ValueError, match=message):
        read(dataset(tmp_path, [BOX], yaml=yaml))


@pytest.mark.parametrize(
    "yaml, place",
    [
        ("", "val/images"),
        ("", "images/val"),
        ("", "images"),
        ("val: valid/images", "valid/images"),
        ("val: ../valid/images", "valid/images"),
        ("path: data\nval: images/valid", "data/images/valid"),
        ("path: /home/me/data\nval: images/v", "images/v"),
        # What data.yaml says is not there, but the usual place is.
        ("val: ../valid/images", "val/images"),
        ("val: /etc", "val/images"),
        ("val:", "val/images"),
    ],
)
def test_where_a_split_is(tmp_path, yaml, place):
    dataset(tmp_path, [BOX], split=place, yaml=NAMES + yaml)
    _, (photo,), _ = read(tmp_path, split="val")
    assert (photo.name, len(photo.regions)) == ("a.png", 1)


def test_data_yaml_cannot_lead_out_of_the_folder(tmp_path):
    dataset(tmp_path / "other", [BOX])
    dataset(
        tmp_path / "own", [], split="x/images", yaml=f"{NAMES}train: ../other/train"
    )
    with pytest.raises(ValueError, match=r"data\.yaml says \.\./other/train"):
        read(tmp_path / "own")


def test_the_folders_of_other_splits_are_not_taken(tmp_path):
    dataset(tmp_path, [BOX], split="images/train")
    with pytest.raises(ValueError, match="no folder of pictures of split 'val'"):
        read(tmp_path, split="val")


def test_several_folders_and_deeper_ones(tmp_path):
    for place in ("p/images/deep er", "q/images"):
        dataset(
            tmp_path, [BOX], split=place, yaml=f"{NAMES}train: [p/images, q/images]"
        )
    _, photos, _ = read(tmp_path)
    assert [photo.name for photo in photos] == [
        "p/images/deep er/a.png",
        "q/images/a.png",
    ]
    assert [len(photo.regions) for photo in photos] == [1, 1]


def test_labels_beside_the_pictures_if_no_folder_is_called_images(tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.png").write_bytes(picture())
    (tmp_path / "photos" / "a.txt").write_text(BOX)
    dataset(tmp_path, [])
    _, (photo,), tally = read(tmp_path, images=tmp_path / "photos")
    assert len(photo.regions) == 1
    assert tally.notes == {}


def test_files_that_do_not_belong_are_counted(tmp_path):
    dataset(tmp_path, [BOX, b"1 \xff\xfe", BOX], yaml=NAMES)
    (tmp_path / "train" / "images" / "Thumbs.db").touch()
    (tmp_path / "train" / "images" / "c.png").write_bytes(b"hello")
    (tmp_path / "train" / "labels" / "classes.txt").write_text("mole")
    (tmp_path / "train" / "labels" / "gone.txt").write_text(f"{BOX}\n\n{BOX}\n")
    _, (photo,), tally = read(tmp_path)
    assert photo.name == "a.png"
    assert tally.notes == {"files that are no pictures, not read": 1}
    assert tally.counts["photos"] == {
        "read": 3,
        "kept": 1,
        "repaired": 0,
        "refused": 2,
    }
    assert tally.counts["regions"]["refused"] == 3
    table = tally.table()
    assert "cannot read its label file: 'utf-8' codec" in table
    assert "label file of no photo (gone.txt)" in table
    assert "on a refused photo (c.png)" in table


def test_links_to_folders_are_counted(tmp_path):
    dataset(tmp_path, [BOX])
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "train" / "images" / "more"
    link.symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    _, photos, tally = read(tmp_path)
    assert len(photos) == 1
    assert tally.notes["links to other folders, not followed"] == 1
