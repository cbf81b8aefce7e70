"""Losses of the bottom-up method, against values derived by hand."""

import functools
import math

import jax
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
    # Of the logarithm, with a bend at 0.1: error e costs e - 0.05.
    assert term("size", found, true) == pytest.approx(math.log(2) - 0.05, rel=1e-4)
    found["log_size"][:] = math.log(4) + 0.1
    assert term("size", found, true) == pytest.approx(0.05, rel=1e-4)


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


def second_class(found, true, terms=TERMS):
    return weighted_sum(terms[-1:], found, true)[1]


second_class_gradient = jax.jit(
    jax.grad(lambda found, true: sum(second_class(found, true).values()))
)


def test_gradients_reach_the_keypoints_and_nothing_else():
    true = drawn(outputs(3), batch(*TWO))
    slopes = second_class_gradient(outputs(3), true)
    for name in ("keypoint_embedding", "instance_embedding", "log_size"):
        reached = np.abs(slopes[name]).reshape(HEIGHT * WIDTH, -1).any(-1)
        expected = np.zeros(HEIGHT * WIDTH, bool)
        expected[np.asarray(true["cells"])[0, :2].ravel()] = True
        np.testing.assert_array_equal(reached, expected, err_msg=name)


@pytest.mark.parametrize("iterations", [1, 2, 6])
def test_gradients_go_through_each_iteration(iterations):
    """They are those of differences, so that no iteration is cut off."""
    terms = grouped_keypoints.terms(
        **dict.fromkeys(NAMES, 1.0), bandwidths=Bandwidths(), iterations=iterations
    )
    # So near each other that each iteration still moves the votes.
    found, along = outputs(5), outputs(6)
    row, column = np.indices((HEIGHT, WIDTH))
    to_centre = np.stack([np.where(row == 3, 3, 4) - column, 3 - row], axis=-1)
    found["instance_embedding"] = to_centre + 0.5 * found["instance_embedding"]
    found["keypoint_embedding"] *= 0.3
    near = (0, 16, [(2, 3), (4, 3)]), (0, 16, [(4, 2), (4, 4)])
    true = drawn(found, batch(*near))

    @jax.jit
    def loss(step):
        names = ("keypoint_embedding", "instance_embedding", "log_size")
        moved = found | {name: found[name] + step * along[name] for name in names}
        return second_class(moved, true, terms)["loss/auxiliary_instance"]

    step = 0.01
    expected = (loss(step) - loss(-step)) / (2 * step)
    assert abs(expected) > 0.03
    assert jax.jit(jax.grad(loss))(0.0) == pytest.approx(float(expected), rel=0.02)


@pytest.mark.parametrize("apart", [0.5, 1.0, 2.0, 3.0, 4.0])
def test_second_class_loss_does_not_make_look_alikes_more_alike(apart):
    found = outputs()
    found["log_size"][:] = math.log(4)
    true = batch((0, 16, [(2, 3), (4, 3)]), (0, 16, [(3, 2), (3, 4)]))
    votes, looks = found["instance_embedding"][0], found["keypoint_embedding"][0]
    for column, row in ((2, 3), (4, 3), (3, 2), (3, 4)):
        votes[row, column] = 3 - column, 3 - row  # one centre for both
    looks[3, 2, 0] = looks[3, 4, 0] = apart * 0.5
    true = drawn(found, true)
    slope = second_class_gradient(found, true)["keypoint_embedding"][0]
    further = slope[3, 2, 0] + slope[3, 4, 0] - slope[2, 3, 0] - slope[4, 3, 0]
    assert further < 1e-4
    assert (further < -0.001) == (apart > 2.5)  # where they are not yet one


@pytest.mark.parametrize("left_out", ["ke", "sie"])
def test_features_left_out_have_no_second_class_loss(left_out):
    true = drawn(outputs(4), batch(*TWO))
    bandwidths = Bandwidths()._replace(**{left_out: math.inf})
    terms = grouped_keypoints.terms(**dict.fromkeys(NAMES, 1.0), bandwidths=bandwidths)

    def losses(found):
        values = second_class(found, true, terms)
        return sum(values.values()), values

    gone, kept = "auxiliary_keypoint", "auxiliary_instance"
    if left_out == "sie":
        gone, kept = kept, gone
    slopes, found = jax.jit(jax.grad(losses, has_aux=True))(outputs(4))
    assert found[f"loss/{gone}"] == 0 < found[f"loss/{kept}"] < math.inf
    assert all(np.isfinite(slope).all() for slope in slopes.values())
    maps = {"ke": "keypoint_embedding", "sie": "instance_embedding"}
    assert not slopes[maps[left_out]].any()


def test_weights_are_those_of_their_terms():
    weights = {name: 2.0 ** (k - 2) for k, name in enumerate(NAMES)}
    terms = grouped_keypoints.terms(**weights, bandwidths=Bandwidths(ke=0.5, sie=0.2))
    found, true = outputs(7), batch(*TWO)
    ones = measured(found, true)
    got = jax.jit(lambda maps: weighted_sum(terms, maps, drawn(maps, true)))(found)
    assert got[1].keys() == {f"loss/{name}" for name in NAMES}
    for name, weight in weights.items():
        expected = weight * float(ones[f"loss/{name}"])
        assert expected > 0
        assert float(got[1][f"loss/{name}"]) == pytest.approx(expected, rel=1e-4)
    assert float(got[0]) == pytest.approx(sum(map(float, got[1].values())), rel=1e-5)


def test_areas_to_ignore_are_no_part_of_any_loss():
    true = batch(*TWO)
    true["ignore"][0, 3, 4] = 1  # the second keypoint of the first instance
    got = drawn(outputs(), true)
    assert got["there"][0, :2].tolist() == [[True, False], [True, True]]
    # Where the instance is does not change.
    np.testing.assert_allclose(got["centres"][0, 0], [3, 3])
    found = outputs(8)
    other = jax.tree.map(np.copy, found)
    other["heatmaps"][0, :, 3, 4] += 3
    for name in ("keypoint_embedding", "instance_embedding", "log_size"):
        other[name][0, 3, 4] += 3
    other["ordinal_maps"][0, 3, 4] -= 3
    for name, value in measured(found, true).items():
        assert value > 0
        assert float(measured(other, true)[name]) == pytest.approx(float(value)), name
    true["ignore"][:] = 1
    assert not any(measured(found, true).values())
    assert not any(slope.any() for slope in gradient(found, true).values())
