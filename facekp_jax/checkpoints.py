"""Checkpoints that survive being killed: written whole, or not restored."""

import hashlib
import json
import pathlib
import shutil
from typing import Any

import jax
import orbax.checkpoint as ocp

CHECKSUMS = "checksums.json"
_UNFINISHED = f"{CHECKSUMS} is missing: killed while saving"


class NoCheckpoint(ValueError):
    """The run was stopped before its first checkpoint was whole."""


class Checkpoints:
    """The checkpoints of one run, `directory/<step>`, each with its files' checksums.

    Orbax writes under a temporary name and renames at the end, so a run killed while
    saving leaves no half checkpoint. The checksums find what went wrong later: files
    cut short or changed, which would otherwise restore silently wrong.
    """

    def __init__(self, directory: pathlib.Path, keep: int = 3):
        self.directory = directory.absolute()
        self._manager = ocp.CheckpointManager(
            self.directory,
            options=ocp.CheckpointManagerOptions(
                max_to_keep=keep, enable_async_checkpointing=False
            ),
        )

    def save(self, step: int, state: Any) -> None:
        """Saves a state; what is there of this step and later ones gives way.

        A resumed run passed them over as damaged, and Orbax would not save before them.
        """
        if jax.process_index() == 0:
            for folder in self._folders():
                if _step(folder) >= step:
                    shutil.rmtree(folder)
        self._manager.reload()
        self._manager.save(step, args=ocp.args.StandardSave(state))
        self._manager.wait_until_finished()
        if jax.process_index() == 0:
            folder = self.directory / str(step)
            temporary = folder / f"{CHECKSUMS}.partial"
            temporary.write_text(json.dumps(_checksums(folder)))
            temporary.rename(folder / CHECKSUMS)

    def restore_latest(self, like: Any) -> tuple[Any, int, list[str]]:
        """The newest checkpoint that is whole.

        Damaged ones stay where they are: another process may be saving one right now.

        Args:
            like: state of the shapes and shardings to restore to.

        Returns:
            (state, step, messages about the damaged ones that were passed over).

        Raises:
            NoCheckpoint: if none was ever finished.
            ValueError: if none is whole any more, or the newest is of another model.
        """
        faults = {}
        for folder in self._folders():
            fault = _fault(folder)
            if fault is None:
                step = _step(folder)
                try:
                    restored = self._manager.restore(
                        step, args=ocp.args.StandardRestore(like)
                    )
                except ValueError as error:
                    raise ValueError(
                        f"checkpoint {folder} is of another model than the config "
                        "describes; leave out what changes the model, or train again"
                    ) from error
                messages = [
                    f"checkpoint {damaged} is damaged ({fault}); the one before it is "
                    "used"
                    for damaged, fault in faults.items()
                ]
                return restored, step, messages
            faults[folder] = fault
        damaged = [f"{folder} ({fault})" for folder, fault in faults.items()]
        never = all(fault == _UNFINISHED for fault in faults.values())
        raise (NoCheckpoint if never else ValueError)(
            f"no whole checkpoint in {self.directory}"
            + (f"; damaged: {', '.join(damaged)}" if damaged else "")
            + "; train the run first"
        )

    def _folders(self):
        """Those of steps, finished or not, newest first."""
        found = [p for p in self.directory.iterdir() if p.name.split(".")[0].isdigit()]
        return sorted(found, key=lambda p: (_step(p), not p.suffix), reverse=True)

    def close(self) -> None:
        self._manager.close()


def _step(folder):
    return int(folder.name.split(".")[0])


def _fault(folder):
    """What is wrong with a checkpoint's files, or None."""
    recorded = folder / CHECKSUMS
    if not recorded.exists():
        return _UNFINISHED
    try:
        expected = json.loads(recorded.read_text())
    except ValueError:
        return f"{CHECKSUMS} is not what was saved"
    found = _checksums(folder)
    names = sorted(expected.keys() | found.keys())
    wrong = [name for name in names if expected.get(name) != found.get(name)]
    return f"{wrong[0]} is not what was saved" if wrong else None


def _checksums(folder):
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(CHECKSUMS)
    }
