"""Drives Chromium through its debugging pipe, and checks what a reader of a report sees: `look.py FOLDER REPORT.html …`."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

# Without these, Chromium looks for its maker's servers.
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
)

_CONTRAST = """
(() => {
  const parts = color => color.match(/[\\d.]+/g).map(Number);
  const light = color => parts(color).slice(0, 3).map(c => c / 255)
      .map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
      .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = light(getComputedStyle(document.documentElement).backgroundColor);
  const low = [];
  for (const each of document.querySelectorAll("p, h1, h2, td, th, a, summary, code")) {
    const style = getComputedStyle(each);
    const text = light(style.color);
    const ratio = (Math.max(text, ground) + 0.05) / (Math.min(text, ground) + 0.05);
    if (ratio < 4.5 && each.textContent.trim()) low.push(each.textContent.trim().slice(0, 30) + " " + ratio.toFixed(2));
  }
  return {ground, low: low.slice(0, 5)};
})()
"""
"""The brightness of the page, and texts with less contrast than WCAG 2 asks for, apart from drawings, which have XLA's colors."""

_FOCUSED = """
(() => {
  const at = document.activeElement, style = getComputedStyle(at);
  return {tag: at.tagName, text: at.textContent.trim().slice(0, 40), outline: style.outlineStyle + " " + style.outlineWidth};
})()
"""


class Browser:
    """A Chromium with one page."""

    def __init__(self, profile: str) -> None:
        ours, theirs = os.pipe(), os.pipe()
        give, take = (fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (ours[0], theirs[1]))

        def connect() -> None:
            os.dup2(give, 3)
            os.dup2(take, 4)

        command = [os.environ.get("CHROMIUM", "chromium"), *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        self.process = subprocess.Popen(command, close_fds=False, preexec_fn=connect, stderr=subprocess.DEVNULL)
        for end in (ours[0], theirs[1], give, take):
            os.close(end)
        self._to, self._from = os.fdopen(ours[1], "wb", buffering=0), os.fdopen(theirs[0], "rb", buffering=0)
        self._rest = b""
        self._number = 0
        self._session = ""
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            part = self._from.read(1 << 20)
            if not part:
                raise SystemExit("look: the browser ended")
            self._rest += part
        first, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(first)
        return message

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Calls a method of the protocol, and keeps the events that come before its answer."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        self._to.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._message()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise SystemExit(f"look: {method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def open(self, path: Path) -> None:
        """Opens a file and waits until it is loaded."""
        self.events.clear()
        self.call("Page.navigate", url=path.absolute().as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._message())

    def value(self, expression: str) -> Any:
        """Evaluates JavaScript in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise SystemExit(f"look: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def window(self, width: int, height: int, *, dark: bool = False, media: str = "") -> None:
        """Sets the window's size and the media that style sheets ask for."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[scheme])

    def press(self, key: str, code: int, text: str = "") -> None:
        """Presses a key."""
        event = {"key": key, "code": key if key != " " else "Space", "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown", **event, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """Writes a screenshot."""
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))


def check(fact: object, what: str) -> None:
    """Ends the program if something isn't so."""
    if not fact:
        sys.exit(f"look: {what}")


def look(browser: Browser, report: Path, folder: Path) -> None:
    """Checks one report."""
    name = report.stem
    browser.window(1200, 900)
    browser.open(report)
    headings = browser.value("[...document.querySelectorAll('h2')].map(each => each.textContent)")
    check(headings[:2] == ["Compiled", "Graph"], f"{name} has the sections {headings}")
    check(
        browser.value("[...document.querySelectorAll('main section')].every(each => each.innerText.length > 30)"),
        "a section is empty",
    )
    check(browser.value("[...document.querySelectorAll('.drawing svg')].length") > 0, "there is no drawing")
    ids = browser.value(
        "(() => { const ids = [...document.querySelectorAll('[id]')].map(e => e.id); return ids.length - new Set(ids).size; })()"
    )
    check(ids == 0, f"{ids} identifiers are there twice")
    broken = browser.value(
        "[...document.querySelectorAll('a')].filter(a => !document.getElementById((a.getAttribute('href') || '#').slice(1))).length"
    )
    check(broken == 0, f"{broken} links lead nowhere")
    browser.picture(folder / f"{name}.png")
    browser.value("document.querySelectorAll('details').forEach(each => each.open = true)")
    wide = browser.value("document.documentElement.scrollWidth - innerWidth")
    check(wide <= 0, f"the page is {wide} pixels too wide")
    for section in ("graph", "hlo", "memory", "time", "numbers", "what-compiles-it-again"):
        if browser.value(f"!!document.getElementById('{section}')"):
            browser.value(f"document.getElementById('{section}').scrollIntoView()")
            browser.picture(folder / f"{name}.{section}.png")
    low = browser.value(_CONTRAST)
    check(low["ground"] > 0.8 and not low["low"], f"in light mode, too little contrast: {low}")
    browser.window(1200, 900, dark=True)
    low = browser.value(_CONTRAST)
    check(low["ground"] < 0.1 and not low["low"], f"in dark mode, too little contrast: {low}")
    browser.value("document.getElementById('graph').scrollIntoView()")
    browser.picture(folder / f"{name}.dark.png")

    browser.window(390, 844)
    wide = browser.value("document.documentElement.scrollWidth - innerWidth")
    check(wide <= 0, f"on a phone, the page is {wide} pixels too wide")
    small = browser.value(
        "Math.min(...[...document.querySelectorAll('p, td, summary')].map(e => parseFloat(getComputedStyle(e).fontSize)))"
    )
    check(small >= 12, f"on a phone, text is {small} pixels high")
    plots = browser.value("[...document.querySelectorAll('.plot')].map(each => each.getBoundingClientRect().right)")
    check(all(right <= 390 for right in plots), f"on a phone, plots end at {plots}")
    browser.value("(document.getElementById('memory') || document.body).scrollIntoView()")
    browser.picture(folder / f"{name}.phone.png")

    browser.window(1200, 900, media="print")
    check(
        browser.value("getComputedStyle(document.querySelector('nav')).display") == "none", "print shows the navigation"
    )
    check(
        browser.value(
            "[...document.querySelectorAll('.scroll, pre')].every(e => getComputedStyle(e).maxHeight == 'none')"
        ),
        "print cuts what scrolls",
    )
    browser.value("document.querySelectorAll('details').forEach(each => each.open = false)")
    pdf = base64.b64decode(browser.call("Page.printToPDF")["data"])
    check(pdf.startswith(b"%PDF") and len(pdf) > 5000, "print makes no PDF")
    (folder / f"{name}.pdf").write_bytes(pdf)

    keyboard(browser, report)
    faults = [
        event
        for event in browser.events
        if event.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled")
    ]
    check(not faults, f"the console has messages: {faults}")
    asked = {
        event["params"]["request"]["url"].partition(":")[0]
        for event in browser.events
        if event.get("method") == "Network.requestWillBeSent"
    }
    check(asked <= {"file", "data"}, f"it asks for {asked}")


def keyboard(browser: Browser, report: Path) -> None:
    """Checks that all controls can be reached, show it, and do their work, without a mouse."""
    browser.window(1200, 900)
    browser.open(report)
    tags = []
    for _ in range(browser.value("document.querySelectorAll('a').length") + 40):
        browser.press("Tab", 9)
        at = browser.value(_FOCUSED)
        tags.append(at["tag"])
        if at["tag"] == "BODY":
            break
        check(at["outline"].startswith("solid"), f"the keyboard's place isn't visible: {at}")
    check({"A", "SUMMARY", "INPUT", "DIV"} <= set(tags), f"the keyboard reaches only {sorted(set(tags))}")
    browser.value("document.querySelector('summary').focus()")
    browser.press("Enter", 13, "\r")
    check(browser.value("document.querySelector('summary').parentElement.open"), "Enter doesn't open what is folded")
    browser.value("document.querySelector('.zoom input').focus()")
    before = browser.value("document.querySelector('.zoom svg').getBoundingClientRect().width")
    for _ in range(3):
        browser.press("ArrowRight", 39)
    after = browser.value("document.querySelector('.zoom svg').getBoundingClientRect().width")
    check(after > 1.5 * before, f"the keyboard doesn't enlarge a drawing: {before} to {after}")


def main() -> None:
    """Looks at all reports."""
    folder, *reports = map(Path, sys.argv[1:])
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(profile)
        try:
            for report in reports:
                look(browser, report, folder)
                print(f"{report.name}: content, console, light, dark, phone, print, and keyboard are as they should be")
        finally:
            browser.process.kill()
            browser.process.wait()
    print(f"passed; screenshots are in {folder}")


if __name__ == "__main__":
    main()
