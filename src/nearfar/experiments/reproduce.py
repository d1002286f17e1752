"""A study from its data to its page."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from nearfar.errors import InvalidSettings
from nearfar.experiments.found import Found
from nearfar.experiments.methods import Method, left_out, methods_of
from nearfar.experiments.problem import Problem, imnet_problem, mnist_problem
from nearfar.experiments.protocol import Protocol, StudyName
from nearfar.experiments.results import Courses, MethodResult, Result
from nearfar.experiments.scaling import STRAGGLER, compared_consistencies, real_scaling, simulated_scaling
from nearfar.experiments.study import Part, StudyFolder
from nearfar.experiments.study_page import study_page
from nearfar.experiments.study_text import study_markdown
from nearfar.files import write_text
from nearfar.report.page import document


@dataclass(frozen=True)
class Reproduced:
    """A study that is done."""

    found: Found
    page: Path
    text: Path


def reproduce(
    study: StudyName,
    out: Path,
    *,
    mnist: Path | None = None,
    dataset: Path | None = None,
    scale: float | None = None,
    minutes: float | None = None,
    on_part: Callable[[int, int, str], None] | None = None,
    on_remark: Callable[[str], None] | None = None,
) -> Reproduced:
    """Do one of the paper's studies, or go on with it; parts that are done are not done again.

    Parameters
    ----------
    study : {"mnist", "imnet-63k", "imnet-1m"}
    out : path
        The study's folder. One that holds another study, or anything else, is refused.
    mnist : path, optional
        An .npz file of images for the study mnist; by default they are downloaded.
    dataset : path, optional
        A dataset folder with labels for the other studies; by default it is synthesized.
    scale : float, optional
        The size, 1 being the paper's; by default 1 for mnist, and for the others so that it takes minutes.
    minutes : float, optional
        The most that a method may take to learn; by default 4, and less at a small scale.
    on_part : function of (number from 1, count, what begins), optional
    on_remark : function of str, optional
        Called with what is odd.
    """
    if mnist is not None and study != "mnist":
        raise InvalidSettings(f"--mnist is for the study mnist, not for {study}; leave it out, or give --dataset")
    if dataset is not None and study == "mnist":
        raise InvalidSettings("--dataset is for imnet-63k and imnet-1m; for mnist, give images with --mnist FILE")
    protocol, folder = Protocol.of(study, scale, minutes), StudyFolder(out)
    given = mnist or dataset
    source = "got by the study itself" if given is None else str(given.resolve())
    about = {"study": study, "scale": protocol.scale, "points": source}
    make: Callable[[], Problem] = partial(mnist_problem, protocol, out, mnist)
    if study != "mnist":
        make = partial(imnet_problem, protocol, out, dataset)
    if given is None:  # what it gets is kept in its folder
        folder.open(about)
        problem = make()
    else:
        problem = make()
        folder.open(about)
    methods = methods_of(problem)
    parts = _parts(problem, methods)
    told = None if on_part is None else lambda number, part: on_part(number + 1, len(parts), part.title)
    results = folder.complete(parts, told, on_remark)
    found = _found(problem, methods, results)
    page, text = out / "study.html", out / "study.md"
    write_text(page, document(study_page(found)))
    write_text(text, study_markdown(found))
    return Reproduced(found, page, text)


def _parts(problem: Problem, methods: list[Method]) -> list[Part]:
    """All that is to be done, in order."""
    given = {**problem.protocol.to_json(), "data": problem.fingerprint}
    of_method = {name: value for name, value in given.items() if name not in ("steps", "simulated_rank", "servers")}
    of_scaling = {name: value for name, value in given.items() if name not in ("minutes", "rank")}

    def measured(method: Method) -> Callable[[Mapping[str, Result]], Result]:
        return lambda _: method.measure(problem)

    def going_by_scaling(make: Callable[[Problem, Courses], Courses]) -> Callable[[Mapping[str, Result]], Result]:
        return lambda done: make(problem, _courses(done, "scaling"))

    of_methods = [
        Part(f"method-{method.key}", f"{method.name}: {method.how}", MethodResult, of_method, measured(method))
        for method in methods
    ]
    later: dict[str, tuple[str, Callable[[Problem, Courses], Courses]]] = {
        "workers": ("1 and 2 real workers", real_scaling),
        "consistency": ("16 simulated workers: bsp, ssp:4, asp", partial(compared_consistencies, stragglers=None)),
        "straggler": ("the same, one worker slower by 4", partial(compared_consistencies, stragglers=STRAGGLER)),
    }
    return [
        *of_methods,
        Part("scaling", "1 to 64 simulated workers", Courses, of_scaling, lambda _: simulated_scaling(problem)),
        *(
            Part(name, title, Courses, of_scaling, going_by_scaling(make), after=("scaling",))
            for name, (title, make) in later.items()
        ),
    ]


def _found(problem: Problem, methods: list[Method], results: Mapping[str, Result]) -> Found:
    of_methods = [results[f"method-{method.key}"] for method in methods]
    return Found(
        protocol=problem.protocol,
        source=problem.source,
        n_points=len(problem.points),
        n_features=problem.points.n_features,
        n_test_points=len(problem.test_points),
        methods=tuple(one for one in of_methods if isinstance(one, MethodResult)),
        left_out=left_out(problem),
        scaling=_courses(results, "scaling"),
        workers=_courses(results, "workers"),
        consistency=_courses(results, "consistency"),
        straggler=_courses(results, "straggler"),
    )


def _courses(results: Mapping[str, Result], name: str) -> Courses:
    found = results[name]
    assert isinstance(found, Courses)
    return found
