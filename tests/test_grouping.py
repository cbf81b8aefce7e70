"""Decoding: perfect maps give the truth; clusters hold where one cue alone fails."""

import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from facekp_jax import grouping, skeletons
from facekp_jax.grouping import Bandwidths, Peaks

STRIDE = 4
BANDWIDTHS = Bandwidths()
find = jax.jit(grouping.peaks, static_argnums=1, static_argnames=("stride", "sigma"))
shift = jax.jit(grouping.mean_shift, static_argnums=2)
assign = jax.jit(grouping.assign, static_argnums=2)
decode = jax.jit(
    grouping.group, static_argnums=4, static_argnames=("instances", "candidates")
)


def gaussians(centres, size, sigma=1.0):
    """Maps [C, h, w] of points [C, n, 2] in cells; NaN is none."""
    y, x = np.mgrid[: size[0], : size[1]]
    distance = (x - centres[..., :1, None]) ** 2 + (y - centres[..., 1:, None]) ** 2
    maps = np.exp(-distance / 2 / sigma**2)
    return np.nan_to_num(maps).max(1, initial=0).astype(np.float32)


def scene(rng, count, keypoints, size):
    """Points [P, K, 2]; those of two instances are at least 8 pixels apart."""
    extent = STRIDE * np.array(size[::-1])
    points = np.full((count, keypoints, 2), np.nan)
    for own in points:
        others = points.reshape(-1, 2)
        spread = rng.uniform(10, 50)
        done = 0
        while done < keypoints:
            if done == 0:
                middle = rng.uniform(0, extent)
            point = middle + rng.normal(0, spread, 2)
            near = np.linalg.norm(others - point, axis=-1) < 8
            if ((point >= 0) & (point <= extent)).all() and not near.any():
                own[done] = point
                done += 1
            elif rng.random() < 0.01:
                done = 0
                own[:] = np.nan
            others = points[np.isfinite(points).all((1, 2))].reshape(-1, 2)
    return points


def perfect_maps(rng, points, size, embedding=8):
    """What a network that makes no error gives; NaN is a keypoint that is not there."""
    cells = points / STRIDE - 0.5
    count, keypoints = points.shape[:2]
    heatmaps = gaussians(cells.swapaxes(0, 1), size)
    if not count:
        empty = (np.zeros((*size, n), np.float32) for n in (embedding, 2))
        return heatmaps, *empty, np.zeros(size, np.float32)
    y, x = np.mgrid[: size[0], : size[1]]
    flat = cells.reshape(-1, 2)
    distance = (x[..., None] - flat[:, 0]) ** 2 + (y[..., None] - flat[:, 1]) ** 2
    nearest = np.nan_to_num(distance, nan=np.inf).argmin(-1) // keypoints
    looks = 4 * rng.normal(size=(count, embedding))
    centres = np.nanmean(cells, axis=1)
    extent = np.nanmax(cells, axis=1) - np.nanmin(cells, axis=1)
    log_sizes = np.log(np.maximum(extent.max(-1), 1))
    to_centre = centres[nearest] - np.stack([x, y], axis=-1)
    fields = looks[nearest], to_centre, log_sizes[nearest]
    return heatmaps, *(field.astype(np.float32) for field in fields)


def check_groups(groups, points, atol=0.1):
    """The groups are the instances [P, K, 2], in any order."""
    valid = np.asarray(groups.valid)
    assert valid.sum() == len(points)
    found = np.where(groups.scores[..., None] > 0, groups.points, np.nan)[valid]
    left = list(range(len(points)))
    for instance in found:
        distance = np.abs(points[left] - instance).max(-1)
        best = left.pop(np.nan_to_num(distance, nan=50).mean(-1).argmin())
        np.testing.assert_allclose(instance, points[best], atol=atol)


@pytest.mark.parametrize("missing", [0, 0.05])
@pytest.mark.parametrize("count", [0, 1, 2, 30])
def test_perfect_maps_give_the_truth(count, missing):
    rng = np.random.default_rng(count)
    points = scene(rng, count, 17, (128, 128))
    points[rng.random(points.shape[:2]) < missing] = np.nan
    maps = perfect_maps(rng, points, (128, 128))
    groups = decode(*maps, (skeletons.COCO,), instances=32, candidates=40)
    assert groups.points.shape == (32, 17, 2)
    check_groups(groups, points)
    there = np.isfinite(points[..., 0]).mean(-1)
    np.testing.assert_allclose(groups.score[:count], sorted(there)[::-1], atol=1e-3)
    assert not np.asarray(groups.points)[np.asarray(groups.scores) == 0].any()


def test_decoding_a_full_picture_takes_20_ms_of_one_core():
    rng = np.random.default_rng(0)
    points = scene(rng, 30, 17, (128, 128))
    maps = jax.device_put(perfect_maps(rng, points, (128, 128)))

    def seconds():
        start = time.process_time()  # of all threads; others' load does not count
        settings = {"instances": 32, "candidates": 40}
        jax.block_until_ready(decode(*maps, (skeletons.COCO,), **settings))
        return time.process_time() - start

    seconds()
    assert np.median([seconds() for _ in range(30)]) <= 0.020


def test_types_do_not_mix_and_share_the_room():
    rng = np.random.default_rng(0)
    size = (64, 80)
    types = (skeletons.ATRW, skeletons.COCO)
    counts = [len(skeleton.keypoints) for skeleton in types]
    everyone = scene(rng, 5, max(counts), size)
    everyone[:2, counts[0] :] = np.nan
    *fields, log_size = perfect_maps(rng, everyone, size)[1:]
    heatmaps = np.concatenate(
        [
            perfect_maps(rng, part[:, :count], size)[0]
            for part, count in zip((everyone[:2], everyone[2:]), counts, strict=True)
        ]
    )
    maps = (heatmaps, *fields, log_size)
    groups = decode(*maps, types, instances=8, candidates=8)
    check_groups(groups, everyone)
    for number, part in enumerate((everyone[:2], everyone[2:])):
        own = (groups.skeleton == number) & groups.valid
        check_groups(jax.tree.map(lambda a, own=own: a[own], groups), part)
    few = decode(*maps, types, instances=3, candidates=8)
    assert few.points.shape == (3, 17, 2) and few.valid.all()


def test_channels_that_are_not_the_keypoints_are_refused():
    maps = perfect_maps(None, np.zeros((0, 15, 2)), (8, 8))
    with pytest.raises(ValueError, match="15 heatmaps for the 17 keypoints of coco"):
        decode(*maps, (skeletons.COCO,), instances=2, candidates=2)


def test_a_batch_is_decoded_as_each_picture_alone():
    rng = np.random.default_rng(3)
    scenes = [scene(rng, 3, 17, (32, 40)) for _ in range(2)]
    pictures = [perfect_maps(rng, points, (32, 40)) for points in scenes]

    def one(*maps):
        return grouping.group(*maps, (skeletons.COCO,), instances=4, candidates=5)

    batch = jax.jit(jax.vmap(one))(*map(np.stack, zip(*pictures, strict=True)))
    for k, points in enumerate(scenes):
        check_groups(jax.tree.map(lambda a, k=k: a[k], batch), points)


def test_a_peak_by_hand():
    # Log-levels 0.8 exp(-d^2 / 2) around (2.25, 1): 0.25 and 0.75 from the columns.
    centre = np.array([[[2.25, 1.0]]])
    found = find(0.8 * gaussians(centre, (4, 6)), 3)
    np.testing.assert_allclose(found.points[0, 0], [4 * 2.75, 4 * 1.5], atol=1e-3)
    np.testing.assert_allclose(found.scores, [[0.8, 0, 0]], rtol=1e-4)
    np.testing.assert_array_equal(found.cells, [[1 * 6 + 2, 0, 0]])
    assert not found.points[0, 1:].any()


@pytest.mark.parametrize("sigma", [0.7, 1.0, 1.5, 2.5])
@pytest.mark.parametrize("size", [(16, 12), (9, 7), (3, 3)])
def test_peaks_of_any_width_are_unbiased_up_to_the_borders(sigma, size):
    rng = np.random.default_rng(0)
    extent = np.array(size[::-1])
    share = rng.random((200, 1, 2))
    kind = rng.integers(0, 3, share.shape)
    share = np.choose(kind, [share, 0.0, 1.0])  # in between, and on each border
    cells = share * extent - 0.5
    found = find(gaussians(cells, size, sigma), 2)
    np.testing.assert_array_equal((found.scores > 0).sum(-1), 1)
    expected = (cells[:, 0] + 0.5) * STRIDE
    np.testing.assert_allclose(found.points[:, 0], expected, atol=0.1)


def test_two_of_a_keypoint_8_pixels_apart_wherever_the_cells_are():
    rng = np.random.default_rng(0)
    one = rng.uniform(4, 13, (500, 2))
    one[:16] = np.stack(np.meshgrid(np.arange(4), np.arange(4)), -1).reshape(-1, 2) / 4
    one[:16] += 6
    angle = rng.uniform(0, 2 * np.pi, 500)
    angle[:16] = np.pi / 4  # cells of the two touch at a corner
    other = one + 2.001 * np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    pair = np.stack([one, other], axis=1)
    found = find(gaussians(pair, (18, 18)), 4)
    np.testing.assert_array_equal((found.scores > 0).sum(-1), 2)
    points = (pair + 0.5) * STRIDE
    distance = np.linalg.norm(found.points[:, :2, None] - points[:, None], axis=-1)
    assert distance.min(1).max() <= 0.1
    np.testing.assert_array_equal(np.sort(distance.argmin(1)), [[0, 1]] * 500)


@pytest.mark.parametrize("fill", [0.0, 0.5, 1.0, np.nan, -np.inf])
def test_a_flat_map_has_no_peak(fill):
    found = find(jnp.full((2, 5, 6), fill), 3)
    for part in found:
        assert not part.any()


def test_maps_with_fewer_cells_than_candidates_and_too_small_ones():
    found = find(gaussians(np.array([[[1.0, 1.0]]]), (3, 3)), 50)
    assert found.points.shape == (1, 50, 2) and (found.scores > 0).sum() == 1
    with pytest.raises(ValueError, match="maps of 2 x 9 cells"):
        find(jnp.zeros((1, 2, 9)), 3)


def test_the_best_candidates_are_kept_and_the_least_is_asked_for():
    centres = np.array([[[3.0, 3.0], [9.0, 3.0], [3.0, 9.0], [9.0, 9.0]]])
    maps = [
        p * gaussians(centres[:, k : k + 1], (13, 13))
        for k, p in enumerate([0.05, 0.9, 0.3, 0.6])
    ]
    found = find(np.max(maps, axis=0), 2)
    np.testing.assert_allclose(found.scores, [[0.9, 0.6]], rtol=1e-3)
    found = find(np.max(maps, axis=0), 4)
    np.testing.assert_allclose(found.scores, [[0.9, 0.6, 0.3, 0]], rtol=1e-3)


def test_features_by_hand():
    looks = np.arange(12, dtype=np.float32).reshape(2, 3, 2)
    to_centre = np.full((2, 3, 2), [10, 20], np.float32)
    log_size = np.arange(6, dtype=np.float32).reshape(2, 3)
    cells = jnp.array([[5, 1]])  # (2, 1) and (1, 0)
    got = grouping.features(cells, looks, to_centre, log_size, Bandwidths(2, 0.1))
    expected = [[[5, 5.5, 120, 210, 5], [1, 1.5, 110, 200, 1]]]
    np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_affinity_is_the_documented_kernel():
    rng = np.random.default_rng(0)
    looks = rng.normal(size=(40, 3))
    votes = rng.uniform(0, 30, (40, 2))
    sizes = np.exp(rng.uniform(0, 4, 40))
    values = grouping.fuse(looks, votes, np.log(sizes), Bandwidths(1.5, 0.3))
    got = grouping.affinity(values, values[:25])
    looks_apart = ((looks[:, None] - looks[:25]) ** 2).sum(-1) / 1.5**2
    votes_apart = ((votes[:, None] - votes[:25]) ** 2).sum(-1) / 0.3**2
    votes_apart /= sizes[:, None] * sizes[:25]
    np.testing.assert_allclose(
        got, np.exp(-(looks_apart + votes_apart) / 2), rtol=2e-3, atol=1e-6
    )
    np.testing.assert_allclose(got[:25], got[:25].T, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("bandwidths", [Bandwidths(np.inf, 0.3), Bandwidths(1, np.inf)])
def test_an_infinite_bandwidth_leaves_a_feature_class_out(bandwidths):
    looks, votes = jnp.array([[0.0], [50.0]]), jnp.array([[0.0, 0.0], [90.0, 0.0]])
    same = jnp.zeros_like
    log_size = jnp.ones(2)
    for ke, sie in ((looks, same(votes)), (same(looks), votes)):
        values = grouping.fuse(ke, sie, log_size, bandwidths)
        left_out = ke.any() == np.isinf(bandwidths.ke)
        assert (grouping.affinity(values, values)[0, 1] == 1) == left_out


def test_a_step_of_the_mean_shift_by_hand():
    values = jnp.array([[0.0, 0, 0, 0], [1.0, 0, 0, 0], [7.0, 0, 0, 0]])
    near = np.exp(-0.5)
    got = shift(values, jnp.array([1.0, 3.0, 0.0]), 1)
    expected = [3 * near / (1 + 3 * near), 3 / (near + 3), 7]
    np.testing.assert_allclose(got[:, 0], expected, rtol=1e-5)


def test_the_mean_shift_finds_modes_and_leaves_the_masked_alone():
    rng = np.random.default_rng(0)
    values = np.zeros((30, 7), np.float32)
    values[:, :4] = rng.normal(0, 0.3, (30, 4)) + 5 * (np.arange(30) % 2)[:, None]
    values[28:] = np.nan
    weights = np.where(np.arange(30) < 28, 1, 0).astype(np.float32)
    got = np.asarray(shift(values, weights, 8))
    assert np.ptp(got[0:28:2], axis=0).max() < 1e-3
    assert np.ptp(got[1:28:2], axis=0).max() < 1e-3
    np.testing.assert_allclose(
        got[:2, 0], values[:28, 0].reshape(-1, 2).mean(0), atol=0.02
    )
    assert np.isnan(got[28:]).all()
    alone = shift(values[:28], weights[:28], 8)
    np.testing.assert_allclose(alone, got[:28], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_few_values(count):
    values = jnp.ones((count, 6)) * 3
    np.testing.assert_allclose(shift(values, jnp.ones(count), 4), values, rtol=1e-6)
    np.testing.assert_array_equal(shift(values, jnp.zeros(count), 4), values)


def clusters(seed=0, count=24):
    rng = np.random.default_rng(seed)
    looks = rng.normal(0, 0.4, (count, 2)) + 2 * (np.arange(count) % 2)[:, None]
    votes = rng.normal(0, 1, (count, 2))
    return looks, votes, rng.normal(2, 0.1, count)


@jax.jit
def spread(looks, votes, log_size, weights):
    values = grouping.fuse(looks, votes, log_size, BANDWIDTHS)
    return (shift(values, weights, 4)[::2, :4] ** 2).sum()


spread_gradients = jax.jit(jax.grad(spread, argnums=(0, 1, 2)))


def test_gradients_flow_through_all_iterations():
    parts = list(map(np.float32, clusters()))
    weights = np.linspace(0.2, 1, 24, dtype=np.float32)
    weights[5] = 0
    for k, gradient in enumerate(spread_gradients(*parts, weights)):
        slope = np.linalg.norm(gradient)
        step = 0.02 * gradient / slope
        ends = [
            spread(*parts[:k], parts[k] + sign * step, *parts[k + 1 :], weights)
            for sign in (1, -1)
        ]
        np.testing.assert_allclose((ends[0] - ends[1]) / 0.04, slope, rtol=0.02)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("case", ["same", "far", "none", "one", "huge", "NaN"])
def test_gradients_are_finite(case, masked):
    looks, votes, log_size = map(np.float32, clusters())
    weights = np.ones(24, np.float32)
    if case == "same":
        looks[:], votes[:], log_size[:] = 1, 2, 3
    elif case == "far":
        looks *= 1e3
    elif case == "none":
        weights[:] = 0
    elif case == "one":
        weights[1:] = 0
    elif case == "huge":
        log_size[:] = np.linspace(-500, 500, 24)
    else:
        looks[3], votes[3], log_size[3], weights[3] = np.nan, np.nan, np.nan, 0
    if masked:
        weights[::3] = 0
    for gradient in spread_gradients(looks, votes, log_size, weights):
        assert np.isfinite(gradient).all()


class Crowd:
    """Candidates [K, n] of n instances, without maps."""

    def __init__(self, keypoints=17, seed=0):
        self.rng = np.random.default_rng(seed)
        self.keypoints = keypoints
        self.parts = []

    def add(self, looks, centre, size, scatter=0.0):
        """One instance; scatter is the votes' deviation, as a share of its size."""
        count = (self.keypoints, 1)
        scores = self.rng.uniform(0.5, 1, count)
        votes = centre + scatter * size * self.rng.normal(size=(*count, 2))
        looks = looks + self.rng.normal(0, 0.1, (*count, len(looks)))
        log_size = np.log(size) + self.rng.normal(0, 0.1, count)
        points = np.full((*count, 2), float(len(self.parts)))
        self.parts.append((scores, looks, votes, log_size, points))

    def groups(self, bandwidths=BANDWIDTHS, order=None, instances=8):
        """For each group the instance that each keypoint is of, -1 where none."""
        scores, looks, votes, log_size, points = (
            np.concatenate(part, axis=1).astype(np.float32)
            for part in zip(*self.parts, strict=True)
        )
        values = grouping.fuse(looks, votes, log_size, bandwidths)
        if order is not None:
            pick = np.arange(self.keypoints)[:, None], order
            points, scores, values = points[pick], scores[pick], values[pick]
        found = Peaks(points, scores, np.zeros(scores.shape, int))
        flat = values.reshape(-1, values.shape[-1])
        modes = shift(flat, scores.reshape(-1), 8).reshape(values.shape)
        groups = assign(found, modes, instances)
        return np.where(groups.scores > 0, groups.points[..., 0], -1)[groups.valid]


def check_whole(got, count):
    np.testing.assert_array_equal(
        sorted(got.tolist()), [[k] * 17 for k in range(count)]
    )


@pytest.mark.parametrize("seed", range(5))
def test_one_very_large_instance_is_not_split(seed):
    crowd = Crowd(seed=seed)
    crowd.add([0, 0], (64, 64), size=100, scatter=0.12)
    crowd.add([4, 0], (64, 64), size=8, scatter=0.12)  # in the midst of it
    crowd.add([0, 4], (20, 20), size=8, scatter=0.12)
    check_whole(crowd.groups(), 3)
    # Votes in cells alone would be one cluster for each keypoint of the large one.
    crowd.parts = [(*p[:3], np.full_like(p[3], np.log(8)), p[4]) for p in crowd.parts]
    assert len(crowd.groups()) > 3


def test_look_alikes_far_apart_are_not_merged():
    crowd = Crowd()
    crowd.add([1, 1], (30, 60), size=20, scatter=0.05)
    crowd.add([1, 1], (90, 60), size=20, scatter=0.05)
    check_whole(crowd.groups(), 2)
    merged = crowd.groups(Bandwidths(1.0, np.inf))
    assert any(len(set(group)) > 1 for group in merged.tolist())


def test_two_that_share_their_centre_are_told_apart_by_their_looks():
    crowd = Crowd()
    crowd.add([0, 0], (60, 60), size=20, scatter=0.05)
    crowd.add([4, 0], (60, 60), size=20, scatter=0.05)
    check_whole(crowd.groups(), 2)
    mixed = crowd.groups(Bandwidths(np.inf, 0.2))
    assert any(len(set(group)) > 1 for group in mixed.tolist())


def test_the_order_of_candidates_changes_nothing():
    crowd = Crowd(seed=4)
    for k, looks in enumerate([[0, 0], [4, 0], [0, 4], [1, 1], [3, 3]]):
        crowd.add(looks, (20 * k, 50), size=20, scatter=0.15)
    expected = crowd.groups()
    for seed in range(3):
        rng = np.random.default_rng(seed)
        order = rng.permuted(np.tile(np.arange(5), (17, 1)), axis=1)
        np.testing.assert_array_equal(crowd.groups(order=order), expected)


def test_of_two_candidates_for_a_keypoint_the_better_belongs_to_the_instance():
    values = jnp.zeros((2, 2, 5))
    points = jnp.arange(8.0).reshape(2, 2, 2)
    scores = jnp.array([[0.4, 0.9], [0.8, 0.0]])
    groups = assign(Peaks(points, scores, jnp.zeros((2, 2), int)), values, 3)
    # The other is left over, for another instance.
    np.testing.assert_allclose(groups.scores, [[0.9, 0.8], [0.4, 0], [0, 0]])
    np.testing.assert_allclose(groups.points[0], [[2, 3], [4, 5]])
    np.testing.assert_allclose(groups.points[1], [[0, 1], [0, 0]])
    np.testing.assert_allclose(groups.score, [0.85, 0.2, 0], rtol=1e-6)
    np.testing.assert_array_equal(groups.valid, [True, True, False])


def test_the_instances_with_the_most_evidence_come_first_when_there_is_no_room():
    crowd = Crowd()
    for k in range(4):
        crowd.add([5 * k, 0], (40 * k, 50), size=20)
    crowd.parts[2][0][:] = 0.2
    crowd.parts[1][0][5:] = 0
    got = crowd.groups(instances=2)
    assert sorted(group[0] for group in got) == [0, 3]


def test_no_candidates_are_no_instances():
    found = Peaks(jnp.zeros((3, 2, 2)), jnp.zeros((3, 2)), jnp.zeros((3, 2), int))
    groups = assign(found, jnp.full((3, 2, 5), jnp.nan), 4)
    assert not groups.valid.any()
    assert np.isfinite(groups.points).all() and not groups.scores.any()
