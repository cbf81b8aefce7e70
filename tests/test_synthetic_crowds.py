"""Synthetic crowds: numbers, places, depth, look-alikes, and labels on the bodies."""

import concurrent.futures
import functools
import multiprocessing
import pickle

import numpy as np
import pytest

from data_prep.synthetic import crowds
from data_prep.synthetic.crowds import Giants, LookAlikes, Scene, SyntheticCrowds
from facekp_jax.skeletons import AP10K, COCO

SOURCES = SyntheticCrowds, LookAlikes, Giants


@functools.cache
def pictures(source, count=40):
    """Records of a source, with the Scene and the actors that each shows."""
    made = []

    def keep(rng, side, actors, *rest):
        made.append((Scene(rng, side, actors, *rest), actors))
        return made[-1][0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(crowds, "Scene", keep)
        found = []
        for i in range(count):
            record = source(count, seed=11)[i]
            found.append((record, *made[-1]))
    return found


def rng():
    return np.random.default_rng(1)


def actor(person=True, size=80.0):
    made = crowds._actor(rng(), person, size)
    return made._replace(distance=5.0, rotation=np.eye(3)) if person else made


def scene(actors, centres, nearness, side=192):
    """Actors with the centre of their boxes at given points."""
    places = []
    for someone, centre, near in zip(actors, centres, nearness, strict=True):
        extent = someone.body.seen(someone.rotation, someone.distance).extent()
        scale = someone.size / (extent[2:] - extent[:2]).max()
        offset = np.array(centre) - scale * (extent[:2] + extent[2:]) / 2
        places.append(crowds._Place(scale, offset, near))
    return Scene(rng(), side, actors, places, 0.0)


def paints_of(scene, number):
    """bool [H, W], where the picture shows a body, by the numbers of its paints."""
    counts = [2 * len(body.materials) for body in scene.bodies]
    low = sum(counts[:number])
    return (scene.canvas.paints > low) & (scene.canvas.paints <= low + counts[number])


def assert_same_record(a, b):
    np.testing.assert_array_equal(a.image, b.image)
    assert (a.name, a.labelled) == (b.name, b.labelled)
    for one, other in zip(a.instances, b.instances, strict=True):
        assert (one.skeleton, one.area) == (other.skeleton, other.area)
        np.testing.assert_array_equal(one.keypoints, other.keypoints)
        np.testing.assert_array_equal(one.box, other.box)


# The sources


@pytest.mark.parametrize("make", SOURCES)
def test_a_record_depends_on_seed_and_index_only(make):
    short, long = make(4, seed=5), make(500, seed=5)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for i, record in enumerate(pool.map(long.__getitem__, reversed(range(4)))):
            assert_same_record(record, short[3 - i])
    assert_same_record(long[np.int64(3)], short[3])
    other = make(4, seed=6)[0]
    assert other.name != short[0].name and (other.image != short[0].image).any()


def test_a_source_travels_to_other_processes_as_its_settings():
    source = SyntheticCrowds(8, seed=5, least=2, most=3)
    assert len(pickle.dumps(source)) < 1000  # bytes
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, context) as pool:
        assert_same_record(pool.submit(source.__getitem__, 7).result(), source[7])


@pytest.mark.parametrize(
    "make, kind",
    [(SyntheticCrowds, "crowd"), (LookAlikes, "look-alikes"), (Giants, "giant")],
)
def test_length_end_and_what_consumers_ask_for(make, kind):
    source = make(3, seed=2)
    assert len(source) == len(list(source)) == 3
    for index in (3, -1):
        with pytest.raises(IndexError, match=f"{kind} {index} of a source of 3"):
            source[index]
    assert source[1].name == f"{kind}-2-000001"
    assert source.skeletons == (COCO, AP10K) and source.apply_exif is True
    expected = [(i, n) for i in range(3) for n in range(len(source[i].instances))]
    np.testing.assert_array_equal(source.instances, expected)
    assert source.instances.dtype == np.int64
    assert make(0).instances.shape == (0, 2)


@pytest.mark.parametrize(
    "make, least, most",
    [
        (SyntheticCrowds, 1, 6),
        (functools.partial(SyntheticCrowds, least=0, most=2), 0, 2),
        (functools.partial(SyntheticCrowds, least=4, most=4), 4, 4),
        (functools.partial(SyntheticCrowds, most=12), 1, 12),
        (LookAlikes, 2, 4),
        (Giants, 2, 4),
    ],
)
def test_every_number_of_instances_is_as_frequent(make, least, most):
    source = make(400, seed=3)
    assert source.max_instances == most
    counts = np.bincount(source.instances[:, 0], minlength=400)
    expected = 400 / (most - least + 1)
    frequency = np.bincount(counts, minlength=most + 1)
    assert not frequency[:least].any()
    assert (abs(frequency[least:] - expected) <= 4.5 * expected**0.5).all()


def test_nobody_and_the_most():
    empty = SyntheticCrowds(2, least=0, most=0)
    assert empty[0].instances == () and empty[0].image.std() > 1
    assert empty[0].labelled == ("coco", "ap10k") and empty.instances.shape == (0, 2)
    full = SyntheticCrowds(1, least=12, most=12)
    assert len(full[0].instances) == full.max_instances == 12


@pytest.mark.parametrize("side", [96, 192, 511])
def test_sizes_go_with_the_pictures(side):
    source = SyntheticCrowds(8, seed=1, least=3, most=3, side=side)
    for i in range(8):
        picture = source[i]
        assert picture.image.shape == (side, side, 3)
        sizes = np.array([(i.box[2:] - i.box[:2]).max() for i in picture.instances])
        # The camera cuts off a little, outlines are less than their extents.
        assert (sizes > 0.18 * side).all() and (sizes < 0.95 * side).all()


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"least": 3, "most": 2}, "least=3, most=2: crowds take from 0 to 12"),
        ({"least": -1}, "least=-1, most=6: crowds take from 0 to 12"),
        ({"most": 13}, "least=1, most=13: crowds take from 0 to 12"),
        ({"side": 95}, "side=95: crowds take pictures of 96 to 511 pixels"),
        ({"side": 512}, "side=512: crowds take pictures of 96 to 511 pixels"),
    ],
)
def test_settings_that_cannot_be(settings, message):
    with pytest.raises(ValueError, match=message):
        SyntheticCrowds(4, **settings)


# Labels


@pytest.mark.parametrize("make", SOURCES)
def test_shapes_types_and_ranges(make):
    for picture, _, _ in pictures(make):
        assert picture.image.shape == (192, 192, 3) and picture.image.dtype == np.uint8
        assert picture.labelled == ("coco", "ap10k")
        for instance in picture.instances:
            assert instance.skeleton in picture.labelled
            keypoints, box = instance.keypoints, instance.box
            assert keypoints.shape == (17, 3)
            assert keypoints.dtype == box.dtype == np.float32
            assert set(keypoints[:, 2]) <= {0, 1, 2}
            labelled = keypoints[:, 2] > 0
            assert (keypoints[~labelled] == 0).all()
            # A point may lie in a pixel whose centre the body does not cover.
            assert (keypoints[labelled, :2] >= box[:2] - 1).all()
            assert (keypoints[labelled, :2] <= box[2:] + 1).all()
            assert (box >= 0).all() and (box <= 192).all() and (box[:2] < box[2:]).all()
            assert 0 < instance.area < np.prod(box[2:] - box[:2])


@pytest.mark.parametrize("make", SOURCES)
def test_boxes_and_areas_are_those_of_the_outlines(make):
    for picture, scene, _ in pictures(make):
        for instance, outline in zip(picture.instances, scene.outlines, strict=True):
            rows, columns = np.nonzero(outline)
            box = columns.min(), rows.min(), columns.max() + 1, rows.max() + 1
            np.testing.assert_array_equal(instance.box, box)
            assert instance.area == len(rows)


@pytest.mark.parametrize("make", SOURCES)
def test_at_a_seen_keypoint_the_picture_shows_its_body(make):
    for picture, scene, _ in pictures(make):
        for number, instance in enumerate(picture.instances):
            shown = paints_of(scene, number)
            for x, y, visibility in instance.keypoints:
                rows, columns = (slice(max(int(v) - 1, 0), int(v) + 2) for v in (y, x))
                assert visibility < 2 or shown[rows, columns].any()


@pytest.mark.parametrize("make", SOURCES)
def test_keypoints_under_something_else_are_labelled_as_hidden(make):
    hidden = 0
    for picture, scene, _ in pictures(make):
        for number, instance in enumerate(picture.instances):
            other = (scene.canvas.paints > 0) & ~paints_of(scene, number)
            inside = instance.keypoints[:, 2] > 0
            x, y = instance.keypoints[inside, :2].astype(int).T
            under = other[y, x] & scene.outlines[number][y, x]
            assert (instance.keypoints[inside, 2][under] == 1).all()
            hidden += under.sum()
    assert hidden >= (0 if make is LookAlikes else 20)


@pytest.mark.parametrize("make", SOURCES)
def test_enough_of_each_instance_is_seen(make):
    for picture, scene, _ in pictures(make):
        for number, instance in enumerate(picture.instances):
            seen = paints_of(scene, number).sum() / instance.area
            assert seen >= 0.2
            assert (instance.keypoints[:, 2] == 2).sum() >= 4


def test_shares_of_seen_hidden_and_cut_off_keypoints():
    found = [
        i for picture, _, _ in pictures(SyntheticCrowds) for i in picture.instances
    ]
    visibility = np.concatenate([i.keypoints[:, 2] for i in found])
    assert 0 < np.mean(visibility == 0) < 0.03
    assert 0.15 < np.mean(visibility == 1) < 0.45


# Depth


def test_of_two_the_nearer_hides_the_other_in_either_order():
    one, other = actor(), actor(size=60.0)
    shown = {}
    for order in (1, -1):
        pair, centres = [one, other][::order], [(90, 96), (100, 100)][::order]
        made = scene(pair, centres, [5.0, 2.0][::order])
        shown[order] = [paints_of(made, n) for n in range(2)][::order]
        both = made.outlines[0] & made.outlines[1]
        assert both.sum() > 300
        assert shown[order][0][both].all() and not shown[order][1][both].any()
        near, far = made.instances[::order]
        x, y = far.keypoints[:, :2].astype(int).T
        under = both[y, x]
        assert under.sum() > 4 and (far.keypoints[under, 2] == 1).all()
        alone = scene([one], [(90, 96)], [0.0]).instances[0]
        np.testing.assert_allclose(near.keypoints, alone.keypoints, atol=1e-4)
    np.testing.assert_array_equal(*shown.values())


def test_nearness_decides_on_the_order_of_three():
    one = actor()
    made = scene([one] * 3, [(60, 96), (90, 96), (120, 96)], [1.0, 3.0, 2.0])
    depths = [body.points[:, 2].mean() for body in made.bodies]
    assert depths[1] < depths[2] < depths[0]


@pytest.mark.parametrize("seen, fair", [(0.21, True), (0.19, False)])
def test_a_scene_is_fair_if_a_fifth_of_each_outline_is_seen(seen, fair):
    made = scene([actor()], [(96, 96)], [0.0])
    rows, columns = np.nonzero(made.outlines[0])
    hidden = round((1 - seen) * len(rows))
    made.canvas.depth[rows[:hidden], columns[:hidden]] = -1e6
    assert made.fair() == fair


def test_a_scene_is_fair_unless_one_is_buried():
    one, small = actor(size=150.0), actor(size=40.0)
    beside, behind = [(60, 96), (150, 96)], [(96, 96), (96, 90)]
    assert scene([one, small], beside, [2.0, 1.0]).fair()
    assert not scene([one, small], behind, [2.0, 1.0]).fair()
    assert scene([one, small], behind, [1.0, 2.0]).fair()


def test_a_scene_is_unfair_if_fewer_than_four_keypoints_are_seen():
    one = actor()
    made = scene([one], [(96, 96)], [0.0])
    seen = np.flatnonzero(made.instances[0].keypoints[:, 2] == 2)
    for left in (4, 3):
        keypoints = made.instances[0].keypoints
        keypoints[seen, 2] = 2
        keypoints[seen[left:], 2] = 1
        assert made.fair() == (left == 4)


def test_boxes_centres_keep_their_distance():
    box, boxes = np.array([0, 0, 10, 20.0]), np.array([[30, 0, 40, 10.0]])
    # Centres (5, 10) and (35, 5), longer sides 20 and 10: their mean is 15.
    apart = np.hypot(30, 5) / 15
    assert crowds._distinct(box, boxes, apart - 1e-6)
    assert not crowds._distinct(box, boxes, apart + 1e-6)
    assert crowds._distinct(box, np.empty((0, 4)), 100.0)


def test_buried_under_the_boxes_in_front():
    boxes = np.array([[0, 0, 10, 10], [20, 0, 30, 10], [0, 0, 30, 10.0]])
    joints = np.full((3, 17, 2), 5.0)
    joints[1] = 25, 5
    joints[2, :9], joints[2, 9:] = (5, 5), (15, 5)
    # The third is behind both, and eight of its 17 joints lie between them.
    assert not crowds._buried(boxes, joints, np.array([2.0, 3.0, 1.0]))
    joints[2, 9:12] = 25, 5  # twelve are hidden: more than three of five
    assert crowds._buried(boxes, joints, np.array([2.0, 3.0, 1.0]))
    assert not crowds._buried(boxes[:1], joints[:1], np.zeros(1))
    assert crowds._buried(boxes, joints, np.array([2.0, 3.0, 4.0]))


def test_no_place_is_found_where_there_is_none():
    crowd = [actor(size=60.0)] * 12
    assert crowds._places(rng(), 192, crowd, apart=1.5) is None
    assert len(crowds._places(rng(), 192, crowd[:2], apart=1.5)) == 2
    assert crowds._places(rng(), 192, [], apart=1.5) == []


# Who is in a picture


@pytest.mark.parametrize("person", [True, False])
def test_the_mirrored_individual_is_the_mirror_image(person):
    one = actor(person)
    source = np.random.default_rng(0)
    mirrored = one
    while mirrored is one:
        mirrored = crowds._repeated(source, one)
    assert mirrored.who is one.who
    image, twin = (scene([who], [(96, 96)], [0.0]) for who in (one, mirrored))
    differ = np.mean(image.outlines[0] != twin.outlines[0][:, ::-1])
    assert differ < 0.002  # of all pixels: rounding at the rims
    mirror = np.array(one.skeleton.mirror)
    expected = image.instances[0].keypoints[mirror]
    expected[:, 0] = 192 - expected[:, 0]
    np.testing.assert_allclose(
        twin.instances[0].keypoints[:, :2], expected[:, :2], atol=1e-3
    )
    different = twin.instances[0].keypoints[:, 2] != expected[:, 2]
    assert different.sum() <= 1


def test_crowds_are_of_people_of_animals_and_of_both():
    kinds = [
        frozenset(i.skeleton for i in picture.instances)
        for picture, _, _ in pictures(SyntheticCrowds)
        if len(picture.instances) > 1
    ]
    for kind in ({"coco"}, {"ap10k"}, {"coco", "ap10k"}):
        assert np.mean([k == kind for k in kinds]) > 0.15


def test_crowds_overlap_and_differ_in_size():
    overlaps, ratios, sizes = [], [], []
    for picture, scene, _ in pictures(SyntheticCrowds):
        sides = [(i.box[2:] - i.box[:2]).max() for i in picture.instances]
        sizes += sides
        if len(sides) > 1:
            ratios.append(max(sides) / min(sides))
            overlaps.append((np.sum(scene.outlines, axis=0) > 1).any())
    assert 0.4 < np.mean(overlaps) < 0.95
    assert max(ratios) > 2.7 and max(ratios) < 4.6
    assert min(sizes) < 50 and max(sizes) > 140


def test_crowds_have_look_alikes_in_the_same_and_in_other_poses():
    alike, posed, pairs = 0, 0, 0
    for _, _, actors in pictures(SyntheticCrowds):
        for n, one in enumerate(actors[1:], 1):
            pairs += 1
            twins = [other for other in actors[:n] if other.who is one.who]
            alike += bool(twins)
            posed += any(
                np.allclose(
                    np.abs(np.array(one.body.points)), np.abs(np.array(o.body.points))
                )
                for o in twins
            )
    assert 0.25 < alike / pairs < 0.55
    assert 0.3 < posed / alike < 0.7


def test_look_alikes_are_identical_and_far_apart():
    mirrored = 0
    for _, scene, actors in pictures(LookAlikes):
        first, *rest = actors
        size = first.size
        assert 0.22 * 192 < size < 0.31 * 192
        for other in rest:
            assert other.who is first.who and other.size == size
            points = np.array(other.body.points)
            sign = np.sign(points[:, 0] @ np.array(first.body.points)[:, 0])
            mirrored += sign < 0
            np.testing.assert_allclose(points * (sign, 1, 1), first.body.points)
        assert not (np.sum(scene.outlines, axis=0) > 1).any()
        boxes = [body.extent() for body in scene.bodies]
        centres = np.array([(box[:2] + box[2:]) / 2 for box in boxes])
        offsets = centres[:, None] - centres + 1e6 * np.eye(len(centres))[..., None]
        assert np.hypot(*offsets.T).min() >= 1.69 * size
    assert mirrored > 20


def test_look_alikes_show_the_same_colours():
    for picture, scene, _ in pictures(LookAlikes):
        shares = []
        for number, outline in enumerate(scene.outlines):
            count = 2 * len(scene.bodies[number].materials)
            paints = scene.canvas.paints[outline] - count * number - 1
            shares.append(np.bincount(paints, minlength=count) / len(paints))
        # The picture's border may cut off a part of one colour.
        inside = [
            (i.box[:2] > 0).all() and (i.box[2:] < 192).all() for i in picture.instances
        ]
        whole = np.array(shares)[inside]
        assert whole.size == 0 or np.ptp(whole, axis=0).max() < 0.06


def test_of_giants_one_is_large_and_the_rest_is_small():
    for picture, _, actors in pictures(Giants):
        giant, *small = [(i.box[2:] - i.box[:2]).max() for i in picture.instances]
        assert giant > 0.8 * 192
        assert max(small) < 0.35 * 192
        assert len({i.skeleton for i in picture.instances}) == 1
        assert len({id(one.who) for one in actors}) == len(actors)
