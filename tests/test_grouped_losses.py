"""Losses of the bottom-up method, against values derived by hand."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from facekp_jax.grouping import Bandwidths
from facekp_jax.losses import grouped_keypoints, weighted_sum
from facekp_jax.skeletons import Skeleton

PAIR = Skeleton("pair", ("a", "b"), ((0, 1),), None, (0.05,) * 2)
OTHER = Skeleton("other", ("c", "d"), ((0, 1),), None, (0.05,) * 2)
SKELETONS = (PAIR, OTHER)
NAMES = ("heatmap", "pull", "push", "ordinal", "instance", "size")
NAMES += ("auxiliary_keypoint", "auxiliary_instance")
HEIGHT, WIDTH = 8, 12  # cells
ROOM = 4
TERMS = grouped_keypoints.terms(
    **dict.fromkeys(NAMES, 1.0), bandwidths=Bandwidths(ke=0.5, sie=0.2)
)


def batch(*instances):
    """One picture; of each instance (type, area in cells, points in cells)."""
    keypoints = np.zeros((1, ROOM, 2, 3), np.float32)
    valid = np.zeros((1, ROOM), bool)
    skeleton = np.zeros((1, ROOM), np.int32)
    areas = np.zeros((1, ROOM), np.float32)
    for number, (kind, area, points) in enumerate(instances):
        for k, point in enumerate(points):
            if point is not None:
                keypoints[0, number, k] = (*(4 * np.array(point) + 2), 2)
        valid[0, number], skeleton[0, number] = True, kind
        areas[0, number] = 16 * area
    return {
        "image": np.zeros((1, 4 * HEIGHT, 4 * WIDTH, 3), np.uint8),
        "ignore": np.zeros((1, HEIGHT, WIDTH), np.uint8),
        "labelled": np.ones((1, 2), bool),
        "valid": valid,
        "keypoints": keypoints,
        "skeleton": skeleton,
        "areas": areas,
    }


def outputs(seed=None):
    maps = {
        "heatmaps": (1, 4, HEIGHT, WIDTH),
        "keypoint_embedding": (1, HEIGHT, WIDTH, 2),
        "instance_embedding": (1, HEIGHT, WIDTH, 2),
        "log_size": (1, HEIGHT, WIDTH),
        "ordinal_maps": (1, HEIGHT, WIDTH, 6),
    }
    if seed is None:
        return {name: np.zeros(shape, np.float32) for name, shape in maps.items()}
    rng = np.random.default_rng(seed)
    drawn = {n: rng.normal(size=s).astype(np.float32) for n, s in maps.items()}
    return drawn | {"log_size": 0.2 * drawn["log_size"] + 1.5}


drawn = jax.jit(functools.partial(grouped_keypoints.targets, skeletons=SKELETONS))


@jax.jit
def measured(found, true):
    true = grouped_keypoints.targets(found, true, skeletons=SKELETONS)
    return weighted_sum(TERMS, found, true)[1]


gradient = jax.jit(jax.grad(lambda found, true: sum(measured(found, true).values())))


def term(name, found, true):
    return float(measured(found, true)[f"loss/{name}"])


TWO = ((0, 16, [(2, 3), (4, 3)]), (0, 16, [(9, 3), (9, 7)]))


def test_targets_by_hand():
    true = batch((0, 16, [(2, 3.25), (5, 3)]), (1, 0.25, [(7, 1)]), (0, 9, [(4, 3)]))
    true["ignore"][0, 5] = 1
    got = drawn(outputs(), true)
    heat = np.asarray(got["heat"])
    assert heat.shape == (1, 4, HEIGHT, WIDTH)
    assert heat[0, 0, 3, 2] == pytest.approx(math.exp(-(0.25**2) / 2))
    # Between two: the higher of both, not the sum.
    assert heat[0, 0, 3, 3] == pytest.approx(math.exp(-0.5), rel=1e-5)
    assert heat[0, 1, 3, 5] == heat[0, 2, 1, 7] == 1
    assert heat[0, 2, :, :3].max() < 1e-3 and not heat[0, 3].any()
    assert not got["heat_known"][0, :, 5].any()
    assert got["heat_known"][0, :, 4].all()
    expected = [[True, True], [True, False], [True, False], [False, False]]
    np.testing.assert_array_equal(got["there"][0], expected)
    assert got["cells"][0, 0].tolist() == [3 * WIDTH + 2, 3 * WIDTH + 5]
    np.testing.assert_allclose(got["centres"][0, 0], [3.5, 3.125])
    np.testing.assert_allclose(got["centres"][0, 1], [7, 1])
    np.testing.assert_allclose(got["sizes"][0, :3], [4, 1, 3])


def test_points_outside_and_types_without_labels_are_unknown():
    true = batch((0, 4, [(-0.6, 2), (WIDTH - 0.5, HEIGHT - 0.5)]))
    true["labelled"][0, 1] = False
    got = drawn(outputs(), true)
    assert got["there"][0, 0].tolist() == [False, True]
    assert got["cells"][0, 0, 1] == HEIGHT * WIDTH - 1
    assert not got["heat"][0, 0].any()
    known = np.asarray(got["heat_known"]).all((-2, -1))
    assert known.tolist() == [[True, True, False, False]]


def test_heatmap_loss_by_hand_and_least_at_the_target():
    true = batch(TWO[0])
    heat = np.asarray(drawn(outputs(), true)["heat"])
    square = (heat - 0.5) ** 2 * math.log(2)
    assert term("heatmap", outputs(), true) == pytest.approx(square.sum() / 4, rel=1e-4)
    clipped = np.clip(heat, 1e-6, 1 - 1e-6)
    perfect = outputs() | {"heatmaps": np.log(clipped / (1 - clipped))}
    assert term("heatmap", perfect, true) == pytest.approx(0, abs=1e-6)


def test_pull_and_push_by_hand():
    found = outputs()
    looks = found["keypoint_embedding"][0]
    looks[3, 2], looks[3, 4] = (0.5, 0), (-0.5, 0)  # a bandwidth from their mean
    looks[3, 9] = looks[7, 9] = (0, 1.5)  # three bandwidths from that of the others
    assert term("pull", found, batch(*TWO)) == pytest.approx((1 + 1 + 0 + 0) / 4)
    assert term("push", found, batch(*TWO)) == pytest.approx((4 - 3) ** 2, rel=1e-4)
    assert term("push", found, batch(TWO[0])) == 0
    alike = outputs()
    assert term("push", alike, batch(*TWO)) == pytest.approx(16, rel=1e-2)


def test_order_by_hand():
    # The second is to the right and below; how near they are is not known.
    found = outputs()
    maps = found["ordinal_maps"][0]
    for row, column in ((3, 9), (7, 9)):
        maps[row, column] = (2, -2, 0, 0, 50, 50)
    right = math.log1p(math.exp(-2))
    expected = (2 * right + 2 * math.log(2)) / 4
    assert term("ordinal", found, batch(*TWO)) == pytest.approx(expected, rel=1e-4)
    depths = np.array([[1.0, 2.0, 0, 0]], np.float32)
    near = batch(*TWO) | {"depths": depths}
    maps[3, 9, 4:] = maps[7, 9, 4:] = (2, -2)
    expected = (4 * right + 2 * math.log(2)) / 6
    assert term("ordinal", found, near) == pytest.approx(expected, rel=1e-4)
    # Centres in one column: left and right are not certain.
    column = batch((0, 4, [(2, 2), (4, 2)]), (0, 4, [(2, 6), (4, 6)]))
    assert term("ordinal", outputs(), column) == pytest.approx(math.log(2), rel=1e-4)


def test_votes_and_sizes_by_hand():
    true = batch(TWO[0])
    found = outputs()
    # The centre is at (3, 3), the size 4 cells; bend 0.05: error e costs e - 0.025.
    found["instance_embedding"][0, 3, 2] = (1, 0)
    found["instance_embedding"][0, 3, 4] = (-1, 2)
    assert term("instance", found, true) == pytest.approx((2 / 4 - 0.025) / 4, rel=1e-4)
    found["log_size"][:] = math.log(8)
    assert term("size", found, true) == pytest.approx(math.log(2), rel=1e-4)


def test_after_the_mean_shift_keypoints_are_at_their_instance():
    found = outputs()
    found["log_size"][:] = math.log(4)
    votes = found["instance_embedding"][0]
    votes[3, 2], votes[3, 4] = (1.5, 0), (-1.5, 0)  # half a cell from each other's
    votes[3, 9], votes[7, 9] = (0, 2), (0, -2)
    looks = found["keypoint_embedding"][0]
    looks[3, 2] = looks[3, 4] = (3, 0)
    before = term("instance", found, batch(*TWO))
    assert before > 0.01
    assert term("auxiliary_instance", found, batch(*TWO)) < 0.01 * before
    assert term("auxiliary_keypoint", found, batch(*TWO)) == pytest.approx(0, abs=1e-4)
    # With one appearance and one vote for all they are taken for one.
    votes[3, 9], votes[7, 9] = (-6, 0), (-6, -4)
    looks[:] = 0
    assert term("auxiliary_instance", found, batch(*TWO)) > 0.3


def test_types_are_grouped_apart():
    both = batch(TWO[0], (1, 16, [(4, 3)]))
    alone = batch(TWO[0])
    found = outputs(0)
    shared = measured(found, both)
    for name in ("auxiliary_keypoint", "auxiliary_instance"):
        other = float(measured(found, batch((1, 16, [(4, 3)])))[f"loss/{name}"])
        expected = (2 * term(name, found, alone) + other) / 3
        assert float(shared[f"loss/{name}"]) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("instances", [(), TWO[:1], ((0, 4, [(2, 3), None]),), TWO])
def test_any_number_of_instances_is_finite(instances):
    found, true = outputs(1), batch(*instances)
    losses = jax.device_get(measured(found, true))
    assert all(math.isfinite(value) for value in losses.values())
    slopes = jax.device_get(gradient(found, true))
    assert all(np.isfinite(slope).all() for slope in slopes.values())
    if not instances:
        assert not any(losses[f"loss/{name}"] for name in NAMES[1:])
        for name, slope in slopes.items():
            assert slope.any() == (name == "heatmaps")


def test_the_order_of_instances_does_not_matter():
    found = outputs(2)
    some, others = measured(found, batch(*TWO)), measured(found, batch(*TWO[::-1]))
    for name, value in some.items():
        assert float(value) == pytest.approx(float(others[name]), rel=1e-4), name


def test_gradients_go_through_the_mean_shift():
    true = drawn(outputs(3), batch(*TWO))

    def loss(found):
        return weighted_sum(TERMS[-2:], found, true)[0]

    slopes = jax.jit(jax.grad(loss))(jax.tree.map(jnp.asarray, outputs(3)))
    for name in ("keypoint_embedding", "instance_embedding", "log_size"):
        reached = np.abs(slopes[name]).reshape(HEIGHT * WIDTH, -1).any(-1)
        expected = np.zeros(HEIGHT * WIDTH, bool)
        expected[np.asarray(true["cells"])[0, :2].ravel()] = True
        np.testing.assert_array_equal(reached, expected, err_msg=name)
