"""The target types of public data sets, as facts: `skeletons.KNOWN` makes them.

Keypoints are in the order of the sets' annotation files. A path a b c joins a with b
and b with c. Left and right are the person's or the animal's own.
"""

import itertools


def _skeleton(keypoints, paths, *, sigmas=None, sides=("left", "right"), mirror=None):
    """What `skeletons.from_dict` reads, but for the name; pairs from the sides."""
    keypoints, (left, right) = keypoints.split(), sides
    paths = [path.split() for path in paths]
    if mirror is None:
        others = ((k, k.replace(left, right, 1)) for k in keypoints)
        mirror = [(k, o) for k, o in others if k != o and o in keypoints]
    return {
        "keypoints": keypoints,
        "edges": [edge for path in paths for edge in itertools.pairwise(path)],
        "mirror": mirror,
        "sigmas": sigmas,
    }


# Half of the constants that COCO's own evaluation multiplies by 2 (cocodataset.org).
_COCO_SIGMAS = {
    "nose": 0.026,
    "left_eye": 0.025,
    "right_eye": 0.025,
    "left_ear": 0.035,
    "right_ear": 0.035,
    "left_shoulder": 0.079,
    "right_shoulder": 0.079,
    "left_elbow": 0.072,
    "right_elbow": 0.072,
    "left_wrist": 0.062,
    "right_wrist": 0.062,
    "left_hip": 0.107,
    "right_hip": 0.107,
    "left_knee": 0.087,
    "right_knee": 0.087,
    "left_ankle": 0.089,
    "right_ankle": 0.089,
}
# LSP, MPII and PoseTrack are scored by PCK and state no sigmas: COCO's, and for head
# and trunk that of the shoulders, as CrowdPose has it, and of the hips.
_BODY_SIGMAS = {
    **_COCO_SIGMAS,
    "neck": 0.079,
    "upper_neck": 0.079,
    "head_bottom": 0.079,
    "head_top": 0.079,
    "thorax": 0.079,
    "pelvis": 0.107,
}


def _body(keypoints, paths):
    sigmas = {k: _BODY_SIGMAS[k] for k in keypoints.split()}
    return _skeleton(keypoints, paths, sigmas=sigmas)


# Lin et al., ECCV 2014.
_COCO = _body(
    " ".join(_COCO_SIGMAS),
    [
        "nose left_eye left_ear left_shoulder left_elbow left_wrist",
        "nose right_eye right_ear right_shoulder right_elbow right_wrist",
        "left_eye right_eye",
        "left_shoulder left_hip left_knee left_ankle",
        "right_shoulder right_hip right_knee right_ankle",
        "left_shoulder right_shoulder",
        "left_hip right_hip",
    ],
)
# Johnson and Everingham, BMVC 2010.
_LSP = _body(
    "right_ankle right_knee right_hip left_hip left_knee left_ankle right_wrist "
    "right_elbow right_shoulder left_shoulder left_elbow left_wrist neck head_top",
    [
        "right_ankle right_knee right_hip left_hip left_knee left_ankle",
        "right_wrist right_elbow right_shoulder neck left_shoulder left_elbow "
        "left_wrist",
        "right_shoulder right_hip",
        "left_shoulder left_hip",
        "neck head_top",
    ],
)
# Andriluka et al., CVPR 2014.
_MPII = _body(
    "right_ankle right_knee right_hip left_hip left_knee left_ankle pelvis thorax "
    "upper_neck head_top right_wrist right_elbow right_shoulder left_shoulder "
    "left_elbow left_wrist",
    [
        "right_ankle right_knee right_hip pelvis left_hip left_knee left_ankle",
        "pelvis thorax upper_neck head_top",
        "right_wrist right_elbow right_shoulder thorax left_shoulder left_elbow "
        "left_wrist",
    ],
)
_LIMBS = (
    "left_shoulder right_shoulder left_elbow right_elbow left_wrist right_wrist "
    "left_hip right_hip left_knee right_knee left_ankle right_ankle"
)
_LIMB_PATHS = [
    "left_wrist left_elbow left_shoulder head_bottom right_shoulder right_elbow "
    "right_wrist",
    "left_shoulder left_hip left_knee left_ankle",
    "right_shoulder right_hip right_knee right_ankle",
    "left_shoulder right_shoulder",
    "left_hip right_hip",
    "head_bottom nose head_top",
]
# Andriluka et al., CVPR 2018. Its 2018 files have two ears, which nobody annotated.
_POSETRACK = _body(
    f"nose head_bottom head_top left_ear right_ear {_LIMBS}",
    [*_LIMB_PATHS, "left_ear nose right_ear"],
)
_POSETRACK15 = _body(f"nose head_bottom head_top {_LIMBS}", _LIMB_PATHS)

# Yu et al., NeurIPS 2021; sigmas of its evaluation, COCO's of the like joints.
_AP10K = _skeleton(
    "left_eye right_eye nose neck root_of_tail left_shoulder left_elbow left_front_paw "
    "right_shoulder right_elbow right_front_paw left_hip left_knee left_back_paw "
    "right_hip right_knee right_back_paw",
    [
        "left_eye right_eye",
        "left_eye nose right_eye",
        "nose neck root_of_tail",
        "neck left_shoulder left_elbow left_front_paw",
        "neck right_shoulder right_elbow right_front_paw",
        "root_of_tail left_hip left_knee left_back_paw",
        "root_of_tail right_hip right_knee right_back_paw",
    ],
    sigmas=[0.025, 0.025, 0.026, 0.035, 0.035]
    + [0.079, 0.072, 0.062] * 2
    + [0.107, 0.087, 0.089] * 2,
)
# Cao et al., ICCV 2019; sigmas that its common evaluation adapted from COCO: the ears
# differ there, kept so that scores compare.
_ANIMALPOSE = _skeleton(
    "L_Eye R_Eye L_EarBase R_EarBase Nose Throat TailBase Withers L_F_Elbow R_F_Elbow "
    "L_B_Elbow R_B_Elbow L_F_Knee R_F_Knee L_B_Knee R_B_Knee L_F_Paw R_F_Paw L_B_Paw "
    "R_B_Paw",
    [
        "L_Eye R_Eye",
        "L_EarBase L_Eye Nose R_Eye R_EarBase",
        "Nose Throat Withers TailBase",
        "Throat L_F_Elbow L_F_Knee L_F_Paw",
        "Throat R_F_Elbow R_F_Knee R_F_Paw",
        "TailBase L_B_Elbow L_B_Knee L_B_Paw",
        "TailBase R_B_Elbow R_B_Knee R_B_Paw",
    ],
    sigmas=[0.025, 0.025, 0.026, 0.035, 0.035]
    + [0.1] * 3
    + [0.107] * 4
    + [0.087] * 4
    + [0.089] * 4,
    sides=("L_", "R_"),
)
# Li et al., ACM MM 2020; sigmas as published, measured for each keypoint by itself.
_ATRW = _skeleton(
    "left_ear right_ear nose right_shoulder right_front_paw left_shoulder "
    "left_front_paw right_hip right_knee right_back_paw left_hip left_knee "
    "left_back_paw tail center",
    [
        "left_ear nose right_ear",
        "nose center tail",
        "center left_shoulder left_front_paw",
        "center right_shoulder right_front_paw",
        "tail left_hip left_knee left_back_paw",
        "tail right_hip right_knee right_back_paw",
    ],
    sigmas=[
        *(0.0277, 0.0823, 0.0831, 0.0202, 0.0716, 0.0263, 0.0646, 0.0302, 0.0440),
        *(0.0316, 0.0333, 0.0547, 0.0263, 0.0683, 0.0539),
    ],
)
# Mathis et al., WACV 2021; it states no edges. Near and off say which side the camera
# sees, and a mirrored horse's near legs are still the nearer ones: nothing exchanges.
_HORSE10 = _skeleton(
    "Nose Eye Nearknee Nearfrontfetlock Nearfrontfoot Offknee Offfrontfetlock "
    "Offfrontfoot Shoulder Midshoulder Elbow Girth Wither Nearhindhock Nearhindfetlock "
    "Nearhindfoot Hip Stifle Offhindhock Offhindfetlock Offhindfoot Ischium",
    [
        "Nose Eye Wither Hip Ischium",
        "Wither Midshoulder Shoulder Elbow Girth",
        "Hip Stifle",
        "Elbow Nearknee Nearfrontfetlock Nearfrontfoot",
        "Elbow Offknee Offfrontfetlock Offfrontfoot",
        "Stifle Nearhindhock Nearhindfetlock Nearhindfoot",
        "Stifle Offhindhock Offhindfetlock Offhindfoot",
    ],
    mirror=[],
)
# Graving et al., eLife 2019: zebra and locust.
_ZEBRA = _skeleton(
    "snout head neck forelegL1 forelegR1 hindlegL1 hindlegR1 tailbase tailtip",
    [
        "snout head neck tailbase tailtip",
        "forelegL1 neck forelegR1",
        "hindlegL1 tailbase hindlegR1",
    ],
    sides=("L", "R"),
)


def _legs(side):
    legs = (f"{leg}leg{side}" for leg in ("fore", "mid", "hind"))
    return [" ".join(f"{leg}{i}" for i in range(1, 5)) for leg in legs]


# The sources of fly and locust leave the legs, and the locust's face, unjoined: the
# thorax and the head join them here, so that the graph is one.
_LEG_PATHS = [f"thorax {leg}" for leg in _legs("L") + _legs("R")]
# Pereira et al., Nature Methods 2019.
_FLY = _skeleton(
    f"head eyeL eyeR neck thorax abdomen {' '.join(_legs('R') + _legs('L'))} wingL "
    "wingR",
    ["eyeL head eyeR", "head neck thorax abdomen", "wingL neck wingR", *_LEG_PATHS],
    sides=("L", "R"),
)
_LOCUST = _skeleton(
    f"head neck thorax abdomen1 abdomen2 anttipL antbaseL eyeL {' '.join(_legs('L'))} "
    f"anttipR antbaseR eyeR {' '.join(_legs('R'))}",
    [
        "head neck thorax abdomen1 abdomen2",
        "anttipL antbaseL eyeL head eyeR antbaseR anttipR",
        *_LEG_PATHS,
    ],
    sides=("L", "R"),
)


def _numbered(part, count):
    return [f"{part}_{i}" for i in range(1, count + 1)]


# The 68 marks of 300-W (Sagonas et al., ICCV workshops 2013), which numbers them only:
# here each part counts from the picture's left to its right, eyes and lips round. The
# parts are joined so that the graph is one. No sigmas are stated for a face's area.
_JAW, _BRIDGE = _numbered("jaw", 17), _numbered("nose_bridge", 4)
_BROWS = _numbered("right_brow", 5), _numbered("left_brow", 5)
_NOSTRILS = _numbered("nostril", 5)
_EYES = _numbered("right_eye", 6), _numbered("left_eye", 6)
_LIPS = _numbered("outer_lip", 12), _numbered("inner_lip", 8)
_MARKS = [*_JAW, *_BROWS[0], *_BROWS[1], *_BRIDGE, *_NOSTRILS, *_EYES[0], *_EYES[1]]
_MARKS += [*_LIPS[0], *_LIPS[1]]
_MIRRORED_MARKS = [
    *((k, 16 - k) for k in range(8)),  # jaw
    *((k, 43 - k) for k in range(17, 22)),  # brows
    (31, 35),
    (32, 34),
    *((36 + k, 45 - k) for k in range(4)),  # upper lids
    (40, 47),
    (41, 46),
    *((48 + k, 54 - k) for k in range(3)),  # outer lips
    (55, 59),
    (56, 58),
    (60, 64),
    (61, 63),
    (65, 67),
]
_FACE68 = _skeleton(
    " ".join(_MARKS),
    [
        " ".join([_BROWS[0][0], *_JAW, _BROWS[1][-1]]),
        " ".join([*_BROWS[0], _BRIDGE[0], *_BROWS[1]]),
        " ".join([*_BRIDGE, _NOSTRILS[2], _LIPS[0][3]]),
        " ".join(_NOSTRILS),
        *(" ".join([*ring, ring[0]]) for ring in (*_EYES, *_LIPS)),
        f"{_EYES[0][3]} {_BRIDGE[0]} {_EYES[1][0]}",
        f"{_LIPS[0][0]} {_LIPS[1][0]}",
        f"{_LIPS[0][6]} {_LIPS[1][4]}",
        f"{_LIPS[0][9]} {_JAW[8]}",
    ],
    mirror=[(_MARKS[a], _MARKS[b]) for a, b in _MIRRORED_MARKS],
)

FACTS = {
    "coco": _COCO,
    "lsp": _LSP,
    "mpii": _MPII,
    "posetrack": _POSETRACK,
    "posetrack15": _POSETRACK15,
    "ap10k": _AP10K,
    "animalpose": _ANIMALPOSE,
    "atrw": _ATRW,
    "macaque": _COCO,  # Labuguen et al., Frontiers 2021: a person's keypoints
    "horse10": _HORSE10,
    "zebra": _ZEBRA,
    "fly": _FLY,
    "locust": _LOCUST,
    "face68": _FACE68,
}
