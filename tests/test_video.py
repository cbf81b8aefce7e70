import struct

import cv2
import numpy as np
import pytest

from facekp_jax import video

LENGTH, WIDTH, HEIGHT, RATE = 12, 64, 48, 10
ONE = 1 << 16  # 1 in the fixed-point numbers of a matrix
UPRIGHT = (ONE, 0, 0, 0, ONE, 0, 0, 0, 1 << 30)


def level(number):
    """Grey value of a frame, far enough from its neighbours' for any codec."""
    return 20 * number + 10


def write(path, *, size=(WIDTH, HEIGHT)):
    """Frames of one grey level each, red in the top-left quarter."""
    codec = "MJPG" if path.suffix == ".avi" else "mp4v"
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*codec), RATE, size)
    for number in range(LENGTH):
        pixels = np.full((size[1], size[0], 3), level(number), np.uint8)
        pixels[: size[1] // 2, : size[0] // 2] = (0, 0, 255)
        writer.write(pixels)
    writer.release()
    return path


def rotate(path, matrix):
    """Sets the matrix of an mp4's track header, as a phone does."""
    data = path.read_bytes()
    stored = struct.pack(">9i", *UPRIGHT)
    start = data.index(stored, data.index(b"tkhd"))
    path.write_bytes(data[:start] + struct.pack(">9i", *matrix) + data[start + 36 :])


def boxes(data, start, stop):
    """(start, length, kind) of the boxes in a part of an mp4."""
    while start < stop:
        length, kind = struct.unpack_from(">I4s", data, start)
        yield start, length, kind
        start += length


def durations(path, values):
    """Gives each frame of an mp4 its own duration, in parts of 1 / (1024 RATE) s."""
    data = bytearray(path.read_bytes())
    start, stop, parents = 0, len(data), []
    for kind in (b"moov", b"trak", b"mdia", b"minf", b"stbl", b"stts"):
        found = (box for box in boxes(data, start, stop) if box[2] == kind)
        at, length, _ = next(found)
        parents.append(at)
        start, stop = at + 8, at + length
    table = struct.pack(">I", len(values))
    table += b"".join(struct.pack(">II", 1, value) for value in values)
    longer = len(table) - (stop - start - 4)
    data[start + 4 : stop] = table
    for at in parents:
        struct.pack_into(">I", data, at, struct.unpack_from(">I", data, at)[0] + longer)
    path.write_bytes(data)


def stored_frames(data):
    """(start, length) of each frame in an avi."""
    start = data.index(b"00dc", data.index(b"movi"))
    for _ in range(LENGTH):
        (length,) = struct.unpack_from("<I", data, start + 4)
        yield start + 8, length
        start += 8 + length + length % 2


def damage(path, *numbers):
    """Overwrites frames of an avi with zeros."""
    data = bytearray(path.read_bytes())
    for number, (start, length) in enumerate(stored_frames(data)):
        if number in numbers:
            data[start : start + length] = bytes(length)
    path.write_bytes(data)


def corner(image):
    """The corner that is red, as (row, column) of -1 or 0; RGB."""
    red = [
        (row, column)
        for row in (0, -1)
        for column in (0, -1)
        if image[row, column, 0] > 200 and image[row, column, 2] < 60
    ]
    assert len(red) == 1
    return red[0]


@pytest.mark.parametrize("name", ["a.mp4", "a.avi", "ä ö:%02d.mp4"])
def test_every_frame_in_order_with_its_time(tmp_path, name):
    opened = video.frames(write(tmp_path / name))
    found = list(opened)
    assert [frame.number for frame in found] == list(range(LENGTH))
    times = [frame.time for frame in found]
    np.testing.assert_allclose(times, np.arange(LENGTH) / RATE, atol=1e-9)
    for frame in found:
        assert frame.image.shape == (HEIGHT, WIDTH, 3)
        assert frame.image.dtype == np.uint8
        assert abs(int(frame.image[-1, -1, 0]) - level(frame.number)) < 8
        assert corner(frame.image) == (0, 0)
    assert opened.promised == opened.decoded == LENGTH
    assert opened.shortfall == ""
    assert list(opened) == []


def test_a_path_with_a_colon_is_no_address(tmp_path, monkeypatch):
    write(tmp_path / "a:b.mp4")
    monkeypatch.chdir(tmp_path)
    assert len(list(video.frames("a:b.mp4"))) == LENGTH


@pytest.mark.parametrize("name", ["a.mp4", "a.avi"])
def test_two_passes_see_the_same_frames(tmp_path, name):
    path = write(tmp_path / name)
    one, two = video.frames(path), video.frames(path)
    for first, second in zip(one, two, strict=True):
        assert first[:2] == second[:2]
        np.testing.assert_array_equal(first.image, second.image)


def test_frames_are_decoded_when_they_are_asked_for(tmp_path):
    opened = video.frames(write(tmp_path / "a.mp4"))
    assert opened.decoded == 0
    assert next(opened).number == 0
    assert opened.decoded == 1


# x' = a x + c y, y' = b x + d y of a matrix (a, b, 0, c, d, ...): by hand, where the
# top-left corner of the stored picture comes to lie.
@pytest.mark.parametrize(
    "a, b, c, d, red, upright",
    [
        (ONE, 0, 0, ONE, (0, 0), (HEIGHT, WIDTH)),
        (0, ONE, -ONE, 0, (0, -1), (WIDTH, HEIGHT)),
        (-ONE, 0, 0, -ONE, (-1, -1), (HEIGHT, WIDTH)),
        (0, -ONE, ONE, 0, (-1, 0), (WIDTH, HEIGHT)),
    ],
)
def test_a_phones_video_is_turned_upright_once(tmp_path, a, b, c, d, red, upright):
    path = write(tmp_path / "a.mp4")
    rotate(path, (a, b, 0, c, d, 0, 0, 0, 1 << 30))
    for frame in video.frames(path):
        assert frame.image.shape[:2] == upright
        assert corner(frame.image) == red


def test_times_of_a_variable_frame_rate(tmp_path):
    path = write(tmp_path / "a.mp4")
    durations(path, [512, 1536, 1024] * 4)
    times = [frame.time for frame in video.frames(path)]
    starts = [0, 0.5, 2, 3, 3.5, 5, 6, 6.5, 8, 9, 9.5, 11]
    np.testing.assert_allclose(times, np.array(starts) / RATE, atol=1e-9)


def test_without_time_stamps_the_rate_gives_the_times(tmp_path):
    path = write(tmp_path / "a.mp4")
    durations(path, [0] * LENGTH)
    rate = cv2.VideoCapture(str(path)).get(cv2.CAP_PROP_FPS)
    assert rate > 0
    times = [frame.time for frame in video.frames(path)]
    np.testing.assert_allclose(times, np.arange(LENGTH) / rate, atol=1e-9)


def test_times_go_on_where_stamps_stand_still(tmp_path):
    path = write(tmp_path / "a.mp4")
    durations(path, [1024, 0, 0, 1024, 1024, 4096, 1024, 1024, 1024, 1024, 0, 0])
    times = np.array([frame.time for frame in video.frames(path)])
    assert (np.diff(times) > 0).all()
    # Stated are 0, 1, 1, 1, 2, 3, 7, ...: those that are late enough stay.
    np.testing.assert_allclose(times[[0, 1, 6, 7]], np.array([0, 1, 7, 8]) / RATE)


@pytest.mark.parametrize("damaged", [(0,), (0, 1), (5,), (4, 5, 6)])
def test_damaged_frames_are_left_out_and_the_others_keep_number_and_time(
    tmp_path, damaged
):
    path = write(tmp_path / "a.avi")
    damage(path, *damaged)
    opened = video.frames(path)
    found = list(opened)
    whole = [number for number in range(LENGTH) if number not in damaged]
    assert [frame.number for frame in found] == whole
    np.testing.assert_allclose([f.time for f in found], np.array(whole) / RATE)
    for frame in found:
        assert abs(int(frame.image[-1, -1, 0]) - level(frame.number)) < 8
    assert opened.decoded == len(whole)
    assert f"{len(whole)} frames decoded, but its header promises 12" in (
        opened.shortfall
    )


def test_a_header_that_promises_too_much(tmp_path):
    path = write(tmp_path / "a.avi")
    data = bytearray(path.read_bytes())
    for kind, offset in ((b"avih", 16), (b"strh", 32)):
        struct.pack_into("<I", data, data.index(kind) + 8 + offset, 30)
    path.write_bytes(data)
    opened = video.frames(path)
    assert len(list(opened)) == LENGTH
    assert opened.promised == 30
    assert opened.shortfall == (
        f"{path}: 12 frames decoded, but its header promises 30"
    )


def test_a_video_that_breaks_off(tmp_path):
    path = write(tmp_path / "a.avi")
    data = path.read_bytes()
    starts = [start for start, _ in stored_frames(data)]
    path.write_bytes(data[: starts[5] - 8])
    opened = video.frames(path)
    assert [frame.number for frame in opened] == [0, 1, 2, 3, 4]
    assert opened.shortfall == f"{path}: 5 frames decoded, but its header promises 12"


def test_each_video_keeps_its_own_size(tmp_path):
    for size in ((32, 96), (160, 16)):
        path = write(tmp_path / f"{size[0]}.mp4", size=size)
        assert next(video.frames(path)).image.shape == (size[1], size[0], 3)


def test_what_is_no_video(tmp_path):
    with pytest.raises(ValueError, match=r"a\.mp4: no such file$"):
        video.frames(tmp_path / "a.mp4")
    with pytest.raises(ValueError, match="no such file"):
        video.frames(tmp_path)
    path = tmp_path / "b.mp4"
    path.write_bytes(b"")
    with pytest.raises(ValueError, match=r"b\.mp4: empty file \(0 bytes\)"):
        video.frames(path)
    path.write_text("This is a text.\n" * 100)
    with pytest.raises(ValueError, match=r"b\.mp4: not a video, or not one frame"):
        video.frames(path)
    # The index of an mp4 is at its end.
    write(path)
    path.write_bytes(path.read_bytes()[:400])
    with pytest.raises(ValueError, match=r"b\.mp4: not a video, or not one frame"):
        video.frames(path)


def test_not_one_whole_frame(tmp_path):
    path = write(tmp_path / "a.avi")
    damage(path, *range(LENGTH))
    with pytest.raises(ValueError, match=r"a\.avi: not a video, or not one frame"):
        video.frames(path)
