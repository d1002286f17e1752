"""The page of a run while it goes on: served on this machine only, asked for again and again by the page itself."""

import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, urlsplit

from nearfar.data.dataset import Dataset
from nearfar.errors import InvalidSettings, NearfarError
from nearfar.model.run import RunFolder
from nearfar.report.building import Choices, MetricParts, build_page, metric_parts
from nearfar.report.page import Page, document, page_parts, to_json
from nearfar.report.reading import ReportedRun, read_runs

HOST = "127.0.0.1"
_READING_SHARE = 20
"""A history that takes long to read is read again only after a pause this many times as long."""
_PAGE_ASKS_WITHIN = 3.0
"""A page that is open has asked within this many seconds."""
_LAST_SECONDS = 20.0

_Stamp = tuple[int, int] | None


class Watched:
    """A run that may be going on, as a page that is made anew when there is something new; safe between threads."""

    def __init__(self, path: Path, choices: Choices) -> None:
        self._path, self._choices = path, choices
        self._lock = threading.Lock()
        self._page: Page | None = None
        self.version = ""
        """Changes whenever the page does."""
        self.has_ended = False
        """Whether the run has ended, and its metric's figures are on the page."""
        self._seen: tuple[Any, ...] = ()
        self._read_again_at = 0.0
        self._judging: threading.Thread | None = None
        self._judged: tuple[_Stamp, MetricParts] = (None, MetricParts([], [], []))
        if choices.dataset is not None:
            Dataset.open(choices.dataset)  # what is wrong with it is said now, not when the run ends
        self._refresh(time.monotonic())

    def page(self) -> tuple[Page, str]:
        """The page as of now, and its version."""
        with self._lock:
            now = time.monotonic()
            if now >= self._read_again_at:
                self._refresh(now)
            assert self._page is not None
            return self._page, self.version

    def _refresh(self, now: float) -> None:
        folder = RunFolder(self._path)
        metric, (judged, parts) = _stamp(folder.metric), self._judged
        seen = (_stamp(folder.description), _stamp(folder.history), metric, judged)
        if seen == self._seen:
            return
        run = read_runs([self._path], live=True)[0]
        self._judge(run, metric)
        self._page = build_page([run], parts, _status(run, judged == metric))
        self._seen = seen
        self.version = f"{time.monotonic_ns():x}"
        self.has_ended = run.has_ended and judged == metric
        self._read_again_at = now + _READING_SHARE * (time.monotonic() - now)

    def _judge(self, run: ReportedRun, stamp: _Stamp) -> None:
        """Begin to judge a metric that is new, on a thread of its own: it may take a while."""
        if run.metric is None or stamp == self._judged[0] or (self._judging and self._judging.is_alive()):
            return

        def judge() -> None:
            try:
                parts = metric_parts([run], self._choices)
            except Exception as error:  # whatever is wrong with the metric, its history is still worth watching
                parts = MetricParts([], [], [f"The metric could not be judged: {error}"])
            with self._lock:
                self._judged = stamp, parts
                self._read_again_at = 0.0

        self._judging = threading.Thread(target=judge, daemon=True)
        self._judging.start()


class WatchServer:
    """Serves one run's page on this machine. Used as ``with WatchServer(...) as server``."""

    def __init__(self, path: Path, port: int, choices: Choices) -> None:
        self.watched = Watched(path, choices)
        self.asked_at = -1.0
        """When the page last asked for news."""
        self.shown_version = ""
        """The version that a page has got."""
        try:
            self._server = ThreadingHTTPServer((HOST, port), _handler(self))
        except (OSError, OverflowError) as error:
            raise InvalidSettings(
                f"port {port} cannot be used: {error}; choose another, or leave --port out"
            ) from error
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)

    @property
    def address(self) -> str:
        """Where the page is."""
        return f"http://{HOST}:{self._server.server_port}/"

    def __enter__(self) -> "WatchServer":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()

    def wait(self, until_done: bool) -> None:
        """Wait for ever, or until the run has ended and the pages that are open show it."""
        while not (until_done and self._is_done()):
            time.sleep(0.2)
        give_up_at = time.monotonic() + _LAST_SECONDS
        while self._is_unseen() and time.monotonic() < give_up_at:
            time.sleep(0.1)

    def _is_done(self) -> bool:
        self.watched.page()
        return self.watched.has_ended

    def _is_unseen(self) -> bool:
        is_open = time.monotonic() - self.asked_at < _PAGE_ASKS_WITHIN
        return is_open and self.shown_version != self.watched.version

    def answer(self, path: str) -> tuple[HTTPStatus, str, str]:
        """Status, type and content for a path."""
        parts = urlsplit(path)
        if parts.path == "/":
            page, version = self.watched.page()
            self.asked_at = time.monotonic()
            return HTTPStatus.OK, "text/html", document(page, live_version=version)
        if parts.path != "/page.json":
            return HTTPStatus.NOT_FOUND, "text/plain", "There is only one page here: /"
        page, version = self.watched.page()
        self.asked_at = time.monotonic()
        known = parse_qs(parts.query).get("known", [""])[0]
        if known == version:
            self.shown_version = version
            return HTTPStatus.NO_CONTENT, "application/json", ""
        news = {"version": version, "figures": page.figures, **page_parts(page)}
        return HTTPStatus.OK, "application/json", to_json(news)

    def allows(self, host: str) -> bool:
        """Whether a request names this machine: a page from elsewhere must not read runs through a browser."""
        return urlsplit(f"//{host}").hostname in (HOST, "localhost")


def _handler(server: WatchServer) -> Callable[..., BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if not server.allows(self.headers.get("Host", "")):
                self._send(HTTPStatus.FORBIDDEN, "text/plain", "This page is for this machine only.")
                return
            try:
                self._send(*server.answer(self.path))
            except NearfarError as error:  # the run folder is gone, or not whole at this moment
                self._send(HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", str(error))

        def _send(self, status: HTTPStatus, kind: str, content: str) -> None:
            body = content.encode()
            self.send_response(status)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            try:
                self.wfile.write(body)
            except ConnectionError:  # the page was closed meanwhile
                self.close_connection = True

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class' name for it
            """Say nothing: the page tells enough."""

    return Handler


def _status(run: ReportedRun, is_judged: bool) -> str:
    if run.has_ended:
        return "The run has ended." if is_judged else "The run has ended; its metric is being judged."
    if not run.reports:
        return "The run has begun; there is no report yet."
    last = run.reports[-1]
    share = f", {100 * last.used:.0f} % of the budget" if last.used else ""
    return f"Live: step {last.step:,} after {last.seconds:,.1f} s{share}."


def _stamp(path: Path) -> _Stamp:
    """Changes when a file does."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_mtime_ns, status.st_size
