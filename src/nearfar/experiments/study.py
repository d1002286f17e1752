"""The folder of a study: each part is one JSON file, written when it is done, so that a study goes on where it was."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nearfar.errors import InvalidFile, InvalidRun
from nearfar.experiments.results import Courses, MethodResult, Result
from nearfar.files import make_folder, read_json, write_json

_ABOUT = "study.json"
_PARTS = "parts"
_FORMAT = 1


@dataclass(frozen=True)
class Part:
    """A piece of work that is done, or not done, as a whole."""

    name: str
    """Its file is called by it."""
    title: str
    """What is going on, for the reader who waits."""
    kind: type[MethodResult] | type[Courses]
    settings: Mapping[str, Any]
    """All that its result depends on, as JSON values."""
    make: Callable[[Mapping[str, Result]], Result]
    """Does the work, from the results of the parts before."""
    after: tuple[str, ...] = ()
    """The parts whose results it goes by: when they change, it has to be made again."""

    def fingerprint(self, results: Mapping[str, Result]) -> str:
        """16 hex digits that tell settings, and the results that it goes by, from others."""
        before = [results[name].to_json() for name in self.after]
        text = json.dumps([_FORMAT, self.name, self.settings, before], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class StudyFolder:
    """A folder with the parts of one study. Opening makes it; one of anything else is refused."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self, about: Mapping[str, Any]) -> None:
        """Make the folder, or take up the one that is there; ``about`` says which study at which size it is."""
        path = self.folder / _ABOUT
        if path.exists():
            before = read_json(path)
            differing = [
                f"{name} is {about.get(name)} now and was {before.get(name)}"
                for name in {**before, **about}
                if about.get(name) != before.get(name)
            ]
            if differing:
                raise InvalidRun(
                    f"{self.folder} holds another study: {'; '.join(differing)}; choose another folder with --out"
                )
        elif self.folder.exists() and (not self.folder.is_dir() or any(self.folder.iterdir())):
            raise InvalidRun(f"{self.folder} exists and is no study; choose another folder with --out")
        else:
            make_folder(self.folder)
            write_json(path, dict(about))
        make_folder(self.folder / _PARTS)

    def complete(
        self,
        parts: Sequence[Part],
        on_part: Callable[[int, Part], None] | None = None,
        on_remark: Callable[[str], None] | None = None,
    ) -> dict[str, Result]:
        """Do what is not done yet, in this order; every result by the name of its part.

        A part that was made with other settings, or whose file is damaged, is made again, with a remark.

        Parameters
        ----------
        parts : sequence of Part
        on_part : function of (number from 0, part), optional
            Called before a part begins.
        on_remark : function of str, optional
        """
        results: dict[str, Result] = {}
        for number, part in enumerate(parts):
            fingerprint = part.fingerprint(results)
            done = self._done(part, fingerprint, on_remark)
            if done is None:
                if on_part is not None:
                    on_part(number, part)
                done = part.make(results)
                content = {"part": part.name, "fingerprint": fingerprint, "settings": dict(part.settings)}
                write_json(self._path(part), {**content, "result": done.to_json()})
            results[part.name] = done
        return results

    def _path(self, part: Part) -> Path:
        return self.folder / _PARTS / f"{part.name}.json"

    def _done(self, part: Part, fingerprint: str, on_remark: Callable[[str], None] | None) -> Result | None:
        """What a finished part found; None if it has to be made."""
        path = self._path(part)
        if not path.exists():
            return None
        try:
            content = read_json(path)
            if content["fingerprint"] == fingerprint:
                return part.kind.from_json(content["result"])
            remark = f"{path} was made with other settings or data; it is made again"
        except (InvalidFile, KeyError, TypeError, ValueError, AttributeError) as error:
            remark = f"{path} is damaged ({' '.join(str(error).split())}); it is made again"
        if on_remark is not None:
            on_remark(remark)
        return None
