import csv

import cv2
import numpy as np
import pytest
import yaml

from data_prep.readers import Damaged, Source, Tally, deeplabcut
from facekp_jax import skeletons

NOISE = np.random.default_rng(0).integers(0, 256, (48, 64, 3), np.uint8)
PICTURE = cv2.imencode(".png", NOISE)[1].tobytes()
PARTS = ("nose", "leftear", "rightear")
CONFIG = {
    "Task": "Open field",
    "scorer": "Ann",
    "multianimalproject": None,
    "identity": None,
    "bodyparts": list(PARTS),
    "skeleton": [["nose", "leftear"], ["nose", "rightear"]],
}
SEVERAL = {
    **CONFIG,
    "multianimalproject": True,
    "bodyparts": "MULTI!",
    "multianimalbodyparts": list(PARTS),
    "uniquebodyparts": ["corner"],
    "individuals": ["m1", "m2"],
}
EDGES = ((0, 1), (0, 2))


def table(path, rows, *, parts=PARTS, individuals=None, index=1, encoding="utf-8"):
    """rows: (picture's name, x, y, x, y, ...); parts of each of the individuals."""
    columns = [("", part) for part in parts]
    if individuals:
        columns = [(name, part) for name in individuals for part in parts]
    lines = {
        "scorer": ["Ann"] * 2 * len(columns),
        "individuals": [name for name, _ in columns for _ in "xy"],
        "bodyparts": [part for _, part in columns for _ in "xy"],
        "coords": ["x", "y"] * len(columns),
    }
    if not individuals:
        del lines["individuals"]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding=encoding) as file:
        writer = csv.writer(file)
        for name, cells in lines.items():
            writer.writerow([name, *[""] * (index - 1), *cells])
        for name, *cells in rows:
            writer.writerow([*(name.split("/") if index == 3 else [name]), *cells])


def picture(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(PICTURE)


def project(folder, rows, *, config=CONFIG, video="v1", pictures=None, **settings):
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    table(folder / "labeled-data" / video / "CollectedData_Ann.csv", rows, **settings)
    picture(folder, *([row[0] for row in rows] if pictures is None else pictures))
    return folder


def read(folder, *, strict=False, **settings):
    tally = Tally(strict=strict)
    if isinstance(settings.get("skeleton"), dict):
        settings["skeleton"] = skeletons.from_dict(settings["skeleton"])
    reading = deeplabcut.read(Source(folder, **settings), tally)
    return reading, [photo for photo, _ in reading.photos], tally


@pytest.mark.parametrize("index", [1, 3])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_a_project_of_one_animal(tmp_path, index, encoding):
    rows = [
        ("labeled-data/v1/img1.png", 10, 20.25, 0, 0, 63, 47),
        ("labeled-data/v1/img2.png", "", "", 5, 6, "nan", "NaN"),
    ]
    project(tmp_path, rows, index=index, encoding=encoding)
    reading, (one, two), tally = read(tmp_path, strict=True)
    (skeleton,) = reading.skeletons
    assert reading.length == 2
    assert (skeleton.name, skeleton.keypoints) == ("open_field", PARTS)
    assert skeleton.edges == EDGES
    assert skeleton.mirror == (0, 2, 1)
    assert one.name == "labeled-data/v1/img1.png"
    assert one.labelled == ("open_field",)
    assert (one.video, one.frame, one.time) == ("", 0, 0.0)
    (instance,) = one.instances
    assert instance.track is None and instance.score == 1
    # The centre of the top-left pixel is (0, 0) there and (0.5, 0.5) here.
    np.testing.assert_array_equal(
        instance.keypoints, [[10.5, 20.75, 2], [0.5, 0.5, 2], [63.5, 47.5, 2]]
    )
    (instance,) = two.instances
    np.testing.assert_array_equal(
        instance.keypoints, [[0, 0, 0], [5.5, 6.5, 2], [0, 0, 0]]
    )
    assert tally.counts["keypoints"]["kept"] == 4


def test_keypoints_are_found_by_name_not_by_place(tmp_path):
    rows = [("labeled-data/v1/img1.png", 1, 2, 3, 4)]
    project(tmp_path, rows, parts=("rightear", "nose"))
    _, (photo,), _ = read(tmp_path)
    np.testing.assert_array_equal(
        photo.instances[0].keypoints, [[3.5, 4.5, 2], [0, 0, 0], [1.5, 2.5, 2]]
    )


def test_a_row_without_labels_is_a_photo_without_an_instance(tmp_path):
    project(tmp_path, [("labeled-data/v1/img1.png", *[""] * 6)])
    _, (photo,), tally = read(tmp_path, strict=True)
    assert photo.instances == ()
    assert photo.labelled == ("open_field",)
    assert tally.notes == {"photos without an instance": 1}


def test_rows_without_a_picture_and_pictures_without_a_row(tmp_path):
    rows = [
        ("labeled-data/v1/img1.png", 1, 2, 3, 4, 5, 6),
        ("labeled-data/v1/gone.png", 1, 2, 3, 4, 5, 6),
        ("labeled-data/v1/img1.png", 1, 2, 3, 4, 5, 6),
        ("../secret.png", 1, 2, 3, 4, 5, 6),
    ]
    pictures = [
        "labeled-data/v1/img1.png",
        "labeled-data/v1/img2.png",
        "labeled-data/v1/img3.png",
        "labeled-data/v1_labeled/img1.png",
    ]
    project(tmp_path, rows, pictures=pictures)
    reading, photos, tally = read(tmp_path)
    assert [photo.name for photo in photos] == ["labeled-data/v1/img1.png"]
    assert reading.length == 4
    assert tally.counts["photos"] == {
        "read": 4,
        "kept": 1,
        "repaired": 0,
        "refused": 3,
    }
    assert tally.counts["instances"]["refused"] == 3
    assert "No such file" in tally.table()
    assert "file_name of an earlier image" in tally.table()
    assert "leaves the folder" in tally.table()
    assert tally.notes["pictures without a row (unknown), left out"] == 2
    with pytest.raises(Damaged, match=r"gone\.png"):
        read(tmp_path, strict=True)


def test_cells_that_are_no_place(tmp_path):
    rows = [
        ("labeled-data/v1/half.png", 1, "", 3, 4, 5, 6),
        ("labeled-data/v1/infinite.png", 1, 2, "inf", 4, 5, 6),
        ("labeled-data/v1/outside.png", 1, 2, 3, 4, -7, 6),
        ("labeled-data/v1/short.png", 1, 2),
        ("labeled-data/v1/text.png", 1, 2, "left", 4, 5, 6),
        ("labeled-data/v1/nothing.png", "", 2),
    ]
    project(tmp_path, rows)
    _, photos, tally = read(tmp_path)
    visibility = {
        photo.name.split("/")[-1]: photo.instances[0].keypoints[:, 2].tolist()
        for photo in photos
        if photo.instances
    }
    assert visibility == {
        "half.png": [0, 2, 2],
        "infinite.png": [2, 0, 2],
        "outside.png": [2, 2, 0],
        "short.png": [2, 0, 0],
    }
    assert tally.counts["keypoints"]["kept"] == 7
    assert tally.counts["keypoints"]["refused"] == 3
    assert tally.counts["photos"]["refused"] == 1
    assert "row of CollectedData_Ann.csv: could not convert" in tally.table()
    assert tally.counts["instances"]["refused"] == 1


@pytest.mark.parametrize("identity", [None, True])
def test_a_project_of_several_animals(tmp_path, identity):
    rows = [
        ("labeled-data/v1/img1.png", 1, 2, 3, 4, "", "", *[""] * 6),
        ("labeled-data/v1/img2.png", *[""] * 6, 1, 2, 3, 4, 5, 6),
        ("labeled-data/v1/img3.png", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12),
    ]
    config = {**SEVERAL, "identity": identity}
    project(tmp_path, rows, config=config, individuals=("m1", "m2"))
    _, photos, _ = read(tmp_path, strict=True)
    assert [len(photo.instances) for photo in photos] == [1, 1, 2]
    tracks = [[i.track for i in photo.instances] for photo in photos]
    # Names of individuals say who it is only if config.yaml says so.
    assert tracks == ([[0], [1], [0, 1]] if identity else [[None], [None], [None] * 2])
    np.testing.assert_array_equal(
        photos[2].instances[1].keypoints,
        [[7.5, 8.5, 2], [9.5, 10.5, 2], [11.5, 12.5, 2]],
    )


def test_unique_bodyparts_are_of_no_animal(tmp_path):
    path = tmp_path / "labeled-data" / "v1" / "CollectedData_Ann.csv"
    project(tmp_path, [("labeled-data/v1/img1.png",)], config=SEVERAL)
    path.write_text(
        "scorer,Ann,Ann,Ann,Ann\n"
        "individuals,m1,m1,single,single\n"
        "bodyparts,nose,nose,corner,corner\n"
        "coords,x,y,x,y\n"
        "labeled-data/v1/img1.png,1,2,3,4\n"
    )
    reading, (photo,), tally = read(tmp_path)
    assert reading.skeletons[0].keypoints == PARTS
    assert len(photo.instances) == 1
    assert tally.counts["keypoints"]["refused"] == 1
    assert "corner is no bodypart of the animal" in tally.table()


def test_edges_to_unique_bodyparts_are_left_out(tmp_path):
    config = {**SEVERAL, "skeleton": [["nose", "leftear"], ["nose", "corner"]]}
    project(tmp_path, [], config=config)
    reading, _, _ = read(tmp_path)
    assert reading.skeletons[0].edges == ((0, 1),)


def test_tables_of_two_scorers_and_two_videos(tmp_path):
    rows = [("labeled-data/v1/img1.png", 1, 2, 3, 4, 5, 6)]
    project(tmp_path, rows, config={**CONFIG, "scorer": "Zoe"})
    others = [("labeled-data/v1/img1.png", 11, 12, 13, 14, 15, 16)]
    table(tmp_path / "labeled-data" / "v1" / "CollectedData_Zoe.csv", others)
    second = [("labeled-data/v0/img1.png", 1, 2, 3, 4, 5, 6)]
    table(tmp_path / "labeled-data" / "v0" / "CollectedData_Ann.csv", second)
    picture(tmp_path, "labeled-data/v0/img1.png")
    _, photos, tally = read(tmp_path)
    names = [photo.name for photo in photos]
    assert names == ["labeled-data/v0/img1.png", "labeled-data/v1/img1.png"]
    assert photos[1].instances[0].keypoints[0, 0] == 11.5
    assert tally.counts["photos"]["refused"] == 1


@pytest.mark.parametrize(
    "name",
    [
        r"labeled-data\v1\img1.png",
        "/home/ann/labeled-data/old/labeled-data/v1/img1.png",
        r"C:\Users\ann\project\labeled-data\v1\img1.png",
    ],
)
def test_names_of_other_systems(tmp_path, name):
    pictures = ["labeled-data/v1/img1.png"]
    project(tmp_path, [(name, 1, 2, 3, 4, 5, 6)], pictures=pictures)
    _, (photo,), _ = read(tmp_path, strict=True)
    assert photo.name == "labeled-data/v1/img1.png"


SKELETON = {
    "name": "mouse",
    "keypoints": list(PARTS),
    "edges": [["leftear", "rightear"], ["nose", "leftear"]],
    "mirror": [["leftear", "rightear"]],
}


def test_a_table_without_a_project(tmp_path):
    path = tmp_path / "CollectedData.csv"
    table(path, [("labeled-data/img1.png", 1, 2, 3, 4, 5, 6)])
    picture(tmp_path, "labeled-data/img1.png")
    settings = {"annotations": path, "skeleton": SKELETON}
    reading, (photo,), _ = read(tmp_path, strict=True, **settings)
    assert photo.instances[0].skeleton == reading.skeletons[0].name == "mouse"
    assert reading.skeletons[0].edges == ((1, 2), (0, 1))
    reading, _, _ = read(tmp_path, group="all:Black mouse", **settings)
    assert reading.skeletons[0].name == "black_mouse"
    with pytest.raises(ValueError, match=r"no edges.*--skeleton"):
        read(tmp_path, annotations=path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    reading, (photo,), _ = read(elsewhere, images=tmp_path, strict=True, **settings)
    assert photo.name == "labeled-data/img1.png"


def test_a_skeleton_file_goes_before_the_projects(tmp_path):
    rows = [("labeled-data/v1/img1.png", 1, 2, 3, 4, 5, 6)]
    project(tmp_path, rows, config={**CONFIG, "skeleton": []})
    reading, _, _ = read(tmp_path, skeleton=SKELETON)
    assert reading.skeletons[0].name == "mouse"
    with pytest.raises(ValueError, match=r"'open_field' has no edges.*--skeleton"):
        read(tmp_path)
    other = {**SKELETON, "keypoints": ["nose", "rightear", "leftear"]}
    with pytest.raises(ValueError, match=r"config\.yaml.*'leftear'.*'rightear'"):
        read(tmp_path, skeleton=other)


@pytest.mark.parametrize(
    "config, message",
    [
        ("a: [", "config.yaml: not YAML"),
        ("[]", "config.yaml: not DeepLabCut's"),
        ("Task: x\nbodyparts: []", "config.yaml: not DeepLabCut's"),
        ("Task: x\nbodyparts: MULTI!", "bodyparts is 'MULTI!'; write a list"),
        (
            "Task: x\nbodyparts: [a, b]\nskeleton: [[a, c]]",
            r"config.yaml: skeleton has \['a', 'c'\], which are no two bodyparts",
        ),
        ("Task: x\nbodyparts: [a, b]\nskeleton: [a]", "skeleton has a, which"),
        ("bodyparts: [a, b]\nskeleton: 5", "skeleton is 5; write a list"),
        ("bodyparts: [a, b]\nindividuals: 5", "individuals is 5; write a list"),
        ("bodyparts: [a, b]\nuniquebodyparts: 5", "uniquebodyparts is 5; write"),
        ("a: " + "[" * 5000, "config.yaml: not YAML"),
    ],
)
def test_projects_that_are_none(tmp_path, config, message):
    project(tmp_path, [])
    (tmp_path / "config.yaml").write_text(config)
    with pytest.raises(ValueError, match=message):
        read(tmp_path)


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "not DeepLabCut's"),
        ("image,nose_x,nose_y\na.png,1,2\n", "not DeepLabCut's"),
        ("\x00\x01", "not DeepLabCut's|not a table"),
        (
            "scorer,a,a,a\nbodyparts,nose,nose,nose\ncoords,x,y,likelihood\n",
            "a column of 'likelihood' is no label's",
        ),
        (
            "scorer,a\nbodyparts,nose\ncoords,x\n",
            "nose has no column of x or none of y",
        ),
        (
            "scorer,a,a,a\nbodyparts,nose,nose,nose\ncoords,x,y,x\n",
            "two columns of nose x",
        ),
        ("scorer\nbodyparts\ncoords\n", "no column of a bodypart"),
    ],
)
def test_tables_that_are_none(tmp_path, text, message):
    path = tmp_path / "labels.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"labels.csv: {message}"):
        read(tmp_path, annotations=path, skeleton=SKELETON)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match=r"labels\.csv: not a table of text"):
        read(tmp_path, annotations=path, skeleton=SKELETON)


def test_a_project_without_tables(tmp_path):
    project(tmp_path, [])
    path = tmp_path / "labeled-data" / "v1" / "CollectedData_Ann.csv"
    path.rename(path.with_suffix(".h5"))
    with pytest.raises(ValueError, match=r"labeled-data: no VIDEO/.*\.h5 is not read"):
        read(tmp_path)
    with pytest.raises(ValueError, match=r"none\.csv: no such file"):
        read(tmp_path, annotations=tmp_path / "none.csv")
