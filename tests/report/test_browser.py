"""The page in a real browser: Chromium, driven over a pipe by its DevTools protocol."""

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aircomp.report.gather import sections_of
from aircomp.report.page import Section, Table, write_page
from helpers.records import put_run

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium: install it to see the page in a real browser"),
]

# the browser talks on its descriptors 3 and 4
LAUNCH = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execv(sys.argv[3], sys.argv[3:])"
)

# of every element with text, against the nearest ground behind it
CONTRASTS = """(() => {
    const linear = c => c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4;
    const luminance = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
    const numbers = text => text.match(/[\\d.]+/g).map(Number);
    const ground = element => {
        const colour = numbers(getComputedStyle(element).backgroundColor);
        return colour[3] === 0 ? ground(element.parentElement) : colour;
    };
    const names = "h1, h2, p, a, th, td, button, pre, summary, caption, figcaption, text";
    return [...document.querySelectorAll(names)].map(element => {
        const style = getComputedStyle(element);
        const ink = luminance(numbers(element.tagName === "text" ? style.fill : style.color));
        const paper = luminance(ground(element));
        return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
    });
})()"""
SMALLEST_LETTERS = """Math.min(...[...document.querySelectorAll("figure svg text")].map(text => {
    const svg = text.ownerSVGElement;
    const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
    return parseFloat(getComputedStyle(text).fontSize) * scale;
}))"""


class Browser:
    """One tab of a headless browser."""

    def __init__(self, profile: Path):
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for pair in (os.pipe(), os.pipe()) for end in pair]  # clear of 3, 4
        child_in, self._out, self._in, child_out = ends
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe"]
        flags += [f"--user-data-dir={profile}", "--no-first-run", "--disable-extensions", "--hide-scrollbars"]
        command = [sys.executable, "-c", LAUNCH, str(child_in), str(child_out), str(CHROMIUM), *flags]
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(command, pass_fds=(child_in, child_out), stdout=quiet, stderr=quiet)
        os.close(child_in)
        os.close(child_out)
        self._number, self._buffer, self._session = 0, b"", ""
        self.complaints: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command and return its answer."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        message |= {"sessionId": self._session} if self._session else {}
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while (answer := self._read()).get("id") != self._number:
            self._note(answer)
        assert "error" not in answer, answer
        return answer["result"]

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            more = os.read(self._in, 1 << 16)
            assert more, "the browser went away"
            self._buffer += more
        line, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(line)

    def _note(self, event: dict[str, Any]) -> None:
        method, params = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown" or (method == "Log.entryAdded" and params["entry"]["level"] == "error"):
            self.complaints.append(json.dumps(params))
        if method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.complaints.append(json.dumps(params))

    def open(self, page: Path, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Show a page in a window of some size."""
        self.complaints.clear()
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=page.as_uri())
        while (event := self._read()).get("method") != "Page.loadEventFired":
            self._note(event)

    def ask(self, expression: str) -> Any:
        """Evaluate JavaScript in the page."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def click(self, selector: str) -> None:
        """Press the mouse in the middle of an element."""
        self.ask(f"document.querySelector({selector!r}).scrollIntoView({{block: 'center'}})")
        box = f"document.querySelector({selector!r}).getBoundingClientRect()"
        x, y = self.ask(f"(b => [b.x + b.width / 2, b.y + b.height / 2])({box})")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, selector: str, key: str) -> None:
        """Press a key on an element that has the focus."""
        self.ask(f"document.querySelector({selector!r}).focus()")
        code = {"Enter": 13, " ": 32}[key]
        text = "\r" if key == "Enter" else key
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, text=text, windowsVirtualKeyCode=code)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def close(self) -> None:
        """End the browser."""
        os.close(self._out)
        self._process.terminate()
        self._process.wait(timeout=20)
        os.close(self._in)


@pytest.fixture(scope="module")
def browser(tmp_path_factory) -> Iterator[Browser]:
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    """Two runs and an evaluation, the first of them hostile."""
    root = tmp_path_factory.mktemp("runs")
    hostile = "<img src=x onerror=\"console.error('ran')\"><script>console.error('ran')</script>"
    for name, uplink, snr_db, accuracy in (
        ("a", "gamp", 5.0, 0.9),
        ("b", "amp-da", 0.0, 0.12),
        ("c", hostile, 10.0, None),
    ):
        row = {
            "uplink": uplink,
            "snr_db": snr_db,
            "rounds": 3,
            "test_accuracy_last5": accuracy,
            "seconds": 10.0 * snr_db,
        }
        row |= {"best_test_accuracy": 0.91, "stability": 0.0123, "count_accuracy": 0.5, "update_nmse": 1.25}
        row |= {"num_active_mae": 0.25, "channel_uses_per_parameter": 3.205}
        config = {"uplink": uplink, "channel": {"snr_db": snr_db}, "note": hostile}
        records = [
            {"round": r, "test_accuracy": 0.3 * r, "test_loss": 2.0 / r, "update_nmse": 0.5 / r} for r in (1, 2, 3)
        ]
        put_run(root / name, "simulate", [row], config, records)
    rows = [
        {
            "decoder": d,
            "snr_db": s,
            "snr_reference": "round",
            "count_accuracy": 0.05 * s + 0.1,
            "update_nmse_hard": 1 / (s + 1),
        }
        for d in ("gamp", "amp-da")
        for s in (0.0, 5.0, 10.0)
    ]
    put_run(root / "ev", "evaluate", rows, {"fragments": "runs/f", "snr_db": [0, 5, 10]})
    out = root / "report.html"
    return write_page(out, hostile, sections_of([root / n for n in ("a", "b", "c", "ev")], beside=root), lead=hostile)


def column(browser: Browser, name: str) -> list[str]:
    """Return the first table's cells under a heading, from top to bottom."""
    return browser.ask(f"""(() => {{
        const table = document.querySelector("table");
        const at = [...table.tHead.rows[0].cells].findIndex(c => c.textContent.trim() === {name!r});
        return [...table.tBodies[0].rows].map(row => row.cells[at].textContent);
    }})()""")


def heading(browser: Browser, name: str) -> str:
    """Return a selector of the button in the first table's heading of that name."""
    place = browser.ask(
        f"[...document.querySelector('table').tHead.rows[0].cells].findIndex(c => c.textContent.trim() === {name!r}) + 1"
    )
    return f"table thead th:nth-child({place})"


def test_every_figure_is_drawn_and_nothing_complains(browser, page):
    browser.open(page)
    sizes = browser.ask(
        "[...document.querySelectorAll('figure svg')].map(s => s.getBoundingClientRect()).map(b => [b.width, b.height])"
    )
    assert len(sizes) == page.read_text().count("<figure>") >= 5
    assert all(width > 200 and height > 100 for width, height in sizes)
    ids = browser.ask("[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))
    assert browser.complaints == []  # nor did anything from the files run


def test_the_policy_stops_a_script_that_is_not_ours(browser, page, tmp_path):
    other = tmp_path / "other.html"
    other.write_text(page.read_text().replace("</main>", "<script>document.title = 'ran'</script></main>"))
    browser.open(other)
    assert browser.ask("document.title") != "ran"
    assert any("Content Security Policy" in complaint for complaint in browser.complaints)


def test_a_heading_sorts_by_number_and_back_with_missing_last(browser, page):
    browser.open(page)
    assert column(browser, "test accuracy, last five") == ["0.9", "0.12", "–"]
    selector = heading(browser, "test accuracy, last five")
    browser.click(f"{selector} button")
    assert column(browser, "test accuracy, last five") == ["0.12", "0.9", "–"]
    assert browser.ask(f"document.querySelector('{selector}').ariaSort") == "ascending"
    browser.click(f"{selector} button")
    assert column(browser, "test accuracy, last five") == ["0.9", "0.12", "–"]
    assert browser.ask(f"document.querySelector('{selector}').ariaSort") == "descending"


def test_the_keyboard_sorts_too(browser, page):
    browser.open(page)
    browser.press(f"{heading(browser, 'SNR (dB)')} button", "Enter")
    assert column(browser, "SNR (dB)") == ["0", "5", "10"]
    browser.press(f"{heading(browser, 'run')} button", " ")
    assert column(browser, "run") == ["a", "b", "c"]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_theme_follows_the_system_until_its_button_is_pressed(browser, page, dark):
    browser.open(page, dark=dark)
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    ink = "getComputedStyle(document.querySelector('figure svg text')).fill"
    light, night = "rgb(255, 255, 255)", "rgb(21, 24, 28)"
    before = browser.ask(ink)
    assert browser.ask(ground) == (night if dark else light)
    browser.click("#theme")
    assert browser.ask(ground) == (light if dark else night)
    assert browser.ask(ink) != before


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_all_text_has_a_contrast_of_four_and_a_half(browser, page, dark):
    browser.open(page, dark=dark)
    contrasts = browser.ask(CONTRASTS)
    assert len(contrasts) > 100
    assert min(contrasts) >= 4.5


def test_a_phone_scrolls_tables_and_not_the_page(browser, page):
    browser.open(page, width=390, height=844)
    assert browser.ask("document.documentElement.scrollWidth") <= 390
    assert browser.ask("document.querySelector('.scroll').scrollWidth > document.querySelector('.scroll').clientWidth")
    widths = browser.ask("[...document.querySelectorAll('figure svg')].map(s => s.getBoundingClientRect().width)")
    assert all(300 < width <= 390 for width in widths)
    smallest = browser.ask(SMALLEST_LETTERS)
    assert smallest >= 8  # pixels


def test_commands_can_be_copied_and_configurations_opened(browser, page):
    browser.open(page)
    browser.click("details[open] .copy")
    labels = "document.querySelector('details[open] .copy').textContent"
    wait = "new Promise(done => setTimeout(() => done(" + labels + "), 100))"
    assert browser.ask(wait) in ("Copied", "Selected")
    browser.click("details:not([open]) summary")
    assert browser.ask("document.querySelectorAll('details:not([open])').length") == 1  # there were two


def test_paper_gets_light_colours_and_no_buttons(browser, page):
    browser.open(page, dark=True, width=718)  # A4 between its margins
    browser.call(
        "Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}]
    )
    assert browser.ask("getComputedStyle(document.documentElement).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.ask("getComputedStyle(document.querySelector('#theme')).display") == "none"
    widths = browser.ask("[...document.querySelectorAll('table')].map(t => t.getBoundingClientRect().width)")
    assert max(widths) <= 718  # paper does not scroll
    browser.call("Emulation.setEmulatedMedia", media="")


def test_a_line_can_be_hidden_and_a_point_tells_its_numbers(browser, page):
    browser.open(page)
    drawing = 'document.querySelector(".drawing[data-points]")'
    assert browser.ask(f"{drawing}.nextElementSibling.querySelectorAll('input').length") > 1
    mark = f"{drawing}.querySelector('[id$=\"-series0\"] use')"
    assert browser.ask(f"getComputedStyle({mark}).display") != "none"
    told = """(() => {
        const mark = %s, box = mark.getBoundingClientRect(), at = {clientX: box.x + box.width / 2, clientY: box.y + 2};
        mark.dispatchEvent(new PointerEvent("pointermove", {bubbles: true, ...at}));
        return document.querySelector(".tip").textContent;
    })()"""
    label, point = browser.ask(f"JSON.parse({drawing}.dataset.points)[0]")
    assert browser.ask(told % mark).startswith(f"{label}: ")
    assert point
    browser.ask(f"{drawing}.nextElementSibling.querySelector('input').click()")
    assert browser.ask(f"{mark}.closest('[hidden]') !== null")


def test_a_table_can_be_taken_as_a_file(browser, page):
    browser.open(page)
    text = browser.ask('csvOf(document.querySelector("table"))')
    rows = [line.split(",") for line in text.split("\r\n")]
    assert len(rows) == browser.ask('document.querySelector("table").rows.length')
    assert rows[0][0].startswith('"')
    assert browser.ask('document.querySelectorAll("button.csv").length') == browser.ask(
        'document.querySelectorAll("table").length'
    )


def test_a_row_links_to_the_command_that_measures_it(browser, tmp_path):
    rows = [{"scheme": name, "raw_nmse": 0.5, "command": f"aircomp arena --scheme {name}"} for name in ("baa", "obda")]
    rows.append({"scheme": "unknown", "raw_nmse": 0.5, "command": "a command that no section has"})
    table = Table("Measured", {"scheme": "scheme", "raw_nmse": "NMSE"}, rows)
    commands = tuple(row["command"] for row in rows[:2])
    tall = Section("Others", "word " * 5000)
    browser.open(write_page(tmp_path / "page.html", "Links", [Section("First", "", (), (table,)), tall]))
    assert browser.ask("document.querySelectorAll('tbody a').length") == 0
    sections = [Section("First", "", (), (table,)), tall, Section("Last", commands=commands)]
    browser.open(write_page(tmp_path / "page.html", "Links", sections))
    assert browser.ask("document.querySelectorAll('tbody a').length") == 2
    browser.click("tbody tr:nth-child(2) a")
    assert browser.ask("document.querySelector(':target').textContent") == commands[1]
    place = browser.ask("document.querySelector(':target').getBoundingClientRect().top")
    assert 0 <= place < browser.ask("innerHeight")
    assert browser.ask("document.querySelector('td[data-value]').parentElement.title") == commands[0]
    assert browser.ask("document.querySelector('pre').textContent") == "\n".join(commands)
