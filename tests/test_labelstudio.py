import itertools
import json

import cv2
import numpy as np
import pytest

from data_prep.readers import Damaged, Source, Tally, labelstudio
from facekp_jax import skeletons

WIDTH, HEIGHT = 200, 50
NOISE = np.random.default_rng(0).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)
PICTURE = cv2.imencode(".png", NOISE)[1].tobytes()
FACE = skeletons.from_names("cat", ["nose", "ear"], [("nose", "ear")], None)
NUMBERS = itertools.count()


def mark(kind, label, id=None, *, size=(WIDTH, HEIGHT), turn=0, parent=None, **value):
    found = {
        "id": id or f"mark{next(NUMBERS)}",
        "type": kind,
        "original_width": size[0],
        "original_height": size[1],
        "image_rotation": turn,
        "value": {**value, kind: [label]},
    }
    return found | ({"parentID": parent} if parent else {})


def point(label, x, y, **settings):
    return mark("keypointlabels", label, x=x, y=y, width=0.5, **settings)


def rectangle(id, x, y, width, height, **settings):
    sides = {"x": x, "y": y, "width": width, "height": height}
    return mark("rectanglelabels", "Cat", id, **{"rotation": 0, **sides, **settings})


def task(*results, image="/data/upload/1/0123abcd-a.png", **settings):
    annotations = [{"result": list(results), "was_cancelled": False}]
    return {"id": 7, "data": {"image": image}, "annotations": annotations, **settings}


def read(folder, tasks, *, strict=False, pictures=("a.png",), **settings):
    path = folder / "export.json"
    path.write_text(tasks if isinstance(tasks, str) else json.dumps(tasks))
    (folder / "images").mkdir(exist_ok=True)
    for name in pictures:
        (folder / "images" / name).write_bytes(PICTURE)
    tally = Tally(strict=strict)
    source = Source(folder, **{"skeleton": FACE, **settings})
    reading = labelstudio.read(source, tally)
    return reading, [photo for photo, _ in reading.photos], tally


def keypoints(photo):
    return [instance.keypoints.tolist() for instance in photo.instances]


def test_hundredths_of_the_picture_become_pixels(tmp_path):
    reading, (photo,), tally = read(
        tmp_path, [task(point("ear", 100, 0), point("nose", 25.5, 50))], strict=True
    )
    assert (reading.length, reading.skeletons) == (1, (FACE,))
    assert photo.name == "a.png" and photo.labelled == ("cat",)
    assert keypoints(photo) == [[[51, 25, 2], [200, 0, 2]]]
    assert tally.counts["keypoints"]["kept"] == 2


def test_a_rectangle_is_an_instance_and_its_box(tmp_path):
    results = [
        point("nose", 15, 20),
        rectangle("one", 10, 10, 20, 40),
        rectangle("two", 50, 0, 50, 100),
        rectangle("empty", 0, 90, 5, 10),
        point("ear", 75, 50),
    ]
    _, (photo,), tally = read(tmp_path, [task(*results)])
    assert keypoints(photo) == [
        [[30, 10, 2], [0, 0, 0]],
        [[0, 0, 0], [150, 25, 2]],
        [[0, 0, 0], [0, 0, 0]],
    ]
    np.testing.assert_allclose(
        [instance.box for instance in photo.instances],
        [[20, 5, 60, 25], [100, 0, 200, 50], [0, 45, 10, 50]],
    )
    assert tally.counts["instances"]["kept"] == 3


def test_parents_and_relations_go_before_places(tmp_path):
    # All lie in "small", which is in "large".
    results = [
        rectangle("large", 0, 0, 100, 100),
        rectangle("small", 40, 40, 20, 20),
        point("nose", 50, 50, parent="large"),
        point("ear", 50, 50, id="joined"),
        {"type": "relation", "from_id": "joined", "to_id": "large"},
        point("nose", 45, 50),
        point("ear", 45, 50, parent="gone"),
    ]
    _, (photo,), _ = read(tmp_path, [task(*results)], strict=True)
    large, small = keypoints(photo)
    assert large == [[100, 25, 2], [100, 25, 2]]
    assert small == [[90, 25, 2], [90, 25, 2]]


def test_the_smallest_rectangle_without_that_keypoint(tmp_path):
    results = [
        rectangle("large", 0, 0, 100, 100),
        rectangle("small", 40, 40, 20, 20),
        point("nose", 50, 50),
        point("nose", 55, 50),
    ]
    _, (photo,), _ = read(tmp_path, [task(*results)], strict=True)
    assert keypoints(photo) == [
        [[110, 25, 2], [0, 0, 0]],
        [[100, 25, 2], [0, 0, 0]],
    ]


def test_keypoints_that_belong_to_nothing_are_refused(tmp_path):
    tasks = [
        task(rectangle("one", 10, 10, 20, 40), point("nose", 90, 20)),
        task(point("nose", 1, 2), point("nose", 3, 4), image="b.png"),
        task(point("tail", 1, 2), point("ear", 3, 4), image="c.png"),
        task(point("ear", 101, 50), point("nose", 3, 4), image="d.png"),
    ]
    pictures = [f"{letter}.png" for letter in "abcd"]
    _, photos, tally = read(tmp_path, tasks, pictures=pictures)
    assert [keypoints(photo)[0] for photo in photos] == [
        [[0, 0, 0], [0, 0, 0]],
        [[2, 1, 2], [0, 0, 0]],
        [[0, 0, 0], [6, 2, 2]],
        [[6, 2, 2], [0, 0, 0]],
    ]
    assert tally.counts["keypoints"]["refused"] == 4
    for reason in (
        "in no rectangle (a.png)",
        "second nose of an instance (b.png)",
        "tail: no name in --skeleton (c.png)",
    ):
        assert reason in tally.table()
    with pytest.raises(Damaged, match="in no rectangle"):
        read(tmp_path, tasks, strict=True)


def test_nothing_marked_is_a_true_negative_and_nothing_done_is_unknown(tmp_path):
    tasks = [
        task(),
        task(image="b.png", annotations=[]),
        task(image="c.png", annotations=[{"result": [], "was_cancelled": True}]),
    ]
    reading, (photo,), tally = read(tmp_path, tasks, strict=True)
    assert photo.name == "a.png" and photo.instances == ()
    assert reading.length == 3
    assert tally.notes["tasks without an annotation (unknown), left out"] == 2


def test_further_annotations_and_other_results_are_counted(tmp_path):
    one = task(point("nose", 50, 50), {"type": "choices", "value": {}})
    one["annotations"].append({"result": [point("nose", 0, 0)]})
    _, (photo,), tally = read(tmp_path, [one], strict=True)
    assert keypoints(photo)[0][0] == [100, 25, 2]
    assert tally.notes["further annotations of a task, left out"] == 1
    assert tally.notes["results of type choices, not read"] == 1


@pytest.mark.parametrize(
    "settings",
    [
        {"image": "/data/upload/3/0123abcd-my%20cat.png"},
        {"image": "s3://bucket/folder/my%20cat.png"},
        {"image": "https://example.com/my%20cat.png?key=1"},
        {"image": "/data/local-files/?d=folder/my%20cat.png"},
        {"image": r"C:\pictures\my cat.png"},
        {"image": "../../my cat.png"},
        {"data": {"note": "a cat", "url": "my cat.png"}},
        {"data": {"image": "blob:1"}, "file_upload": "0123abcd-my cat.png"},
    ],
)
def test_pictures_are_found_by_their_names(tmp_path, settings):
    tasks = [task(point("nose", 50, 50), **settings)]
    _, (photo,), _ = read(tmp_path, tasks, pictures=["my cat.png"], strict=True)
    assert photo.name == "my cat.png"


def test_pictures_that_are_not_there_or_do_not_fit(tmp_path):
    tasks = [
        task(point("nose", 50, 50, size=(WIDTH, 60)), image="a.png"),
        task(point("nose", 50, 50, turn=90), image="b.png"),
        task(point("nose", 50, 50), image="c.png"),
        task({"type": "keypointlabels"}, image="d.png"),
        task(point("nose", "left", 50), image="e.png"),
        task(point("nose", 50, 50), data={"text": "no picture"}),
    ]
    pictures = [f"{letter}.png" for letter in "abde"]
    _, photos, tally = read(tmp_path, tasks, pictures=pictures)
    assert photos == []
    assert tally.counts["photos"]["refused"] == 6
    for reason in (
        "annotated as 200x60, the picture is 200x50",
        "picture that was turned in Label Studio (b.png)",
        "No such file or directory (c.png, task 7)",
        "annotation that is not Label Studio's (KeyError",
    ):
        assert reason in tally.table()


def test_a_turned_rectangle_is_no_box(tmp_path):
    results = [rectangle("one", 0, 0, 50, 50, rotation=30), point("nose", 10, 20)]
    _, (photo,), tally = read(tmp_path, [task(*results)])
    assert keypoints(photo)[0][0] == [20, 10, 2]
    assert tally.counts["instances"]["repaired"] == 1
    assert "turned rectangle left out" in tally.table()


@pytest.mark.parametrize(
    "text, message",
    [
        ("[", "not JSON"),
        ("{}", "not Label Studio's JSON export"),
        ('[{"image": "a.png", "kp": []}]', "not Label Studio's JSON export"),
    ],
)
def test_files_that_are_none(tmp_path, text, message):
    with pytest.raises(ValueError, match=rf"export\.json: {message}"):
        read(tmp_path, text)


def test_a_skeleton_is_needed_and_the_file_named(tmp_path):
    with pytest.raises(ValueError, match=r"export\.json.*--skeleton"):
        read(tmp_path, [], skeleton=None)
    reading, _, _ = read(tmp_path, [], group="all:Big cat")
    assert reading.skeletons[0].name == "big_cat"
    (tmp_path / "other.json").touch()
    with pytest.raises(ValueError, match=r"export\.json, other\.json; name one"):
        read(tmp_path, [])
    named = tmp_path / "export.json"
    assert read(tmp_path, [], annotations=named)[0].length == 0
    named.unlink()
    (tmp_path / "other.json").unlink()
    with pytest.raises(ValueError, match=r"\*\.json: no such file; .*--annotations"):
        labelstudio.read(Source(tmp_path, skeleton=FACE), Tally())


def test_there_are_no_categories_that_could_mean_none(tmp_path):
    with pytest.raises(ValueError, match=r"--none=nothing: .* leave it out"):
        read(tmp_path, [], none=["nothing"])


def test_what_is_not_label_studios_costs_its_own_picture_alone(tmp_path):
    good = task(point("nose", 10, 20), image="b.png")
    box = rectangle("r", 0, 0, 50, 50)
    twice = [box, rectangle("r", 10, 10, 50, 50)]
    without = {**box, "value": {"x": 0, "y": 0}}
    huge = {**box, "value": {**box["value"], "x": 10**400}}
    for bad in (twice, [without], [huge], [5]):
        _, (photo,), tally = read(
            tmp_path, [task(*bad), good], pictures=("a.png", "b.png")
        )
        assert photo.name == "b.png"
        assert "annotation that is not Label Studio's" in tally.table()
        with pytest.raises(Damaged, match=r"^a\.png: annotation that is not"):
            read(tmp_path, [task(*bad), good], strict=True)


def test_texts_that_are_no_addresses(tmp_path):
    found = task(point("nose", 10, 20))
    found["data"]["note"] = "http://[what"
    _, (photo,), _ = read(tmp_path, [found], strict=True)
    assert photo.name == "a.png"


def test_strictness_names_the_keypoint(tmp_path):
    with pytest.raises(Damaged, match=r"^a\.png: tail: no name in --skeleton"):
        read(tmp_path, [task(point("tail", 10, 20))], strict=True)


def test_annotations_that_are_no_objects(tmp_path):
    with pytest.raises(ValueError, match="not Label Studio's JSON export"):
        read(tmp_path, [{"data": {}, "annotations": [5]}])
