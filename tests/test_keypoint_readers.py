import pathlib

import cv2
import numpy as np
import pytest

from data_prep.readers import Source, Tally, keypoints
from data_prep.readers.categories import Categories
from data_prep.readers.photos import Annotation, Entry
from facekp_jax import images, masks, skeletons
from facekp_jax.records import Patch

SIZE = (20, 30)
MOUSE = skeletons.from_names(
    "mouse", ("snout", "tail"), [("snout", "tail")], [], {"tail": 0.1}
)
NAN = float("nan")


def instance(points, **fields):
    repairs = []
    return keypoints.instance(MOUSE, points, SIZE, repairs, **fields), repairs


def test_not_a_number_is_unlabelled():
    points = [[NAN, NAN, 2], [5, 6, 2]]
    found, repairs = instance(points, box=[1, 2, 9, 11], area=7, track=3, score=0.5)
    np.testing.assert_array_equal(found.keypoints, [[0, 0, 0], [5, 6, 2]])
    assert (found.skeleton, found.area) == ("mouse", 7)
    assert (found.track, found.score, repairs) == (3, 0.5, [])
    np.testing.assert_array_equal(points[1], [5, 6, 2])  # the caller's own


def test_points_on_the_border_are_in_the_picture():
    found, repairs = instance([[0, 0, 2], [30, 20, 1]], box=[0, 0, 30, 20], area=1)
    np.testing.assert_array_equal(found.keypoints, [[0, 0, 2], [30, 20, 1]])
    assert not repairs
    found, repairs = instance([[-1e-6, 0, 2], [30.001, 20, 1]], box=[0, 0, 1, 1])
    assert not found.keypoints.any() and len(repairs) == 3


@pytest.mark.parametrize("points", [[], [[1, 2, 2]], [[1, 2], [3, 4]]])
def test_keypoints_of_another_shape(points):
    with pytest.raises(ValueError, match=r"instead of \(2, 3\)"):
        instance(points, box=[0, 0, 1, 1])


def test_pixels_that_a_box_touches():
    x, y, pixels = keypoints.box_patch(np.float32([0.5, 2, 3, 4.1]))
    assert (x, y, pixels.shape) == (0, 2, (3, 3)) and pixels.all()


def opened(entries, convert=None, folder=".", kinds=None):
    tally = Tally()
    reading = keypoints.open_photos(
        entries,
        convert,
        kinds or Categories(rest=MOUSE),
        Source(folder),
        tally,
        folder=pathlib.Path(folder),
        length=len(entries),
    )
    assert reading.length == len(entries)
    return list(reading.photos), tally


def test_frames_have_no_file_and_keep_their_place_in_the_video():
    noise = np.random.default_rng(0).integers(0, 256, (*SIZE, 3), np.uint8)
    data = images.encode_png(noise)

    def convert(skeleton, value, size, repairs):
        assert (skeleton, value, size) == (MOUSE, "value", SIZE)
        return Patch(2, 3, np.ones((1, 2), bool))

    entry = Entry(
        "clip, frame 3",
        [Annotation("animal", None, "value")],
        data=lambda: data,
        ignore=[[10, 10, 12, 10, 12, 12, 10, 12], [1, 2]],
        video="clip",
        frame=3,
        time=0.1,
    )
    ((photo, stored),), tally = opened([entry], convert)
    assert stored == data
    np.testing.assert_array_equal(photo.image, noise)
    assert (photo.name, photo.video, photo.frame) == ("clip, frame 3", "clip", 3)
    assert photo.time == 0.1 and photo.instances == ()
    expected = np.zeros(SIZE, bool)
    expected[10:12, 10:12] = expected[3, 2:4] = True
    np.testing.assert_array_equal(masks.to_full(photo.ignore, *SIZE), expected)
    assert tally.counts["photos"]["repaired"] == 1
    assert tally.counts["instances"]["read"] == tally.counts["keypoints"]["read"] == 0


def test_a_frame_that_does_not_come_is_refused():
    def broken():
        raise ValueError("the video ends before")

    photos, tally = opened([Entry("frame 9", [Annotation("a", None, 1)], data=broken)])
    assert not photos
    assert "photos refused, 1: the video ends before (frame 9)" in tally.table()
    assert tally.counts["instances"]["refused"] == 1


def test_kinds_appear_even_of_an_empty_source():
    photos, tally = opened([])
    assert not photos
    assert list(tally.counts) == ["photos", "instances", "keypoints"]


def test_each_photo_is_labelled_for_each_type(tmp_path):
    noise = np.zeros((*SIZE, 3), np.uint8)
    (tmp_path / "a.png").write_bytes(cv2.imencode(".png", noise)[1].tobytes())
    rat = skeletons.from_names("rat", ("a", "b"), [("a", "b")], None)
    ((photo, _),), _ = opened(
        [Entry("a.png")], folder=tmp_path, kinds=Categories({1: rat, 2: MOUSE, 3: rat})
    )
    assert photo.labelled == ("rat", "mouse")


def test_a_type_has_the_name_of_its_group():
    assert keypoints.type_name(Source("."), "Lab animal") == "lab_animal"
    assert keypoints.type_name(Source(".", skeleton=MOUSE), "animal") == "mouse"
    source = Source(".", group="all:Rat 1", skeleton=MOUSE)
    assert keypoints.type_name(source, "animal") == "rat_1"
    for group in ("supercategory", "all:", "animal"):
        with pytest.raises(ValueError, match=f"--group={group}: this source has one"):
            keypoints.type_name(Source(".", group=group), "mouse")
    with pytest.raises(ValueError, match=r"--none=no_rat,rat: .*no categories; leave"):
        keypoints.type_name(Source(".", none=["no_rat", "rat"]), "mouse")


def test_a_skeleton_from_the_source_or_from_the_user():
    found = keypoints.type_skeleton("rat", ["a", "b"], [(0, 1)], None, "x")
    assert (found.name, found.edges, found.mirror) == ("rat", ((0, 1),), None)
    for names in (None, ["Snout", "tail"]):
        found = keypoints.type_skeleton("rat", names, (), MOUSE, "x")
        assert (found.name, found.sigmas) == ("rat", MOUSE.sigmas)
    for names, message in (
        (["tail", "snout"], "x, rat: keypoint 0 is 'tail', but in --skeleton it is"),
        (["snout"], "x, rat: 1 keypoints, but --skeleton has 2"),
    ):
        with pytest.raises(ValueError, match=message):
            keypoints.type_skeleton("rat", names, (), MOUSE, "x")
    with pytest.raises(ValueError, match="keypoints of rat have no names"):
        keypoints.type_skeleton("rat", None, (), None, "x")
