"""A real browser without a window, controlled through the W3C's WebDriver protocol, and a web server for its pages."""

import base64
import contextlib
import functools
import http.server
import json
import shutil
import subprocess
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

from kit.servers import free_port, wait_for

# Several of these stop the browser from trying to contact its vendor, which it does even without a network.
ARGUMENTS = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
    --disable-component-update --disable-sync --hide-scrollbars""".split()
MISSING = "chromium and chromedriver are missing: apt-get install chromium chromium-driver"
REPLY_SECONDS = 120


class Browser:
    """One tab of Chromium."""

    def __init__(self, port: int, profile: Path):
        self.address = f"http://127.0.0.1:{port}"
        options = {"args": [*ARGUMENTS, f"--user-data-dir={profile}"], "binary": shutil.which("chromium")}
        wanted = {"alwaysMatch": {"browserName": "chrome", "goog:chromeOptions": options}}
        session = self._ask("POST", "/session", {"capabilities": wanted})
        self.address += f"/session/{session['sessionId']}"

    def _ask(self, method: str, path: str, body: dict | None = None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=REPLY_SECONDS) as reply:
                return json.load(reply)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(json.load(error)["value"]["message"]) from None

    def open(self, url: str) -> None:
        """Opens a page, and waits until it has loaded."""
        self._ask("POST", "/url", {"url": url})

    def run(self, script: str, *arguments):
        """Runs a script in the page, and returns its result."""
        return self._ask("POST", "/execute/sync", {"script": script, "args": arguments})

    def wait_for(self, script: str) -> None:
        """Waits until this script returns true."""
        deadline = time.monotonic() + REPLY_SECONDS
        while not self.run(script):
            assert time.monotonic() < deadline, f"not in {REPLY_SECONDS} s: {script}"
            time.sleep(0.05)

    def resize(self, width: int, height: int, dark: bool = False) -> None:
        """Sets the size of the page itself, without the window around it, and the preferred colour scheme."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self._developer("Emulation.setDeviceMetricsOverride", metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._developer("Emulation.setEmulatedMedia", {"features": [scheme]})

    def _developer(self, command: str, parameters: dict):
        return self._ask("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def press(self, *keys: str) -> None:
        """Presses keys, one after the other, wherever the focus is."""
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self._ask("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def picture(self, path: Path) -> None:
        """Saves a picture of the whole page as PNG."""
        picture = self._developer("Page.captureScreenshot", {"captureBeyondViewport": True})
        path.write_bytes(base64.b64decode(picture["data"]))

    def close(self) -> None:
        self._ask("DELETE", "")


@contextlib.contextmanager
def browser(profile: Path):
    """A browser with a new profile in this folder."""
    driver = shutil.which("chromedriver")
    assert driver and shutil.which("chromium"), MISSING
    # A driver that chooses its own port picks one that is free on IPv4, and fails if that port is in use on IPv6.
    port, log = free_port(), profile / "driver.log"
    with open(log, "wb") as output:
        process = subprocess.Popen([driver, f"--port={port}"], stdout=output, stderr=output)
    try:
        wait_for(lambda: process.poll() is not None or "started successfully" in log.read_text(), "chromedriver to start")
        assert process.poll() is None, f"chromedriver did not start:\n{log.read_text()}"
        tab = Browser(port, profile)
        try:
            yield tab
        finally:
            tab.close()
    finally:
        process.terminate()
        process.wait()


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves the files of a folder without logging each request to stderr."""

    def log_message(self, *arguments):
        pass


@contextlib.contextmanager
def web_server(folder: Path):
    """Serves the files of this folder, and yields the address."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
