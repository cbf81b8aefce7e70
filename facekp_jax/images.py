"""Encoded pictures to RGB arrays: one reader for data, training and prediction."""

import contextlib
import os
import pathlib
import re
import struct
import sys
import tempfile
from collections.abc import Sequence

import cv2
import numpy as np

SUFFIXES = (".bmp", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
BACKGROUND = 255  # grey value that transparent pixels are blended on

# EXIF orientation -> (transpose, reverse rows, reverse columns), in this order.
_UPRIGHT = {
    1: (False, False, False),
    2: (False, False, True),
    3: (False, True, True),
    4: (False, True, False),
    5: (True, False, False),
    6: (True, False, True),
    7: (True, True, True),
    8: (True, True, False),
}
_EXIF_ORIENTATION = 0x0112
# A marker inside a JPEG's entropy-coded data: neither a stuffed 0xFF nor a restart.
_JPEG_MARKER = re.compile(rb"\xff+([^\x00\xd0-\xd7\xff])")


def decode(data: bytes, *, apply_exif: bool = True) -> np.ndarray:
    """Decodes a picture of any kind to 8-bit RGB.

    Grey and palette pictures get three channels, 16-bit values are scaled by their
    range, transparent pixels are blended on white (`BACKGROUND`), CMYK is converted.

    Args:
        data: the file's bytes.
        apply_exif: turn the picture as its EXIF orientation says. False for
            annotations that were made on the raw pixels.

    Returns:
        uint8 [H, W, 3].

    Raises:
        ValueError: for anything but a whole picture; says what is wrong.
    """
    if not data:
        raise ValueError("empty file (0 bytes)")
    if data.startswith(b"\xff\xd8") and not _jpeg_ends(data):
        raise ValueError("truncated JPEG: the end marker is missing")
    try:
        pixels, kinds, metadata = cv2.imdecodeWithMetadata(
            np.frombuffer(data, np.uint8), flags=cv2.IMREAD_UNCHANGED
        )
    except cv2.error as error:
        raise ValueError(f"OpenCV cannot decode it: {error.err}") from error
    if pixels is None:
        raise ValueError("not a picture, or a damaged one")
    pixels = _three_channels(_eight_bits(pixels))
    if data[:4] in (b"II*\0", b"MM\0*"):
        # OpenCV has turned a TIFF itself, whose header is an EXIF block.
        if not apply_exif:
            turn = _orientation(data)
            pixels = _turn(pixels, {6: 8, 8: 6}.get(turn, turn))
    elif apply_exif:
        for kind, block in zip(kinds, metadata, strict=True):
            if kind == cv2.IMAGE_METADATA_EXIF:
                pixels = _turn(pixels, _orientation(np.asarray(block).tobytes()))
    return np.ascontiguousarray(pixels)


def decode_strictly(data: bytes, *, apply_exif: bool = True) -> np.ndarray:
    """Like `decode`, but refuses JPEGs with holes that the decoder fills with grey.

    libjpeg reports such a repair only as text on the process's standard error, which
    is redirected meanwhile: for commands that check data, not for threads.
    """
    with _standard_error() as messages:
        image = decode(data, apply_exif=apply_exif)
    found = re.search(r"premature end[^\n]*|bad Huffman code[^\n]*", messages())
    if found:
        raise ValueError(f"damaged JPEG: {found[0]}")
    return image


def read(path: str | os.PathLike, *, apply_exif: bool = True) -> np.ndarray:
    """Reads and decodes a picture file; a ValueError names the path."""
    try:
        return decode(pathlib.Path(path).read_bytes(), apply_exif=apply_exif)
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def encode_png(image: np.ndarray) -> bytes:
    """Encodes uint8 [H, W, 3] RGB or [H, W, 4] RGBA."""
    order = cv2.COLOR_RGBA2BGRA if image.shape[2] == 4 else cv2.COLOR_RGB2BGR
    return cv2.imencode(".png", cv2.cvtColor(image, order))[1].tobytes()


def list_images(
    path: str | os.PathLike, suffixes: Sequence[str] = SUFFIXES
) -> list[pathlib.Path]:
    """The file itself, or a folder's own files with these suffixes, sorted by name.

    Raises:
        ValueError: if there is no such path, or no such file in the folder.
    """
    path = pathlib.Path(path)
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise ValueError(f"{path}: no such file or folder")
    found = sorted(
        p for p in path.iterdir() if p.is_file() and p.suffix.lower() in suffixes
    )
    if not found:
        raise ValueError(f"{path}: no picture in it (looked for {' '.join(suffixes)})")
    return found


def _eight_bits(pixels):
    if pixels.dtype == np.uint8:
        return pixels
    if pixels.dtype == np.uint16:
        return ((pixels.astype(np.uint32) + 128) // 257).astype(np.uint8)
    raise ValueError(f"pixels of type {pixels.dtype}; 8 or 16 bits are supported")


def _three_channels(pixels):
    """[H, W], [H, W, 3] BGR or [H, W, 4] BGRA to [H, W, 3] RGB."""
    if pixels.ndim == 2:
        return cv2.cvtColor(pixels, cv2.COLOR_GRAY2RGB)
    if pixels.shape[2] == 3:
        return cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB)
    colours = pixels[..., 2::-1]
    alpha = pixels[..., 3:].astype(np.uint32)
    blended = colours * alpha + BACKGROUND * (255 - alpha)
    return ((blended + 127) // 255).astype(np.uint8)


def _turn(pixels, orientation):
    transpose, rows, columns = _UPRIGHT[orientation]
    if transpose:
        pixels = pixels.swapaxes(0, 1)
    return pixels[:: -1 if rows else 1, :: -1 if columns else 1]


def _orientation(exif):
    """1 to 8 from an EXIF block (a TIFF header); 1 if absent or unreadable."""
    exif = exif.removeprefix(b"Exif\0\0")
    order = {b"II": "<", b"MM": ">"}.get(exif[:2])
    if order is None:
        return 1
    try:
        (start,) = struct.unpack_from(order + "I", exif, 4)
        (entries,) = struct.unpack_from(order + "H", exif, start)
        for i in range(entries):
            tag, _, _, value = struct.unpack_from(
                order + "HHIH", exif, start + 2 + 12 * i
            )
            if tag == _EXIF_ORIENTATION:
                return value if value in _UPRIGHT else 1
    except struct.error:
        pass
    return 1


def _jpeg_ends(data):
    """Whether the markers lead to the end marker.

    Looking for its two bytes is not enough: the thumbnail inside EXIF has its own. One
    that is cut right behind that holds no picture, which the decoder finds.
    """
    if data.endswith(b"\xff\xd9"):
        return True
    position = 2
    while match := _JPEG_MARKER.search(data, position):
        position = match.end()
        if match[1] == b"\xd9":
            return True
        if position + 2 > len(data):
            return False
        position += int.from_bytes(data[position : position + 2], "big")
    return False


@contextlib.contextmanager
def _standard_error():
    sys.stderr.flush()
    kept = os.dup(2)
    text = []
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield lambda: text[0]
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            file.seek(0)
            text.append(file.read().decode(errors="replace"))
