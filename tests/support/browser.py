"""Opens every page of a folder in a headless browser, and collects what goes wrong in it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Empty, Queue
from threading import Thread

#: Stands first in each page: tells the page around it of errors, also of files that are missing.
WATCH = """<script>{
const say = text => parent.problems?.push(location.pathname + ": " + text);
const error = console.error;
console.error = (...words) => { say(words.join(" ")); error(...words); };
addEventListener("error", e => say(e.message || "missing: " + (e.target.src || e.target.href)), true);
addEventListener("unhandledrejection", e => say(e.reason));
addEventListener("load", () => {
    for (const image of document.images)
        if (!(image.complete && image.naturalWidth)) say("broken image " + image.src);
});
}</script>"""
#: Opens the pages one after the other in a frame.
OPENER = """<!doctype html><title>opener</title><iframe width="1200" height="900"></iframe><script>
window.problems = [];
const frame = document.querySelector("iframe"), pages = PAGES;
(async () => {
    for (const page of pages) {
        await new Promise(done => { frame.onload = done; frame.src = page; });
        if (!frame.contentDocument?.querySelector("h1")) problems.push(page + ": no heading");
        await new Promise(done => setTimeout(done, 20));
    }
    await fetch("/report", {method: "POST", body: JSON.stringify([pages.length, problems])});
})();
</script>"""


class _Handler(SimpleHTTPRequestHandler):
    """Serves a folder; pages get the script that watches them."""

    def __init__(self, *args: object, opener: str, reports: Queue[str], **kwargs: object) -> None:
        self.opener, self.reports = opener, reports
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        path = Path(self.translate_path(self.path))
        if self.path == "/opener":
            self.reply(self.opener)
        elif path.suffix == ".html" and path.is_file():
            self.reply(path.read_text("utf-8").replace("<head>", f"<head>{WATCH}", 1))
        else:
            super().do_GET()

    def do_POST(self) -> None:
        self.reports.put(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.reply("")

    def reply(self, text: str) -> None:
        body = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Says nothing."""


def problems_of_pages(browser: str, folder: Path, pages: list[str], profile: Path, seconds: float) -> list[str]:
    """What went wrong in pages of a folder, opened by a browser one after the other.

    Args:
        browser: the program.
        pages: paths relative to `folder`.
        profile: an empty folder for the browser's own files.
        seconds: how long all of them may take.
    Raises: TimeoutError.
    """
    reports: Queue[str] = Queue()
    opener = OPENER.replace("PAGES", json.dumps([f"/{page}" for page in pages]))
    handler = partial(_Handler, directory=str(folder), opener=opener, reports=reports)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0"]
        address = f"http://127.0.0.1:{server.server_address[1]}/opener"
        process = subprocess.Popen(
            [browser, *options, f"--user-data-dir={profile}", address],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            opened, problems = json.loads(reports.get(timeout=seconds))
        except Empty:
            raise TimeoutError(f"{len(pages)} pages were not opened in {seconds:.0f} s") from None
        finally:
            # With the browser that Debian's script has started.
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()
            server.shutdown()
    assert opened == len(pages)
    return [str(problem) for problem in problems]
