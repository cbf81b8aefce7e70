import json

import numpy as np
import pytest
import yaml
from faster_coco_eval.core.cocoeval import Params

from facekp_jax import skeletons
from facekp_jax.skeletons import KNOWN, UNKNOWN_SIGMA, Skeleton

known = pytest.mark.parametrize("skeleton", KNOWN.values(), ids=KNOWN)


def pairs(skeleton):
    """Mirror pairs by name."""
    exchanged = enumerate(skeleton.mirror)
    return {
        frozenset((skeleton.keypoints[a], skeleton.keypoints[b]))
        for a, b in exchanged
        if a != b
    }


@known
def test_known_skeletons_are_whole_and_symmetric(skeleton):
    assert skeletons.components(skeleton) == 1
    edges = {frozenset(edge) for edge in skeleton.edges}
    # A wrong mirror pair moves an edge to where there is none.
    assert {frozenset(skeleton.mirror[k] for k in edge) for edge in edges} == edges


@known
def test_dicts_and_files_say_all_of_a_skeleton(skeleton, tmp_path):
    values = skeletons.to_dict(skeleton)
    assert skeletons.from_dict(json.loads(json.dumps(values))) == skeleton
    (tmp_path / "one.json").write_text(json.dumps(values, indent="\t"))
    (tmp_path / "one.yaml").write_text(yaml.safe_dump(values))
    assert skeletons.load(tmp_path / "one.json") == skeleton
    assert skeletons.load(str(tmp_path / "one.yaml")) == skeleton
    assert skeletons.load(skeleton.name) == skeleton


@pytest.mark.parametrize(
    "name, count",
    [
        ("coco", 17),
        ("lsp", 14),
        ("mpii", 16),
        ("posetrack", 17),
        ("posetrack15", 15),
        ("ap10k", 17),
        ("animalpose", 20),
        ("atrw", 15),
        ("macaque", 17),
        ("horse10", 22),
        ("zebra", 9),
        ("fly", 32),
        ("locust", 35),
        ("face68", 68),
    ],
)
def test_numbers_of_keypoints(name, count):
    assert len(KNOWN[name].keypoints) == count


def test_sigmas_of_coco_are_those_of_its_evaluation():
    np.testing.assert_allclose(
        skeletons.COCO.sigmas, Params(iouType="keypoints").kpt_oks_sigmas, rtol=1e-6
    )
    assert skeletons.MACAQUE.sigmas == skeletons.COCO.sigmas
    by_name = dict(zip(skeletons.LSP.keypoints, skeletons.LSP.sigmas, strict=True))
    assert (by_name["left_hip"], by_name["right_wrist"]) == (0.107, 0.062)


def test_orders_of_the_sets():
    assert skeletons.COCO.keypoints[:3] == ("nose", "left_eye", "right_eye")
    assert skeletons.COCO.keypoints[-2:] == ("left_ankle", "right_ankle")
    assert skeletons.LSP.keypoints[:4] == (
        "right_ankle",
        "right_knee",
        "right_hip",
        "left_hip",
    )
    assert skeletons.LSP.keypoints[-2:] == ("neck", "head_top")
    assert skeletons.MPII.keypoints[6:10] == (
        "pelvis",
        "thorax",
        "upper_neck",
        "head_top",
    )
    without_ears = [k for k in skeletons.POSETRACK.keypoints if "ear" not in k]
    assert skeletons.POSETRACK15.keypoints == tuple(without_ears)
    assert skeletons.FLY.keypoints[6:8] == ("forelegR1", "forelegR2")
    assert skeletons.FLY.keypoints[-3:] == ("hindlegL4", "wingL", "wingR")
    assert skeletons.LOCUST.keypoints[19:21] == ("hindlegL4", "anttipR")


def test_mirror_pairs():
    assert {"left_front_paw", "right_front_paw"} in pairs(skeletons.AP10K)
    assert {"forelegL3", "forelegR3"} in pairs(skeletons.FLY)
    assert {"L_EarBase", "R_EarBase"} in pairs(skeletons.ANIMALPOSE)
    # A mirrored horse's near legs are still the nearer ones.
    assert not pairs(skeletons.HORSE10) and skeletons.HORSE10.mirror is not None
    # 300-W's own numbers, from 1: chin, corners of the eyes and of the mouth.
    mirror = dict(enumerate((k + 1 for k in skeletons.FACE68.mirror), start=1))
    assert (mirror[1], mirror[9], mirror[18], mirror[31]) == (17, 9, 27, 31)
    assert (mirror[37], mirror[40], mirror[42]) == (46, 43, 47)
    assert (mirror[49], mirror[58], mirror[61], mirror[67]) == (55, 58, 65, 67)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"keypoints": ()}, "'fish' has no keypoint"),
        ({"keypoints": ("a", "b", "a")}, r"named twice: \['a'\]"),
        ({"edges": ()}, "'fish' has no edges.*--skeleton"),
        ({"edges": ((0, 3),)}, r"edge \(0, 3\) does not join two of the 3"),
        ({"edges": ((1, 1),)}, r"edge \(1, 1\) does not join"),
        ({"edges": ((0, 1), (1, 0))}, "an edge is there twice"),
        ({"mirror": (1, 2, 0)}, "does not exchange pairs"),
        ({"mirror": (1, 0)}, "does not exchange pairs"),
        ({"sigmas": (0.1, 0.1)}, "2 sigmas for 3 keypoints"),
        ({"sigmas": (0.1, 0.1, 0.0)}, "must be above 0"),
        ({"sigmas": (0.1, 0.1, float("nan"))}, "must be above 0"),
    ],
)
def test_a_wrong_skeleton_says_why(changes, message):
    fields = {
        "name": "fish",
        "keypoints": ("a", "b", "c"),
        "edges": ((0, 1),),
        "mirror": None,
        "sigmas": (0.1,) * 3,
    }
    with pytest.raises(ValueError, match=message):
        Skeleton(**{**fields, **changes})


def test_names_become_numbers():
    skeleton = skeletons.from_names(
        "mouse",
        ["nose", "earL", "earR"],
        [("nose", "earL"), ("nose", "earR")],
        [("earR", "earL")],
        {"earL": 0.1},
    )
    assert skeleton.edges == ((0, 1), (0, 2))
    assert skeleton.mirror == (0, 2, 1)
    assert skeleton.sigmas == (UNKNOWN_SIGMA, 0.1, UNKNOWN_SIGMA)


def test_no_pairs_is_not_the_same_as_unknown_pairs():
    def mirror(mirror_pairs):
        edges = [("a", "b")]
        return skeletons.from_names("worm", "ab", edges, mirror_pairs).mirror

    assert mirror([]) == (0, 1)
    assert mirror(None) is None


FISH = {"name": "fish", "keypoints": ["head", "tail"], "edges": [["head", "tail"]]}


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"edges": [["head", "tial"]]}, "an edge names 'tial', which is none of"),
        ({"edges": ["head"]}, "an edge 'head' is not two names"),
        ({"edges": [["head", "tail", "head"]]}, "is not two names"),
        ({"edges": "head-tail"}, "edges is 'head-tail'; write a list"),
        ({"mirror": [["head", "fin"]]}, "a mirror pair names 'fin'"),
        ({"mirror": [["head", "tail"], ["tail", "head"]]}, "twice among the mirror"),
        ({"mirror": [["head", "head"]]}, "twice among the mirror"),
        ({"sigmas": {"fin": 0.1}}, "a sigma names 'fin'"),
        ({"sigmas": [0.1]}, "1 sigmas for 2 keypoints"),
        ({"keypoints": None}, "no keypoints; write"),
        ({"edges": []}, "no edges; write"),
        ({"keypoints": [1, 2]}, "the name 1 is not text; put it in quotes"),
        ({"skeleton": []}, "unknown skeleton; use name, keypoints"),
    ],
)
def test_a_wrong_skeleton_file_says_why(tmp_path, changes, message):
    path = tmp_path / "fish.yaml"
    path.write_text(yaml.safe_dump({**FISH, **changes}))
    with pytest.raises(ValueError, match=f"fish.yaml: .*{message}"):
        skeletons.load(path)


def test_what_a_file_leaves_out_is_unknown(tmp_path):
    path = tmp_path / "fish.yml"
    path.write_text(yaml.safe_dump(FISH))
    fish = skeletons.load(path)
    assert fish.mirror is None
    assert fish.sigmas == (UNKNOWN_SIGMA,) * 2


@pytest.mark.parametrize(
    "text, message",
    [("[", "not YAML"), ("fish", "not a skeleton"), ("", "not a skeleton")],
)
def test_what_is_no_skeleton_file_says_so(tmp_path, text, message):
    (tmp_path / "fish").write_text(text)
    with pytest.raises(ValueError, match=f"fish: {message}") as error:
        skeletons.load(tmp_path / "fish")
    assert "\n" not in str(error.value)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"cocoa: no such skeleton; .*coco, lsp, mpii"):
        skeletons.load("cocoa")


def test_a_category_with_known_keypoints_is_that_type():
    names = [k.replace("_", " ").upper() for k in skeletons.AP10K.keypoints]
    dog = skeletons.guess("dog", names, [(0, 1), (1, 0), [2, 3]])
    assert (dog.name, dog.keypoints) == ("dog", tuple(names))
    assert dog.edges == ((1, 0), (2, 3))
    assert dog.mirror == skeletons.AP10K.mirror
    assert dog.sigmas == skeletons.AP10K.sigmas
    assert skeletons.guess("cat", names, []).edges == skeletons.AP10K.edges


def test_names_are_compared_without_case_blanks_and_hyphens():
    for name in ("left_eye", "LeftEye", " Left-eye"):
        assert skeletons.normalized_name(name) == "lefteye"
    assert skeletons.normalized_name("eye.l") == "eye.l"
    assert skeletons.normalized_name("Straße") == "strasse"


def test_known_keypoints_may_stand_in_another_order():
    coco = skeletons.COCO
    order = [16, *range(16)]
    names = [coco.keypoints[k] for k in order]
    person = skeletons.guess("person", names, [])
    assert person.sigmas == tuple(coco.sigmas[k] for k in order)
    assert pairs(person) == pairs(coco)

    def named(skeleton):
        return {frozenset(skeleton.keypoints[k] for k in e) for e in skeleton.edges}

    assert named(person) == named(coco)


@pytest.mark.parametrize(
    "left, right",
    [
        ("left_eye", "right_eye"),
        ("leftear", "rightear"),
        ("Ear Left", "Ear Right"),
        ("LEFT_PAW", "RIGHT_PAW"),
        ("l_eye", "r_eye"),
        ("eye.l", "eye.r"),
        ("L_F_Paw", "R_F_Paw"),
        ("eyeL", "eyeR"),
        ("forelegL1", "forelegR1"),
        ("LEye", "REye"),
        ("lEye", "rEye"),
        ("LF_paw", "RF_paw"),
        ("FL", "FR"),
    ],
)
def test_sides_in_names_are_mirror_pairs(left, right):
    skeleton = skeletons.guess("animal", ["lip", left, "Rump", right], [(0, 1)])
    assert skeleton.mirror == (0, 3, 2, 1)
    assert skeleton.sigmas == (UNKNOWN_SIGMA,) * 4


@pytest.mark.parametrize(
    "names",
    [
        ["snout", "tail"],
        ["left_eye", "right_eye", "left_ear"],  # its partner is missing
        ["paw1LH", "paw2LF", "paw3RF", "paw4RH"],  # numbers differ too
    ],
)
def test_mirror_pairs_that_names_do_not_tell_are_unknown(names):
    assert skeletons.guess("animal", names, [(0, 1)]).mirror is None


def test_a_category_without_edges_names_the_cure():
    with pytest.raises(ValueError, match=r"'mouse' has no edges.*--skeleton"):
        skeletons.guess("mouse", ["snout", "tailbase"], [])


@pytest.mark.parametrize(
    "edges, parts",
    [([(0, 1)], 3), ([(0, 1), (2, 3)], 2), ([(3, 2), (1, 0), (0, 3)], 1)],
)
def test_components(edges, parts):
    skeleton = Skeleton("worm", tuple("abcd"), tuple(edges), None, (0.1,) * 4)
    assert skeletons.components(skeleton) == parts


@pytest.mark.parametrize(
    "field, value, message",
    [
        ("edges", [5], "an edge 5 is not two names"),
        ("edges", [None], "an edge None is not two names"),
        ("mirror", [True], "a mirror pair True is not two names"),
        ("mirror", False, "mirror is False; write a list"),
        ("mirror", 0, "mirror is 0; write a list"),
        ("sigmas", 0.1, "sigmas is 0.1; write a list of numbers"),
        ("sigmas", [None, 0.1], r"sigmas is \[None, 0.1\]; write"),
        ("sigmas", {"a": []}, r"sigmas is {'a': \[\]}; write"),
        ("sigmas", [10**400, 1], "sigmas is .*; write a list of numbers"),
    ],
)
def test_values_of_another_kind(field, value, message):
    values = {"name": "x", "keypoints": ["a", "b"], "edges": [["a", "b"]]}
    with pytest.raises(ValueError, match=message):
        skeletons.from_dict({**values, field: value})


@pytest.mark.parametrize("text", ["[" * 5000, "a: !!int ''", "a: !!timestamp b"])
def test_a_file_that_cannot_be_parsed_is_named(tmp_path, text):
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(ValueError, match=r"a\.yaml: not YAML"):
        skeletons.load(tmp_path / "a.yaml")
    (tmp_path / "a.json").write_text("[" * 100_000)
    with pytest.raises(ValueError, match=r"a\.json: not JSON"):
        skeletons.load(tmp_path / "a.json")
