"""Checkpoints that are whole, or not used."""

import shutil

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from facekp_jax.checkpoints import CHECKSUMS, Checkpoints, NoCheckpoint
from facekp_jax.training import TrainState


def state_at(step):
    """A state whose numbers depend on the step, one array larger than a file system's
    block, and its optimizer's, as a training leaves it."""
    rng = np.random.default_rng(step)
    params = {
        "dense": {"kernel": rng.standard_normal((64, 128)).astype(np.float32)},
        "odd": jnp.array([jnp.nan, -0.0, 1e-45, jnp.inf]),
        "half": jnp.array([1 / 3], jnp.bfloat16),
    }
    optimizer = optax.adamw(optax.constant_schedule(0.1))
    opt_state = optimizer.init(params)
    _, opt_state = optimizer.update(params, opt_state, params)
    return TrainState(
        step=jnp.int32(step),
        params=params,
        batch_stats={"mean": jnp.full(3, step, jnp.float32)},
        opt_state=opt_state,
    )


def assert_same_bits(got, expected):
    assert jax.tree.structure(got) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


@pytest.fixture
def directory(tmp_path):
    """Of whole checkpoints of the steps 4 and 8."""
    directory = tmp_path / "checkpoints"
    checkpoints = Checkpoints(directory)
    for step in (4, 8):
        checkpoints.save(step, state_at(step))
    checkpoints.close()
    return directory


def restore(directory):
    checkpoints = Checkpoints(directory)
    try:
        return checkpoints.restore_latest(state_at(0))
    finally:
        checkpoints.close()


def largest_file(folder):
    return max(
        (path for path in folder.rglob("*") if path.is_file()),
        key=lambda path: path.stat().st_size,
    )


def truncate(folder):
    path = largest_file(folder)
    path.write_bytes(path.read_bytes()[:-100])
    return path.name


def flip_a_byte(folder):
    path = largest_file(folder)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    return path.name


def lose_a_file(folder):
    path = largest_file(folder)
    path.unlink()
    return path.name


def add_a_file(folder):
    (folder / "default" / "stranger").touch()
    return "stranger"


def kill_before_checksums(folder):
    (folder / "checksums.json").rename(folder / "checksums.json.partial")
    return "killed while saving"


def kill_in_checksums(folder):
    path = folder / "checksums.json"
    path.write_text(path.read_text()[:50])
    return "checksums.json"


def kill_before_renaming(folder):
    """As Orbax leaves it: a folder of another name, its files not all there."""
    (folder / "checksums.json").unlink()
    largest_file(folder).unlink()
    folder.rename(folder.with_name(f"{folder.name}.orbax-checkpoint-tmp"))
    return "killed while saving"


DAMAGES = [
    truncate,
    flip_a_byte,
    lose_a_file,
    add_a_file,
    kill_before_checksums,
    kill_in_checksums,
    kill_before_renaming,
]


def test_what_is_saved_comes_back_bit_for_bit(directory):
    state, step, messages = restore(directory)
    assert (step, messages) == (8, [])
    assert_same_bits(state, state_at(8))
    assert state.step.dtype == jnp.int32


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(directory, damage):
    reason = damage(directory / "8")
    state, step, messages = restore(directory)
    assert step == 4
    assert_same_bits(state, state_at(4))
    (message,) = messages
    assert str(directory / "8") in message
    assert reason in message


# The step itself, or first one before it, which Orbax would count as saved.
@pytest.mark.parametrize("steps", [(8,), (6, 8)])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_step_can_be_saved_again(directory, damage, steps):
    damage(directory / "8")
    checkpoints = Checkpoints(directory)
    _, step, _ = checkpoints.restore_latest(state_at(0))
    assert step == 4
    for step in steps:
        checkpoints.save(step, state_at(step + 100))
        state, latest, messages = checkpoints.restore_latest(state_at(0))
        assert (latest, messages) == (step, [])
        assert_same_bits(state, state_at(step + 100))
    checkpoints.close()
    assert restore(directory)[1:] == (8, [])


def test_restoring_changes_no_file(directory):
    # Another process may be training here: what looks damaged is still being saved.
    truncate(directory / "8")
    shutil.copytree(directory / "8", directory / "9.orbax-checkpoint-tmp")
    before = sorted(directory.rglob("*"))
    restore(directory)
    assert sorted(directory.rglob("*")) == before


def test_nothing_whole_is_an_error_that_names_all(directory):
    truncate(directory / "4")
    kill_before_checksums(directory / "8")
    with pytest.raises(ValueError) as caught:
        restore(directory)
    for word in (directory / "4", directory / "8", "no whole checkpoint"):
        assert str(word) in str(caught.value)


def test_one_of_another_model_is_an_error_in_one_line(directory):
    checkpoints = Checkpoints(directory)
    with pytest.raises(ValueError, match=r"/8 is of another model than the config"):
        checkpoints.restore_latest({"x": jnp.zeros(2)})
    checkpoints.close()


def test_none_yet_differs_from_none_left(directory):
    for step in ("4", "8"):
        kill_before_checksums(directory / step)
    with pytest.raises(NoCheckpoint):
        restore(directory)
    (directory / "4" / CHECKSUMS).write_text("{}")
    with pytest.raises(ValueError) as caught:
        restore(directory)
    assert not isinstance(caught.value, NoCheckpoint)


def test_an_empty_folder_is_an_error(tmp_path):
    with pytest.raises(NoCheckpoint, match=r"no whole checkpoint in .*/empty"):
        restore(tmp_path / "empty")


def test_other_things_in_the_folder_do_not_matter(directory):
    (directory / "notes.txt").write_text("seven")
    (directory / "best").mkdir()
    assert restore(directory)[1:] == (8, [])


def test_old_checkpoints_make_room(tmp_path):
    checkpoints = Checkpoints(tmp_path / "run", keep=2)
    for step in (1, 2, 3):
        checkpoints.save(step, {"x": jnp.zeros(2)})
    checkpoints.close()
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["2", "3"]
