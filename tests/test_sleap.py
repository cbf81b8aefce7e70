import sys

import cv2
import numpy as np
import pytest

from data_prep.readers import Damaged, Source, Tally, sleap
from facekp_jax import skeletons, video

LENGTH, WIDTH, HEIGHT, RATE = 12, 64, 48, 10
NODES = ("head", "eye_l", "eye_r", "tail")
PLACES = np.array([[1, 2], [3.5, 4], [np.nan, np.nan], [63, 47]])
# By hand: 0.5 further, since the centre of the top-left pixel is (0, 0) there.
KEYPOINTS = [[1.5, 2.5, 2], [4, 4.5, 2], [0, 0, 0], [63.5, 47.5, 2]]


def level(number):
    return 20 * number + 10


def clip(path, *, size=(WIDTH, HEIGHT), blue=1):
    """A video with one level for each frame, grey unless blue is 0."""
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"mp4v"), RATE, size)
    for number in range(LENGTH):
        pixels = np.full((size[1], size[0], 3), level(number), np.uint8)
        writer.write(pixels * np.uint8([blue, 1, 1]))
    writer.release()
    return path


@pytest.fixture
def sio():
    return pytest.importorskip("sleap_io")


@pytest.fixture
def labels(sio, tmp_path):
    """Writes labels.slp: {(video, frame): instances of "x"}, see `instances`."""

    def write(
        frames,
        *,
        videos=("clip.mp4",),
        symmetries=(),
        edges=(("head", "tail"),),
        embed=False,
        blue=1,
    ):
        nodes = list(NODES)
        skeleton = sio.Skeleton(
            nodes=nodes,
            edges=list(edges),
            symmetries=list(symmetries),
            name="Beetle",
        )
        tracks = [sio.Track("a"), sio.Track("b")]
        paths = [str(clip(tmp_path / name, blue=blue)) for name in videos]
        opened = [sio.load_video(path) for path in paths]
        found = []
        for (number, frame), kinds in frames.items():
            instances = []
            for kind in kinds:
                if kind == "hand":
                    made = sio.Instance.from_numpy(PLACES, skeleton=skeleton)
                else:
                    made = sio.PredictedInstance.from_numpy(
                        PLACES,
                        point_scores=np.ones(len(PLACES)),
                        score=0.25,
                        skeleton=skeleton,
                    )
                    made.track = tracks[kind] if isinstance(kind, int) else None
                instances.append(made)
            found.append(
                sio.LabeledFrame(
                    video=opened[number], frame_idx=frame, instances=instances
                )
            )
        data = sio.Labels(found, videos=opened, skeletons=[skeleton], tracks=tracks)
        data.save(str(tmp_path / "labels.slp"), embed=embed)
        return tmp_path

    return write


def read(folder, *, strict=False, **settings):
    tally = Tally(strict=strict)
    reading = sleap.read(Source(folder, **settings), tally)
    return reading, list(reading.photos), tally


def test_without_sleap_io(tmp_path, monkeypatch):
    (tmp_path / "labels.slp").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "sleap_io", None)
    with pytest.raises(ValueError, match=r"pip install 'facekp-jax\[sleap\]'"):
        read(tmp_path)


def test_files_that_are_none(sio, tmp_path):
    with pytest.raises(ValueError, match=r"\*\.slp: no such file; .*--annotations"):
        read(tmp_path)
    path = tmp_path / "a.slp"
    path.write_text("no HDF5")
    with pytest.raises(ValueError, match=r"a\.slp: not SLEAP's, or damaged"):
        read(tmp_path)
    (tmp_path / "b.slp").touch()
    with pytest.raises(ValueError, match=r"is a\.slp, b\.slp; name one with"):
        read(tmp_path)


def test_frames_come_in_order_with_their_times_and_pictures(labels):
    reading, photos, tally = read(
        labels({(0, 7): ["hand"], (0, 3): [1, 0], (0, 5): []}), strict=True
    )
    records = [record for record, _ in photos]
    assert reading.length == 3
    assert [record.name for record in records] == [
        "clip.mp4/000003",
        "clip.mp4/000005",
        "clip.mp4/000007",
    ]
    assert [record.frame for record in records] == [3, 5, 7]
    assert [record.video for record in records] == ["clip.mp4"] * 3
    np.testing.assert_allclose([record.time for record in records], [0.3, 0.5, 0.7])
    for record, data in photos:
        assert record.image.shape == (HEIGHT, WIDTH, 3)
        assert np.abs(record.image.astype(int) - level(record.frame)).max() < 8
        assert data.startswith(b"\xff\xd8") and record.labelled == ("beetle",)
    assert [len(record.instances) for record in records] == [2, 0, 1]
    for record in records:
        for instance in record.instances:
            np.testing.assert_array_equal(instance.keypoints, KEYPOINTS)
    assert [(i.track, i.score) for i in records[0].instances] == [(1, 0.25), (0, 0.25)]
    assert [(i.track, i.score) for i in records[2].instances] == [(None, 1.0)]
    assert tally.notes["frames with predicted instances alone"] == 1
    assert tally.notes["photos without an instance"] == 1
    (skeleton,) = reading.skeletons
    assert skeleton.name == "beetle" and skeleton.keypoints == NODES
    assert skeleton.edges == ((0, 3),)
    assert skeleton.mirror == (0, 2, 1, 3)  # by the names


def test_instances_by_hand_go_before_predicted_ones(labels):
    folder = labels({(0, 0): ["hand", 0, 1], (0, 1): [0]})
    _, photos, tally = read(folder)
    assert [[i.score for i in p.instances] for p, _ in photos] == [[1.0], [0.25]]
    what = "predicted instances beside those made by hand, left out"
    assert tally.notes[what] == 2


def test_symmetries_are_mirror_pairs(labels):
    folder = labels({(0, 0): ["hand"]}, symmetries=[("head", "tail")])
    reading, _, _ = read(folder)
    assert reading.skeletons[0].mirror == (3, 1, 2, 0)


def test_invisible_points_are_unlabelled(sio, labels, tmp_path):
    labels({(0, 0): ["hand"]})
    path = tmp_path / "labels.slp"
    data = sio.load_slp(str(path))
    data[0].instances[0].points["visible"][0] = False
    data.save(str(path), embed=False)
    _, ((photo, _),), _ = read(tmp_path)
    assert photo.instances[0].keypoints.tolist() == [[0, 0, 0], *KEYPOINTS[1:]]


def test_a_skeleton_file_goes_before_the_files(labels):
    folder = labels({(0, 0): ["hand"]}, edges=[])
    with pytest.raises(ValueError, match=r"'beetle' has no edges.*--skeleton"):
        read(folder)
    given = skeletons.from_names("bug", NODES, [("eye_l", "head")], None)
    reading, ((photo, _),), _ = read(folder, skeleton=given)
    assert reading.skeletons == (given,)
    assert photo.instances[0].skeleton == "bug"
    reading, _, _ = read(folder, skeleton=given, group="all:Stag beetle")
    assert reading.skeletons[0].name == "stag_beetle"


def test_videos_are_found_by_the_end_of_their_path(labels, tmp_path):
    frames = {(1, 2): ["hand"], (0, 1): ["hand"]}
    labels(frames, videos=("a/clip.mp4", "b/clip.mp4"))
    elsewhere = tmp_path / "elsewhere"
    for name in "ab":
        (elsewhere / name).mkdir(parents=True)
        (tmp_path / name / "clip.mp4").rename(elsewhere / name / "clip.mp4")
    with pytest.raises(ValueError, match=r"no clip\.mp4 in it.*--images"):
        read(tmp_path)
    _, photos, _ = read(tmp_path, images=elsewhere, strict=True)
    assert [p.name for p, _ in photos] == ["b/clip.mp4/000002", "a/clip.mp4/000001"]
    # One of two missing: its frames are refused, by name, with the cure.
    (elsewhere / "b" / "clip.mp4").unlink()
    _, photos, tally = read(tmp_path, images=elsewhere)
    assert [p.name for p, _ in photos] == ["a/clip.mp4/000001"]
    assert (
        tally.counts["photos"]["refused"] == tally.counts["instances"]["refused"] == 1
    )
    assert "clip.mp4/000002" in tally.table() and "--images" in tally.table()


def test_two_paths_of_one_video_are_one_video(labels, tmp_path):
    labels({(0, 3): ["hand"], (1, 2): ["hand"]}, videos=("a/clip.mp4", "b/clip.mp4"))
    (tmp_path / "a" / "clip.mp4").rename(tmp_path / "clip.mp4")
    (tmp_path / "b" / "clip.mp4").unlink()
    _, photos, tally = read(tmp_path, strict=True)
    assert [p.name for p, _ in photos] == ["clip.mp4/000002", "clip.mp4/000003"]
    assert tally.notes["paths that are the same video or picture as another's"] == 1


def test_frames_beyond_the_last_one(labels, tmp_path):
    folder = labels({(0, LENGTH - 1): ["hand"], (0, LENGTH): ["hand"]})
    _, photos, tally = read(folder)
    assert [p.frame for p, _ in photos] == [LENGTH - 1]
    fault = "no such frame: the last of 12 is before it (clip.mp4/000012)"
    assert fault in tally.table()
    (tmp_path / "clip.mp4").write_text("no video")
    _, photos, tally = read(folder)
    assert photos == []
    assert tally.counts["photos"]["refused"] == 2
    assert "clip.mp4: not a video" in tally.table()
    with pytest.raises(Damaged, match=r"clip\.mp4/000011"):
        read(folder, strict=True)


def test_frames_that_cannot_be_decoded(labels, monkeypatch):
    folder = labels({(0, number): ["hand"] for number in (2, 3, 4)})
    whole = video.frames
    monkeypatch.setattr(
        video, "frames", lambda path: (f for f in whole(path) if f.number != 3)
    )
    _, photos, tally = read(folder)
    assert [p.frame for p, _ in photos] == [2, 4]
    assert "frame that cannot be decoded (clip.mp4/000003)" in tally.table()


def test_a_frame_that_is_there_twice(sio, labels, tmp_path):
    labels({(0, 3): ["hand"]})
    path = tmp_path / "labels.slp"
    data = sio.load_slp(str(path))
    again = sio.LabeledFrame(video=data.videos[0], frame_idx=3, instances=[])
    data.labeled_frames.append(again)
    data.save(str(path), embed=False)
    _, photos, tally = read(tmp_path)
    assert len(photos) == 1 and tally.counts["photos"]["refused"] == 1


def test_a_video_of_another_size_than_the_file_says(labels, tmp_path):
    folder = labels({(0, 0): ["hand"]})
    clip(tmp_path / "clip.mp4", size=(WIDTH // 2, HEIGHT // 2))
    _, photos, tally = read(folder)
    assert photos == []
    assert "annotated as 64x48, the picture is 32x24" in tally.table()


@pytest.mark.parametrize("blue", [0, 1])
def test_pictures_in_the_file_itself(labels, tmp_path, blue):
    folder = labels({(0, 7): ["hand"], (0, 3): [0]}, embed="all", blue=blue)
    (tmp_path / "clip.mp4").unlink()
    _, photos, _ = read(folder, strict=True)
    assert [p.name for p, _ in photos] == ["video0/000007", "video0/000003"]
    for (photo, _), number in zip(photos, (7, 3), strict=True):
        assert (photo.video, photo.frame, photo.time) == ("", 0, 0.0)
        assert photo.image.shape == (HEIGHT, WIDTH, 3)
        rgb = np.array([1, 1, blue]) * level(number)
        assert np.abs(photo.image.mean((0, 1)) - rgb).max() < 8
        np.testing.assert_array_equal(photo.instances[0].keypoints, KEYPOINTS)


def test_pictures_beside_the_file(sio, tmp_path):
    names = []
    for number in range(2):
        path = tmp_path / f"frames{number}" / "img.png"
        path.parent.mkdir()
        cv2.imwrite(str(path), np.full((HEIGHT, WIDTH, 3), level(number), np.uint8))
        names.append(str(path))
    skeleton = sio.Skeleton(nodes=list(NODES), edges=[("head", "tail")])
    pictures = sio.load_video(names)
    frames = [
        sio.LabeledFrame(
            video=pictures,
            frame_idx=number,
            instances=[sio.Instance.from_numpy(PLACES, skeleton=skeleton)],
        )
        for number in (0, 1)
    ]
    sio.Labels(frames).save(str(tmp_path / "labels.slp"), embed=False)
    _, photos, _ = read(tmp_path, strict=True)
    assert [p.name for p, _ in photos] == ["frames0/img.png", "frames1/img.png"]
    assert [p.image[0, 0, 0] for p, _ in photos] == [level(0), level(1)]
    assert {p.video for p, _ in photos} == {""}
    frames[1].frame_idx = 2
    sio.Labels(frames).save(str(tmp_path / "labels.slp"), embed=False)
    _, photos, tally = read(tmp_path)
    assert [p.name for p, _ in photos] == ["frames0/img.png"]
    assert "no such picture: the file names 2 (picture 2)" in tally.table()
