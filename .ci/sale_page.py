"""Looks at the page of `penstock demo` in a real browser, until the ledger is there.

    sale_page.py PENSTOCK [PICTURE.png [MOMENT.png]]

Chromium shows the page while the sale runs. The page must ask nobody but the demo, log no error,
and show PASS, the kill, every check of the ledger, and charts that are not empty. PICTURE shows the
end, MOMENT the sale some seconds behind the kill. Needs chromium and chromedriver of Debian.
"""

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--window-size=1240,1010",
]
# Distinct colours of each canvas, and what the page has loaded besides itself.
LOOK = """
const colours = {};
for (const canvas of document.querySelectorAll('canvas')) {
  const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  const seen = new Set();
  for (let at = 0; at < data.length; at += 4) seen.add(data.slice(at, at + 4).join());
  colours[canvas.id] = seen.size;
}
return {
  colours,
  stage: document.getElementById('stage').textContent,
  kills: document.getElementById('kills').textContent,
  sold: document.getElementById('sold').textContent,
  checks: [...document.querySelectorAll('#ledger td:first-child')].map((it) => it.textContent),
  loaded: performance.getEntriesByType('resource').map((it) => it.name),
};
"""


class Browser:
    """A page in Chromium, by the protocol of WebDriver."""

    def __init__(self, port, profile):
        self.root = f"http://127.0.0.1:{port}"
        options = {"args": FLAGS + [f"--user-data-dir={profile}"]}
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL"},
        }
        self.session = ""
        told = self.ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self.session = "/session/" + told["sessionId"]

    def ask(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.root + self.session + path, data, {"Content-Type": "application/json"},
            method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["value"]

    def look(self):
        return self.ask("POST", "/execute/sync", {"script": LOOK, "args": []})

    def picture(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.ask("GET", "/screenshot")))


def begin_driver(folder):
    """The process, and its port."""
    driver = subprocess.Popen(
        ["chromedriver", "--port=0"], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "HOME": folder})
    for line in driver.stdout:
        if "started successfully on port" in line:
            return driver, int(line.split("port")[1].strip(" .\n"))
    sys.exit("chromedriver did not start")


def begin_demo(penstock):
    """The process, and the address of its page."""
    demo = subprocess.Popen([penstock, "demo", "--page"], stdout=subprocess.PIPE, text=True)
    for line in demo.stdout:
        if line.startswith("page"):
            return demo, line.split()[1]
    sys.exit("the demo has no page")


def watch(browser, page, picture, moment):
    browser.ask("POST", "/url", {"url": page})
    killed, until = None, time.monotonic() + 120
    while True:
        seen = browser.look()
        if seen["kills"] == "1" and killed is None:
            killed = time.monotonic()
        if moment and killed and time.monotonic() > killed + 6:
            browser.picture(moment)
            moment = None
        if seen["stage"] in ("PASS", "FAIL"):
            break
        if time.monotonic() > until:
            sys.exit(f"no end is shown: {seen}")
        time.sleep(0.2)
    if picture:
        browser.picture(picture)
    others = [it for it in seen["loaded"] if it != page + "sale.json"]
    logged = browser.ask("POST", "/se/log", {"type": "browser"})
    errors = [it for it in logged if it["level"] == "SEVERE"]
    wrong = (
        seen["stage"] != "PASS" or seen["kills"] != "1" or seen["checks"] != ["ok"] * 6
        or not all(count >= 4 for count in seen["colours"].values())
        or len(seen["colours"]) != 4 or others or errors
    )
    print("wrong" if wrong else "ok", seen["stage"], seen["colours"], seen["checks"], others, errors)
    return 1 if wrong else 0


def main():
    penstock, picture, moment = (sys.argv[1:] + [None, None])[:3]
    for program in ("chromium", "chromedriver"):
        if shutil.which(program) is None:
            sys.exit(f"{program} is missing")
    folder = tempfile.mkdtemp()
    driver, port = begin_driver(folder)
    demo = None
    try:
        browser = Browser(port, os.path.join(folder, "profile"))
        demo, page = begin_demo(penstock)
        outcome = watch(browser, page, picture, moment)
        rest = demo.communicate(timeout=60)[0]
        print(rest[-1200:])
        browser.ask("DELETE", "")
        return outcome or demo.returncode
    finally:
        for process in (demo, driver):
            if process and process.poll() is None:
                process.terminate()
                process.wait()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
