"""Checkpoints that survive being killed: written whole, or not restored."""

import hashlib
import json
import pathlib
import shutil
from typing import Any

import jax
import orbax.checkpoint as ocp

CHECKSUMS = "checksums.json"


class Checkpoints:
    """The checkpoints of one run, `directory/<step>`, each with a checksum of its files.

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
        self._manager.save(step, args=ocp.args.StandardSave(state))
        self._manager.wait_until_finished()
        if jax.process_index() == 0:
            folder = self.directory / str(step)
            temporary = folder / f"{CHECKSUMS}.partial"
            temporary.write_text(json.dumps(_checksums(folder)))
            temporary.rename(folder / CHECKSUMS)

    def restore_latest(self, like: Any) -> tuple[Any, int, list[str]]:
        """The newest checkpoint that is whole.

        Damaged ones are deleted, so that their steps can be saved again.

        Args:
            like: state of the shapes and shardings to restore to.

        Returns:
            (state, step, messages about the damaged ones that were passed over).

        Raises:
            ValueError: if there is no whole checkpoint.
        """
        messages = []
        for step in sorted(self._manager.all_steps(), reverse=True):
            fault = _fault(self.directory / str(step))
            if fault is None:
                restored = self._manager.restore(
                    step, args=ocp.args.StandardRestore(like)
                )
                return restored, step, messages
            messages.append(
                f"checkpoint {self.directory / str(step)} is damaged ({fault}); "
                "the one before it is used"
            )
            shutil.rmtree(self.directory / str(step))
            self._manager.reload()
        raise ValueError(
            "; ".join([*messages, f"no whole checkpoint in {self.directory}"])
        )

    def close(self) -> None:
        self._manager.close()


def _fault(folder):
    """What is wrong with a checkpoint's files, or None."""
    recorded = folder / CHECKSUMS
    if not recorded.exists():
        return f"{CHECKSUMS} is missing: killed while saving"
    expected, found = json.loads(recorded.read_text()), _checksums(folder)
    names = sorted(expected.keys() | found.keys())
    wrong = [name for name in names if expected.get(name) != found.get(name)]
    return f"{wrong[0]} is not what was saved" if wrong else None


def _checksums(folder):
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(CHECKSUMS)
    }
