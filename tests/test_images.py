import struct
import zlib

import cv2
import numpy as np
import pytest

from facekp_jax import images


def png(width, height, bits, colour_type, rows, *chunks):
    def chunk(kind, data):
        checksum = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + checksum

    header = struct.pack(">IIBBBBB", width, height, bits, colour_type, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + row for row in rows))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        chunk(kind, data)
        for kind, data in [
            (b"IHDR", header),
            *chunks,
            (b"IDAT", pixels),
            (b"IEND", b""),
        ]
    )


def flat_jpeg(components):
    """8 x 8 pixels of one colour: a DC coefficient per component, no AC."""

    def segment(marker, data):
        return bytes([0xFF, marker]) + struct.pack(">H", len(data) + 2) + data

    n = len(components)
    bits = ""
    for value in components:
        # Quantiser 8 makes the DC coefficient the difference to 128.
        difference = value - 128
        size = abs(difference).bit_length()
        bits += f"{size:04b}"
        if size:
            negative = difference < 0
            bits += f"{difference + ((1 << size) - 1) * negative:0{size}b}"
        bits += "0"
    bits += "1" * (-len(bits) % 8)
    scan = int(bits, 2).to_bytes(len(bits) // 8, "big").replace(b"\xff", b"\xff\0")
    parts = b"".join(bytes([i + 1, 0x11, 0]) for i in range(n))
    selectors = b"".join(bytes([i + 1, 0]) for i in range(n))
    return (
        b"\xff\xd8"
        + segment(0xEE, b"Adobe\0d\0\0\0\0\0")
        + segment(0xDB, bytes([0] + [8] * 64))
        + segment(0xC0, struct.pack(">BHHB", 8, 8, 8, n) + parts)
        + segment(0xC4, bytes([0, 0, 0, 0, 12] + [0] * 12) + bytes(range(12)))
        + segment(0xC4, bytes([0x10, 1] + [0] * 15 + [0]))
        + segment(0xDA, bytes([n]) + selectors + bytes([0, 63, 0]))
        + scan
        + b"\xff\xd9"
    )


def with_exif(jpeg, orientation, order="<", thumbnail=b""):
    mark = b"II*\0" if order == "<" else b"MM\0*"
    tag = struct.pack(order + "IHHHIHHI", 8, 1, 0x112, 3, 1, orientation, 0, 0)
    block = b"Exif\0\0" + mark + tag + thumbnail
    return jpeg[:2] + b"\xff\xe1" + struct.pack(">H", len(block) + 2) + block + jpeg[2:]


def textured_jpeg(height=96, width=128):
    noise = np.random.default_rng(0).integers(0, 256, (12, 16, 3), np.uint8)
    return cv2.imencode(".jpg", cv2.resize(noise, (width, height)))[1].tobytes()


# Where the stored picture's top-left and top-right pixels belong when upright.
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(
    "orientation, first, second",
    [
        (1, "top left", "top right"),
        (2, "top right", "top left"),
        (3, "bottom right", "bottom left"),
        (4, "bottom left", "bottom right"),
        (5, "top left", "bottom left"),
        (6, "top right", "bottom right"),
        (7, "bottom right", "top right"),
        (8, "bottom left", "top left"),
    ],
)
def test_exif_orientation_is_applied_once(orientation, first, second, order):
    stored = np.zeros((16, 32, 3), np.uint8)  # BGR
    stored[:8, :8] = (0, 0, 255)
    stored[:8, -8:] = (255, 0, 0)
    jpeg = cv2.imencode(".jpg", stored, [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, 0x111111])
    data = with_exif(jpeg[1].tobytes(), orientation, order)
    image = images.decode(data)
    assert image.shape == ((16, 32, 3) if orientation < 5 else (32, 16, 3))
    rows, columns = {"top": 3, "bottom": -4}, {"left": 3, "right": -4}
    for place, colour in ((first, (255, 0, 0)), (second, (0, 0, 255))):
        row, column = place.split()
        found = image[rows[row], columns[column]].astype(int)
        np.testing.assert_allclose(found, colour, atol=6)
    raw = images.decode(data, apply_exif=False)
    np.testing.assert_allclose(raw[3, 3].astype(int), (255, 0, 0), atol=6)
    assert raw.shape == (16, 32, 3)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_of_a_tiff(orientation):
    # OpenCV turns a TIFF by itself, whatever its flags say.
    pixels = np.arange(24, dtype=np.uint8).reshape(4, 6)
    entries = [
        (256, 6),  # width
        (257, 4),  # height
        (258, 8),  # bits
        (259, 1),  # not compressed
        (262, 1),  # 0 is black
        (273, 8),  # where the pixels start
        (274, orientation),
        (277, 1),  # channels
        (278, 4),  # rows in the strip
        (279, 24),  # bytes in the strip
    ]
    tiff = b"II*\0" + struct.pack("<I", 32) + pixels.tobytes()
    tiff += struct.pack("<H", len(entries))
    tiff += b"".join(struct.pack("<HHIHH", tag, 3, 1, v, 0) for tag, v in entries)
    tiff += struct.pack("<I", 0)
    raw = images.decode(tiff, apply_exif=False)
    np.testing.assert_array_equal(raw[..., 0], pixels)
    jpeg = cv2.imencode(".jpg", np.kron(pixels, np.ones((8, 8), np.uint8)) * 10)[1]
    like = images.decode(with_exif(jpeg.tobytes(), orientation))
    upright = images.decode(tiff)[..., 0]
    np.testing.assert_allclose(like[4::8, 4::8, 0] / 10, upright, atol=0.5)


def test_orientation_of_a_picture_with_transparency():
    exif = b"MM\0*" + struct.pack(">IHHHIHHI", 8, 1, 0x112, 3, 1, 6, 0, 0)
    rows = [bytes([10, 20, 30, 255, 0, 0, 0, 0])]
    image = images.decode(png(2, 1, 8, 6, rows, (b"eXIf", exif)))
    np.testing.assert_array_equal(image, [[[10, 20, 30]], [[255, 255, 255]]])


@pytest.mark.parametrize("block", [b"", b"II*\0", b"garbage", b"MM\0*\0\0\xff\xff\0\1"])
def test_broken_exif_is_upright(block):
    image = images.decode(png(2, 1, 8, 0, [b"\1\2"], (b"eXIf", block)))
    assert image.shape == (1, 2, 3)


PALETTE = (b"PLTE", bytes([255, 0, 0, 0, 0, 255]))


@pytest.mark.parametrize(
    "data, expected",
    [
        (png(2, 1, 8, 0, [bytes([0, 200])]), [[0] * 3, [200] * 3]),
        (png(8, 1, 1, 0, [b"\x80"]), [[255] * 3] + [[0] * 3] * 7),
        (png(2, 1, 8, 4, [bytes([100, 255, 100, 0])]), [[100] * 3, [255] * 3]),
        (png(2, 1, 8, 3, [b"\0\1"], PALETTE), [[255, 0, 0], [0, 0, 255]]),
        (
            png(2, 1, 8, 3, [b"\0\1"], PALETTE, (b"tRNS", b"\xff\0")),
            [[255, 0, 0], [255] * 3],
        ),
        (png(1, 1, 8, 2, [bytes([1, 2, 3])]), [[1, 2, 3]]),
        # Half transparent: 100 * 51/255 + 255 * 204/255 = 20 + 204.
        (png(1, 1, 8, 6, [bytes([100, 0, 255, 51])]), [[224, 204, 255]]),
        # 65535 / 257 = 255, 257 / 257 = 1, and 255 is nearer to 1 than to 0.
        (png(4, 1, 16, 0, [struct.pack(">4H", 65535, 257, 255, 128)]), None),
        (png(1, 1, 16, 2, [struct.pack(">3H", 65535, 0, 25700)]), [[255, 0, 100]]),
        (png(1, 1, 16, 4, [struct.pack(">2H", 25700, 65535)]), [[100] * 3]),
    ],
    ids=[
        *("grey", "bit", "grey+alpha", "palette", "transparent"),
        *("rgb", "rgba", "grey16", "rgb16", "grey16+alpha"),
    ],
)
def test_every_kind_of_png_becomes_rgb(data, expected):
    expected = expected or [[255] * 3, [1] * 3, [1] * 3, [0] * 3]
    image = images.decode(data)
    assert image.dtype == np.uint8 and image.flags.c_contiguous
    np.testing.assert_array_equal(image, [expected])


def test_cmyk_jpeg():
    # Adobe stores CMYK inverted: red = 255 * 200 / 255, green and blue likewise.
    image = images.decode(flat_jpeg([255, 128, 64, 200]))
    assert image.shape == (8, 8, 3)
    expected = [200, 128 * 200 / 255, 64 * 200 / 255]
    np.testing.assert_allclose(image[4, 4].astype(int), expected, atol=1)


def test_grey_jpeg():
    np.testing.assert_array_equal(
        images.decode(flat_jpeg([90])), np.full((8, 8, 3), 90)
    )


@pytest.mark.parametrize("part", [0.3, 0.6, 0.99])
def test_truncated_jpeg_is_refused_in_spite_of_its_thumbnails_end_marker(part):
    data = with_exif(textured_jpeg(), 1, thumbnail=flat_jpeg([50]))
    assert images.decode(data).shape == (96, 128, 3)
    with pytest.raises(ValueError, match="truncated JPEG"):
        images.decode(data[: int(len(data) * part)])


def test_jpeg_with_bytes_behind_its_end_is_whole():
    assert images.decode(textured_jpeg() + b"\0" * 50).shape == (96, 128, 3)


def test_only_the_strict_decoder_sees_a_hole_in_a_jpeg():
    data = textured_jpeg()
    half = data[: len(data) // 2] + b"\xff\xd9"
    assert images.decode(half).shape == (96, 128, 3)
    with pytest.raises(ValueError, match="damaged JPEG: premature end"):
        images.decode_strictly(half)
    np.testing.assert_array_equal(images.decode_strictly(data), images.decode(data))


@pytest.mark.parametrize(
    "data, message",
    [
        (b"", "0 bytes"),
        (b"this is text, named .jpg" * 9, "not a picture"),
        (png(2, 2, 8, 0, [b"\1\2", b"\3\4"])[:-30], "damaged"),
        (b"\xff\xd8", "truncated"),
        (b"\xff\xd8\xff\xe1", "truncated"),
    ],
)
def test_what_is_no_picture_says_so(data, message):
    with pytest.raises(ValueError, match=message):
        images.decode(data)


def test_read_names_the_path(tmp_path):
    folder = tmp_path / "Fotos übung 写真"
    folder.mkdir()
    path = folder / "a b ñ.jpg"
    path.write_bytes(textured_jpeg())
    assert images.read(path).shape == (96, 128, 3)
    path.write_bytes(b"")
    with pytest.raises(ValueError, match=r"a b ñ\.jpg: empty file"):
        images.read(path)
    with pytest.raises(ValueError, match=r"none\.jpg: No such file"):
        images.read(folder / "none.jpg")


@pytest.mark.parametrize("channels", [3, 4])
def test_encode_png_keeps_every_value(channels):
    image = np.random.default_rng(0).integers(0, 256, (5, 7, channels), np.uint8)
    stored = cv2.imdecode(
        np.frombuffer(images.encode_png(image), np.uint8), cv2.IMREAD_UNCHANGED
    )
    np.testing.assert_array_equal(stored[..., [2, 1, 0, 3][:channels]], image)


def test_list_images(tmp_path):
    for name in ("b.JPG", "a.png", "notes.txt"):
        (tmp_path / name).touch()
    (tmp_path / "deeper").mkdir()
    (tmp_path / "deeper" / "c.png").touch()
    assert [p.name for p in images.list_images(tmp_path)] == ["a.png", "b.JPG"]
    assert images.list_images(tmp_path / "a.png") == [tmp_path / "a.png"]
    with pytest.raises(ValueError, match="no such file or folder"):
        images.list_images(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="no picture in it"):
        images.list_images(tmp_path / "empty")
