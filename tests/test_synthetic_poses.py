"""Synthetic poses: exact, hidden where they say so, varied, and not trivial."""

import concurrent.futures
import functools
import math
import multiprocessing
import pickle

import numpy as np
import pytest

from data_prep.synthetic import pose_animals, pose_people, pose_scene
from data_prep.synthetic.pose_animals import Animal
from data_prep.synthetic.pose_bodies import Body, nod, spin, tilt
from data_prep.synthetic.pose_canvas import Canvas, Material
from data_prep.synthetic.pose_people import Person, PersonPose
from data_prep.synthetic.poses import Scene, SyntheticPoses
from facekp_jax.skeletons import AP10K, COCO

PLAIN = Material((200.0, 120.0, 60.0))
STANDING = PersonPose(
    lean=(0, 0, 0),
    head=(0, 0, 0),
    arms=((0, 0.2, 0, 0.1),) * 2,
    legs=((0, 0.1, 0, 0),) * 2,
)


@functools.cache
def pictures(count=120):
    source = SyntheticPoses(count, seed=11)
    return [source[i] for i in range(count)]


@functools.cache
def scenes(count=24):
    made = [Scene(np.random.default_rng((3, i)), i % 2 == 0) for i in range(count)]
    for scene in made:
        scene.draw()
    return made


def instances(skeleton):
    found = [picture.instances[0] for picture in pictures()]
    return [instance for instance in found if instance.skeleton == skeleton.name]


def rng():
    return np.random.default_rng(1)


def assert_same_record(a, b):
    np.testing.assert_array_equal(a.image, b.image)
    assert (a.name, a.labelled) == (b.name, b.labelled)
    for one, other in zip(a.instances, b.instances, strict=True):
        assert (one.skeleton, one.area) == (other.skeleton, other.area)
        np.testing.assert_array_equal(one.keypoints, other.keypoints)
        np.testing.assert_array_equal(one.box, other.box)


# The source


def test_a_record_depends_on_seed_and_index_only():
    short, long = SyntheticPoses(8, seed=5), SyntheticPoses(500, seed=5)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for i, record in enumerate(pool.map(long.__getitem__, reversed(range(8)))):
            assert_same_record(record, short[7 - i])
    assert_same_record(long[np.int64(3)], short[3])
    other = SyntheticPoses(8, seed=6)[0]
    assert other.name != short[0].name
    assert other.image.shape != short[0].image.shape or (
        (other.image != short[0].image).any()
    )


def test_a_source_travels_to_other_processes_as_its_settings():
    source = SyntheticPoses(8, seed=5)
    assert len(pickle.dumps(source)) < 1000  # bytes
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, context) as pool:
        assert_same_record(pool.submit(source.__getitem__, 7).result(), source[7])


def test_length_end_and_what_consumers_ask_for():
    source = SyntheticPoses(3, seed=0)
    assert len(source) == len(list(source)) == 3
    with pytest.raises(IndexError, match="pose 3 of a source of 3"):
        source[3]
    assert source.skeletons == (COCO, AP10K)
    assert source.apply_exif is True and source.max_instances == 1
    np.testing.assert_array_equal(source.instances, [(0, 0), (1, 0), (2, 0)])
    assert SyntheticPoses(0).instances.shape == (0, 2)


def test_people_and_animals_alternate_without_a_period():
    names = [picture.instances[0].skeleton for picture in pictures()]
    for i in range(0, len(names), 2):
        assert set(names[i : i + 2]) == {"coco", "ap10k"}
    for step in (2, 4, 8):
        for start in range(step):
            assert 0.3 < np.mean([n == "coco" for n in names[start::step]]) < 0.7


def test_shapes_types_and_ranges():
    for picture in pictures():
        height, width, channels = picture.image.shape
        assert picture.image.dtype == np.uint8 and channels == 3
        assert 120 <= height <= 176 and 120 <= width <= 176
        assert picture.labelled == ("coco", "ap10k")
        (instance,) = picture.instances
        assert instance.keypoints.shape == (17, 3)
        assert instance.keypoints.dtype == instance.box.dtype == np.float32
        assert set(instance.keypoints[:, 2]) <= {0, 1, 2}
        assert instance.keypoints[:, 2].any()
        x0, y0, x1, y1 = instance.box
        assert 0 <= x0 < x1 <= width and 0 <= y0 < y1 <= height
        assert 0.4 < max((x1 - x0) / width, (y1 - y0) / height) <= 1
        assert 0.1 * (x1 - x0) * (y1 - y0) < instance.area < (x1 - x0) * (y1 - y0)
    assert len({picture.image.shape for picture in pictures()}) > 60


def test_labels_lie_in_the_picture_and_in_the_box():
    for picture in pictures():
        height, width = picture.image.shape[:2]
        (instance,) = picture.instances
        labelled = instance.keypoints[:, 2] > 0
        assert (instance.keypoints[~labelled] == 0).all()
        points = instance.keypoints[labelled, :2]
        assert (points >= 0).all() and (points <= (width, height)).all()
        # A point may lie in a pixel whose centre the body does not cover.
        assert (points >= instance.box[:2] - 1).all()
        assert (points <= instance.box[2:] + 1).all()


def test_shares_of_seen_hidden_and_cut_off_keypoints():
    for skeleton in (COCO, AP10K):
        visibility = np.stack([i.keypoints[:, 2] for i in instances(skeleton)])
        assert 0 < np.mean(visibility == 0) < 0.04
        assert 0.3 < np.mean(visibility == 1) < 0.55
        assert (np.mean(visibility == 2, axis=0) > 0.2).all()
        assert (np.mean(visibility == 1, axis=0) > 0.05).all()


def test_occluders_hide_a_share_that_matters(monkeypatch):
    complete = [i for s in (COCO, AP10K) for i in instances(s)]
    monkeypatch.setattr(pose_scene, "occlude", lambda *arguments: None)
    source = SyntheticPoses(len(complete), seed=11)
    bare = [source[i].instances[0] for i in range(len(source))]
    bare = [i for s in (COCO, AP10K) for i in bare if i.skeleton == s.name]
    seen = np.stack([i.keypoints[:, 2] == 2 for i in bare])
    still = np.stack([i.keypoints[:, 2] == 2 for i in complete])
    assert not (still & ~seen).any()
    assert 0.12 < 1 - still.sum() / seen.sum() < 0.27
    for one, other in zip(bare, complete, strict=True):
        np.testing.assert_array_equal(one.keypoints[:, :2], other.keypoints[:, :2])
        np.testing.assert_array_equal(one.box, other.box)
        assert one.area == other.area


@pytest.mark.parametrize("skeleton", [COCO, AP10K])
def test_the_mean_pose_in_the_box_is_a_poor_guess(skeleton):
    found = instances(skeleton)
    keypoints = np.stack([i.keypoints for i in found])
    boxes = np.stack([i.box for i in found])
    corner, size = boxes[:, None, :2], boxes[:, None, 2:] - boxes[:, None, :2]
    labelled = keypoints[..., 2] > 0
    within = np.where(labelled[..., None], (keypoints[..., :2] - corner) / size, 0)
    half = len(found) // 2
    mean = within[:half].sum(0) / labelled[:half].sum(0)[:, None]
    offset = corner + mean * size - keypoints[..., :2]
    error = np.hypot(offset[..., 0], offset[..., 1]) / size.max(-1)
    assert np.mean(error[half:][labelled[half:]] < 0.05) < 0.3


# Positions


@pytest.mark.parametrize("kind", ["limb", "ellipsoid"])
def test_shapes_lie_where_their_coordinates_say(kind):
    errors = []
    for x, y in 18 + np.stack(np.mgrid[0.05:1:0.1, 0.05:1:0.1], -1).reshape(-1, 2):
        canvas = Canvas(rng(), 40, 40)
        outline = np.zeros((40, 40), bool)
        if kind == "ellipsoid":
            axes = np.diag([9.0, 6.0, 3.0])
            canvas.ellipsoid((x, y, 0), axes, canvas.add(PLAIN), outline)
            area = math.pi * 9 * 6
        else:
            ends = (x - 4, y - 3, 0), (x + 4, y + 3, 0)
            canvas.limb(*ends, 6, 6, canvas.add(PLAIN), outline)
            area = math.pi * 6**2 + 10 * 12
        np.testing.assert_array_equal(canvas.paints > 0, outline)
        assert outline.sum() == pytest.approx(area, rel=0.05)
        rows, columns = np.nonzero(outline)
        errors.append((columns.mean() + 0.5 - x, rows.mean() + 0.5 - y))
    np.testing.assert_allclose(errors, 0, atol=0.2)
    np.testing.assert_allclose(np.mean(errors, 0), 0, atol=0.01)


def test_flat_covers_lie_where_their_coordinates_say():
    canvas = Canvas(rng(), 40, 40)
    canvas.cover([[(10, 5), (30, 5), (30, 15), (10, 15)]], PLAIN)
    rows, columns = np.nonzero(canvas.paints)
    # OpenCV draws the border too: half a pixel more on each side, never less.
    assert (columns.min(), columns.max()) == pytest.approx((9.5, 29.5), abs=0.5)
    assert (rows.min(), rows.max()) == pytest.approx((4.5, 14.5), abs=0.5)


def front(body, x, y):
    """z in front at (x, y), by trying all spheres and points: not the canvas's way."""
    best = np.inf
    for (a, b), (ra, rb) in zip(body.bones, body.radii, strict=True):
        t = np.linspace(0, 1, 400)[:, None]
        centres = body.points[a] + t * (body.points[b] - body.points[a])
        radii = ra + t[:, 0] * (rb - ra)
        room = radii**2 - ((centres[:, :2] - (x, y)) ** 2).sum(1)
        near = room > 0
        if near.any():
            best = min(best, (centres[near, 2] - np.sqrt(room[near])).min())
    for centre, axes in zip(body.points[body.lumps], body.lump_axes, strict=True):
        z = centre[2] + np.linspace(-1, 1, 2001) * np.sqrt((axes[:, 2] ** 2).sum())
        offset = np.stack(np.broadcast_arrays(x, y, z), 1) - centre
        inside = ((offset @ np.linalg.inv(axes)) ** 2).sum(1) <= 1
        if inside.any():
            best = min(best, z[inside].min())
    return best


@pytest.mark.parametrize("number", range(8))
def test_depth_is_that_of_the_solid_body(number):
    scene = scenes()[number]
    canvas = Canvas(rng(), scene.height, scene.width)
    outline = canvas.draw(scene.body)
    np.testing.assert_array_equal(outline, scene.outline)
    np.testing.assert_array_equal(outline, np.isfinite(canvas.depth))
    rows, columns = np.nonzero(outline)
    errors = []
    for i in range(0, len(rows), len(rows) // 60):
        expected = front(scene.body, columns[i] + 0.5, rows[i] + 0.5)
        errors.append(abs(canvas.depth[rows[i], columns[i]] - expected))
    # Pixels; a steep limb that tapers is drawn a little flatter than it is.
    assert np.median(errors) < 0.5
    assert np.mean(np.array(errors) < 2) > 0.85


# Visibility


def test_visibility_is_what_lies_in_front():
    checked = {1: 0, 2: 0}
    for i, scene in enumerate(scenes()):
        skeleton = (COCO, AP10K)[i % 2]
        instance = scene.instance(skeleton)
        covered = scene.canvas.depth < scene.body.points[:, 2].min() - 500
        for name, (x, y, visibility) in zip(
            skeleton.keypoints, instance.keypoints, strict=True
        ):
            if visibility == 0 or scene.seat:
                continue
            point, reach = scene.body.keypoints[name]
            column, row = int(x), int(y)
            surface = front(scene.body, column + 0.5, row + 0.5)
            slack = surface - (scene.body.points[point, 2] - reach)
            # Other things are far in front; a steep limb is drawn flatter than it is.
            occluder = scene.canvas.depth[row, column] < surface - 20
            if abs(slack) > 2 or covered[row, column]:
                assert visibility == (1 if occluder or slack < 0 else 2)
                checked[visibility] += 1
    assert min(checked.values()) > 60


def test_at_a_seen_keypoint_the_picture_shows_the_body():
    for i, scene in enumerate(scenes()):
        own = 2 * len(scene.body.materials)  # the first to be drawn
        for x, y, visibility in scene.instance((COCO, AP10K)[i % 2]).keypoints:
            # A point on a rim may lie in a pixel whose centre the body does not cover.
            rows, columns = (slice(max(int(v) - 1, 0), int(v) + 2) for v in (y, x))
            paints = scene.canvas.paints[rows, columns]
            assert visibility < 2 or ((paints > 0) & (paints <= own)).any()


def test_a_cover_hides_the_keypoints_under_it_and_no_others():
    body = Person(rng()).body(STANDING).seen(np.eye(3), 4.0, 150, (80, 90))
    names = list(body.keypoints)
    points = body.points[[body.keypoints[name][0] for name in names]]
    reach = np.array([body.keypoints[name][1] for name in names])
    canvas = Canvas(rng(), 200, 160)
    canvas.draw(body)
    assert not canvas.hidden(points, reach).any()  # arms hang, seen from the front
    knee = points[names.index("left_knee"), :2]
    corners = np.array([(-6, -6), (6, -6), (6, 6), (-6, 6)])
    canvas.cover([knee + corners], PLAIN)
    hidden = {n for n, h in zip(names, canvas.hidden(points, reach), strict=True) if h}
    assert hidden == {"left_knee"}


def test_a_limb_hides_what_lies_behind_it_only():
    for z, expected in ((-40, True), (40, False)):
        canvas = Canvas(rng(), 40, 40)
        canvas.limb((5, 20, 0), (35, 20, 0), 4, 4, canvas.add(PLAIN))
        canvas.limb((20, 5, z), (20, 35, z), 4, 4, canvas.add(PLAIN))
        hidden = canvas.hidden(np.array([(20.0, 20.0, 0.0)]), np.array([6.0]))
        assert hidden == [expected]


def test_of_two_bodies_the_nearer_is_in_front_in_either_order():
    person = Person(rng()).body(STANDING)
    near = person.seen(np.eye(3), 4.0, 60, (40, 60, 0))
    far = person.seen(np.eye(3), 4.0, 60, (46, 60, 100))
    depths, outlines = [], []
    for bodies in ((near, far), (far, near)):
        canvas = Canvas(rng(), 100, 100)
        outlines.append(
            [canvas.draw(body) for body in bodies][:: 1 if bodies[0] is near else -1]
        )
        depths.append(canvas.depth)
    np.testing.assert_array_equal(*depths)
    np.testing.assert_array_equal(*outlines)
    both = outlines[0][0] & outlines[0][1]
    assert both.any() and (depths[0][both] < 50).all()


def test_more_materials_than_a_picture_takes():
    canvas = Canvas(rng(), 20, 20)
    for _ in range(127):
        canvas.add(PLAIN)
    with pytest.raises(ValueError, match="a picture takes 127 materials at most"):
        canvas.add(PLAIN)


def test_a_body_outside_the_picture_leaves_it_as_it_was():
    body = Person(rng()).body(STANDING).seen(np.eye(3), 4.0, 100, (500, 90))
    canvas = Canvas(rng(), 120, 120)
    assert not canvas.draw(body).any()
    assert not canvas.paints.any() and np.isinf(canvas.depth).all()
    canvas.cover([[(200, 200), (210, 200), (210, 210)]], PLAIN)
    assert not canvas.paints.any()


# Left and right


def seen_names(body, canvas):
    names = list(body.keypoints)
    points = body.points[[body.keypoints[name][0] for name in names]]
    reach = np.array([body.keypoints[name][1] for name in names])
    hidden = canvas.hidden(points, reach)
    return {name for name, h in zip(names, hidden, strict=True) if not h}


@pytest.mark.parametrize("turn, left", [(0.0, 1), (math.pi, -1)])
def test_a_persons_left_is_right_from_the_front_and_left_from_behind(turn, left):
    body = Person(rng()).body(STANDING).seen(spin(turn), 4.0, 150, (80, 90))
    for pair in ("shoulder", "hip", "knee", "ankle", "ear"):
        left_x, right_x = (
            body.points[body.keypoints[f"{side}_{pair}"][0], 0]
            for side in ("left", "right")
        )
        assert (left_x - right_x) * left > 2
    canvas = Canvas(rng(), 200, 160)
    canvas.draw(body)
    face = {"nose", "left_eye", "right_eye"}
    assert seen_names(body, canvas) >= (face if left > 0 else {"left_ear"})
    assert (seen_names(body, canvas) & face == face) == (left > 0)


@pytest.mark.parametrize("side", [-1, 1])
@pytest.mark.parametrize("person", [False, True])
def test_from_the_side_the_near_limbs_are_seen(side, person):
    """Facing the picture's left shows a body's left side."""
    if person:
        body = Person(rng()).body(STANDING._replace(arms=((1.5, 0, 0, 0),) * 2))
        pairs, rear = ("shoulder", "hip", "ear"), "left_ear"
    else:
        who = Animal(rng())
        pose = pose_animals.standing(rng(), who.build)._replace(look=0.0)
        body, pairs, rear = who.body(pose), ("shoulder", "hip", "eye"), "root_of_tail"
    # spin(pi / 2): the front turns to the body's right, which is the picture's left.
    body = body.seen(spin(side * math.pi / 2), 6.0, 60, (100, 100))
    nose, back = (body.points[body.keypoints[n][0], 0] for n in ("nose", rear))
    assert (nose < back) == (side > 0)
    canvas = Canvas(rng(), 200, 200)
    canvas.draw(body)
    seen = seen_names(body, canvas)
    near, far = ("left", "right") if side > 0 else ("right", "left")
    for pair in pairs:
        assert f"{near}_{pair}" in seen and f"{far}_{pair}" not in seen


def test_left_and_right_limbs_look_alike():
    for make in range(6):
        source = np.random.default_rng(make)
        if make % 2:
            body = Person(source).body(STANDING)
        else:
            who = Animal(source)
            body = who.body(pose_animals.standing(source, who.build))
        number = {point: name for name, (point, _) in body.keypoints.items()}
        looks = {"left": [], "right": []}
        for (a, b), radii, material in zip(
            body.bones, body.radii, body.bone_materials, strict=True
        ):
            side = number.get(a, number.get(b, "")).split("_")[0]
            if side in looks:
                looks[side].append((radii, material))
        assert looks["left"] == looks["right"] and len(looks["left"]) > 5


@pytest.mark.parametrize("kind", range(len(pose_people.POSES)))
def test_the_mirrored_pose_is_the_mirror_image(kind):
    who = Person(rng())
    pose = pose_people.POSES[kind](np.random.default_rng(kind))
    signs = np.array([1, -1, -1])
    mirrored = pose._replace(
        lean=signs * pose.lean,
        head=signs * pose.head,
        arms=pose.arms[::-1],
        legs=pose.legs[::-1],
    )
    one, other = who.body(pose), who.body(mirrored)
    for name, partner in zip(
        COCO.keypoints, (COCO.keypoints[k] for k in COCO.mirror), strict=True
    ):
        expected = np.array(one.points[one.keypoints[name][0]]) * (-1, 1, 1)
        got = other.points[other.keypoints[partner][0]]
        np.testing.assert_allclose(got, expected, atol=1e-12)


# Bodies


def test_bones_keep_their_lengths_in_every_pose():
    who = Person(rng())
    for kind in pose_people.POSES:
        body = who.body(kind(rng()))
        at = {n: np.array(body.points[p]) for n, (p, _) in body.keypoints.items()}
        for side in ("left", "right"):
            for a, b, length in (
                ("shoulder", "elbow", who.arm[0]),
                ("elbow", "wrist", who.arm[1]),
                ("hip", "knee", who.leg[0]),
                ("knee", "ankle", who.leg[1]),
            ):
                got = np.linalg.norm(at[f"{side}_{a}"] - at[f"{side}_{b}"])
                assert got == pytest.approx(length)


def test_knees_and_elbows_bend_the_right_way():
    legs = ((0.0, 0.0, 0.9, 0.0),) * 2
    arms = ((0.0, 0.0, 0.0, 0.9),) * 2
    body = Person(rng()).body(STANDING._replace(arms=arms, legs=legs))
    at = {n: np.array(body.points[p]) for n, (p, _) in body.keypoints.items()}
    for side in ("left", "right"):
        # z points to the back: a lower leg bends there, a lower arm to the front.
        assert at[f"{side}_ankle"][2] > at[f"{side}_knee"][2] + 0.1
        assert at[f"{side}_wrist"][2] < at[f"{side}_elbow"][2] - 0.05


@pytest.mark.parametrize("kind", pose_animals.POSES)
def test_animals_stand_on_their_paws_and_look_ahead(kind):
    for i in range(12):
        source = np.random.default_rng(i)
        who = Animal(source)
        body = who.body(kind(source, who.build))
        at = {n: np.array(body.points[p]) for n, (p, _) in body.keypoints.items()}
        assert set(at) == set(AP10K.keypoints)
        assert at["nose"][2] < at["neck"][2] < at["root_of_tail"][2]
        for side in ("left", "right"):
            assert at[f"{side}_front_paw"][1] > at[f"{side}_shoulder"][1]
            assert at[f"{side}_back_paw"][1] > at[f"{side}_knee"][1] - 0.05
        if kind is pose_animals.grazing:
            assert at["nose"][1] > at["neck"][1]


def test_a_camera_makes_near_things_larger():
    body = Body([PLAIN])
    body.bone(body.point([0, -1, -1]), body.point([0, 1, 1]), 0.1, 0.1, 0)
    seen = body.seen(np.eye(3), 4.0, scale=10, offset=(5, 6))
    np.testing.assert_allclose(seen.points[:, :2], [(5, 6 - 40 / 3), (5, 6 + 8)])
    np.testing.assert_allclose(seen.points[:, 2], [-10, 10])
    np.testing.assert_allclose(seen.radii, [(4 / 3, 0.8)])
    np.testing.assert_allclose(
        seen.extent(), [5 - 4 / 3, 6 - 44 / 3, 5 + 4 / 3, 6 + 8.8]
    )


@pytest.mark.parametrize(
    "rotation, start, end",
    [
        (nod, (0, 1, 0), (0, 0, -1)),  # down to the front
        (spin, (0, 0, -1), (-1, 0, 0)),  # front to the right
        (tilt, (0, 1, 0), (-1, 0, 0)),  # down to the right
    ],
)
def test_which_way_a_quarter_turn_goes(rotation, start, end):
    np.testing.assert_allclose(rotation(math.pi / 2) @ start, end, atol=1e-12)
