"""Tests for face detectors: specs, empty photos, frames, threads and processes."""

import concurrent.futures
import pickle
import threading

import cv2
import numpy as np
import pytest

from facekp_jax import faces


class Network:
    """Stands in for OpenCV's network: reports what the test puts into `found`."""

    found = None
    seen = None

    def detect(self, image):
        Network.seen = image
        return 1, Network.found


@pytest.fixture
def made(monkeypatch):
    """The networks made so far; YuNet makes these instead of OpenCV's."""
    made = []

    class Factory:
        @staticmethod
        def create(*_, **__):
            made.append(Network())
            return made[-1]

    monkeypatch.setattr(cv2, "FaceDetectorYN", Factory)
    monkeypatch.setattr(faces, "_thread", threading.local())
    monkeypatch.setattr(Network, "found", None)
    return made


@pytest.mark.parametrize("spec", ["", "dlib", "haar:x", "yunet", "yunet:", "Whole"])
def test_an_unknown_detector_is_named_with_those_that_exist(spec):
    with pytest.raises(ValueError, match=rf"{spec!r}.*'haar', 'whole' or 'yunet:PATH'"):
        faces.detector(spec)


def test_a_missing_model_is_named():
    with pytest.raises(ValueError, match=r"'/no/such file\.onnx'.*opencv_zoo"):
        faces.detector("yunet:/no/such file.onnx")


def test_a_file_that_is_no_network_is_named(tmp_path):
    path = tmp_path / "text.onnx"
    path.write_text("hello")
    with pytest.raises(ValueError, match=r"text\.onnx': OpenCV cannot run it.*zoo"):
        faces.detector(f"yunet:{path}")


def test_haar_without_cascades_says_the_cure(monkeypatch):
    monkeypatch.delattr(cv2, "CascadeClassifier")
    with pytest.raises(ValueError, match=r"opencv-python-headless<5.*yunet:PATH"):
        faces.detector("haar")


@pytest.mark.parametrize("shape", [(1, 1), (480, 640)])
def test_whole_is_the_photo(shape):
    boxes = faces.detector("whole")(np.zeros((*shape, 3), np.uint8))
    np.testing.assert_array_equal(boxes, [[0, 0, shape[1], shape[0]]])
    assert boxes.dtype == np.float32


@pytest.mark.parametrize("shape", [(1, 1), (10, 300), (200, 150)])
def test_haar_finds_nobody_in_an_empty_photo(shape):
    boxes = faces.detector("haar")(np.full((*shape, 3), 90, np.uint8))
    assert boxes.shape == (0, 4) and boxes.dtype == np.float32


def test_haar_boxes_are_corners_and_largest_first(monkeypatch):
    class Cascade:
        def detectMultiScale(self, *_, **__):
            return np.array([[5, 5, 20, 20], [100, 50, 60, 60]], np.int32)

    monkeypatch.setattr(faces, "_thread", threading.local())
    monkeypatch.setattr(faces, "_cascade", Cascade)
    boxes = faces.detector("haar")(np.zeros((100, 200, 3), np.uint8))
    np.testing.assert_array_equal(boxes, [[100, 50, 160, 100], [5, 5, 25, 25]])


def test_yunet_finds_nobody(made):
    boxes = faces.YuNet("model")(np.zeros((48, 64, 3), np.uint8))
    assert boxes.shape == (0, 4) and boxes.dtype == np.float32


def test_yunet_boxes_return_to_the_photo(made):
    # 320 x 160 is shown twice as large, 160 pixels from the top of 640 x 640.
    face = [20, 180, 40, 60, *range(10), 0.9]
    larger = [500, 300, 300, 100, *range(10), 0.7]  # over the right border
    Network.found = np.array([face, larger], np.float32)
    image = np.zeros((160, 320, 3), np.uint8)
    image[..., 0] = 200
    boxes = faces.YuNet("model")(image)
    np.testing.assert_allclose(boxes, [[250, 70, 320, 120], [10, 10, 30, 40]])
    assert Network.seen.shape == (640, 640, 3)
    np.testing.assert_array_equal(Network.seen[320, 320], [0, 0, 200])  # OpenCV's BGR
    np.testing.assert_array_equal(Network.seen[[155, 485], 320], 0)


def test_yunet_drops_boxes_outside_the_photo(made):
    Network.found = np.array([[10, 10, 40, 40, *range(10), 0.9]], np.float32)
    assert faces.YuNet("model")(np.zeros((160, 320, 3), np.uint8)).shape == (0, 4)


def test_each_thread_makes_its_own_network_once(made):
    detect = faces.YuNet("model")
    image = np.zeros((8, 8, 3), np.uint8)
    together = threading.Barrier(3)

    def twice():
        together.wait(10)
        return len(detect(image)) + len(detect(image))

    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        jobs = [pool.submit(twice) for _ in range(3)]
        assert [job.result() for job in jobs] == [0, 0, 0]
    assert len(made) == 3


@pytest.mark.parametrize("detect", [faces.Haar(), faces.YuNet("model"), faces.whole])
def test_detectors_travel_to_other_processes(detect):
    assert pickle.loads(pickle.dumps(detect)) == detect


def test_a_specification_is_good_in_any_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert faces.absolute("yunet:n.onnx") == f"yunet:{tmp_path / 'n.onnx'}"
    assert faces.absolute("yunet:/a/n.onnx") == "yunet:/a/n.onnx"
    assert [faces.absolute(spec) for spec in ("haar", "whole")] == ["haar", "whole"]
