# SPDX-License-Identifier: MIT
"""The page of `cachealloc report` in Debian's Chromium, from a file, without a network."""

import json
import os
import random
import re
import resource
import shutil
import subprocess
import sys

import pytest
from command import COMMAND, environment
from conftest import BUILD
from report_fixture import MIB, RECORDED, SIM_MEMORY, crafted, made, out_of_memory

QUICK_EVERY = 4  # conftest.py

try:
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
    OBSTACLE = None if shutil.which("chromium") and shutil.which("chromedriver") else "no Chromium"
except ImportError:
    OBSTACLE = "no selenium"
if not OBSTACLE and not (BUILD / "allocator" / "cachealloc-replay").exists():
    OBSTACLE = "not built: cachealloc-replay"
pytestmark = pytest.mark.skipif(bool(OBSTACLE), reason=f"{OBSTACLE} (scripts/setup.sh: build-browser.log)")
DRAWN = ("memory", "map", "waste", "sizes", "driver")
#: how many different colours a canvas has, and how many of its points are not the background
INK = """const c = document.getElementById(arguments[0]), d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data, seen = new Set();
let ink = 0;
for (let i = 0; i < d.length; i += 4) if (d[i + 3]) { ink++; seen.add(d[i] << 16 | d[i + 1] << 8 | d[i + 2]); }
return [seen.size, ink / (c.width * c.height)];"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="module")
def oom(folder):
    trace = out_of_memory(folder)
    made(folder / "oom.html", trace)
    return folder / "oom.html"


@pytest.fixture(scope="module")
def chromium(folder):
    options = Options()
    for word in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1200,1000", f"--user-data-dir={folder / 'profile'}"):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(service=Service(shutil.which("chromedriver")), options=options)
    driver.execute_cdp_cmd("Network.enable", {})
    driver.execute_cdp_cmd("Network.emulateNetworkConditions", {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0})
    driver.execute_cdp_cmd("Network.setBlockedURLs", {"urls": ["http://*", "https://*", "ws://*"]})
    yield driver
    driver.quit()


class Open:
    """A page that is drawn; every message of its console is a failure."""

    def __init__(self, driver, path, dark=False, width=1200):
        self.driver = driver
        driver.set_window_size(width, 1000)
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]})
        driver.get(path.as_uri())
        driver.set_script_timeout(60)
        driver.execute_async_script("const done = arguments[0]; window.report.start.then(() => requestAnimationFrame(() => done()), () => done());")
        self.quiet()

    def quiet(self):
        assert self.driver.get_log("browser") == []

    def script(self, text, *arguments):
        return self.driver.execute_script(text, *arguments)

    def text(self, name):
        return self.driver.find_element(By.ID, name).text

    def hover(self, name, x, y):
        """The words of the tip at (x, y) from the canvas's upper left."""
        canvas = self.driver.find_element(By.ID, name)
        self.script("arguments[0].scrollIntoView({block: 'center'})", canvas)
        size = canvas.size
        ActionChains(self.driver).move_to_element_with_offset(canvas, x - size["width"] // 2, y - size["height"] // 2).perform()
        return self.text("tip")

    def keys(self, name, *keys):
        canvas = self.driver.find_element(By.ID, name)
        self.script("arguments[0].focus({preventScroll: true})", canvas)
        for key in keys:
            canvas.send_keys(key)
        self.driver.execute_async_script("const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => done()));")

    def cursor(self):
        return self.script("return window.report.chosen().cursor")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_view_is_drawn(chromium, oom, dark):
    page = Open(chromium, oom, dark)
    for name in DRAWN:
        colours, ink = page.script(INK, name)
        assert colours >= 5 and ink > .02, (name, colours, ink)
    page.quiet()


def test_out_of_memory_is_said_in_words(chromium, oom):
    page = Open(chromium, oom)
    said = page.text("verdict")
    assert "Out of memory: 12.00 MiB were asked for." in said and "the memory is in pieces (fragmentation)." in said
    assert f"{SIM_MEMORY / MIB:.1f} MiB" in said and "200.0 MiB were free, in 40 pieces; the largest has 5.00 MiB" in said
    assert page.script("return window.report.chosen().state.runs.length") > 79


def test_the_reasons_are_told_apart(chromium, folder):
    base, full = 1 << 40, [(6, 1 << 40, 2 * MIB), (1, 1 << 40, 2 * MIB), (5, 8 * MIB, 2)]
    for name, device, settings, records, words in (
            ("little", 4 * MIB, "", full, "Nothing was free. Too little in all: the program needs more memory"),
            ("cap", 1 << 30, "CACHEALLOC_LIMIT=4M", full, "a limit was set: 4.00 MiB of the device's 1.00 GiB"),
            ("others", 1 << 30, "", full, "1022 MiB more could have been reserved"),
            ("kept", 24 * MIB, "", [(6, base, 20 * MIB), (1, base, MIB), (5, 8 * MIB, 2)], "Large enough, and not to be had")):
        (folder / f"{name}.trace").write_bytes(crafted(device=device, settings=settings, records=records))
        made(folder / f"{name}.html", folder / f"{name}.trace")
        assert words in Open(chromium, folder / f"{name}.html").text("verdict")


def test_the_pointer_tells_size_and_age(chromium, oom):
    page = Open(chromium, oom)
    head = page.script("return window.report.chosen().strip.head")
    tips = {page.hover("map", x, int(head) + 8) for x in (4, 40, 90, 150, 220)}
    blocks = [tip for tip in tips if tip.startswith("block: 5.00 MiB asked for, 5.00 MiB with rounding\nage ") and "allocated at" in tip]
    assert blocks and any(tip.startswith("free piece: 5.00 MiB") for tip in tips), tips
    assert "requested" in page.hover("memory", 500, 150) and "reserved" in page.text("tip")
    assert "rounding" in page.hover("waste", 500, 100)
    cell = page.script("const {x, y, w, h} = window.report.chosen().cells[0]; return [x + w / 2, y + h / 2]")
    assert "lifetime: " in page.hover("sizes", *map(int, cell)) and "in all" in page.text("tip")
    assert "taken" in page.hover("driver", 110, 60)
    page.quiet()


def test_figures_are_the_replays(chromium, oom, folder):
    page = Open(chromium, oom)
    done = subprocess.run([BUILD / "allocator" / "cachealloc-replay", folder / "oom.trace", "--json"], stdout=subprocess.PIPE, check=True)
    device = json.loads(done.stdout)["devices"][0]
    shown = page.script("return Object.fromEntries([...document.querySelectorAll('[data-figure]')].map((e) => [e.dataset.figure, e.dataset.value]))")
    assert len(shown) >= 12
    for name, value in shown.items():
        expected = device[name]["peak"] if isinstance(device[name], dict) else device[name]
        assert int(value) == expected, name
    assert "12" not in page.script("return document.querySelector('[data-figure=ooms]').textContent")
    sums = page.script("const m = window.report.chosen().model; return [m.requested[m.peak], m.reserved[m.peakReserved], m.marks.TAKEN.length]")
    assert sums[0] == device["peak_live_bytes"] and sums[1] <= SIM_MEMORY and sums[2] > 0


def test_keys_and_buttons(chromium, oom):
    page = Open(chromium, oom)
    at = page.cursor()
    page.keys("memory", Keys.HOME)
    assert page.cursor() == 0 and "event 0" in page.text("moment")
    page.keys("memory", "o")
    assert page.cursor() == at
    page.keys("map", Keys.SHIFT + Keys.ARROW_LEFT)
    assert page.cursor() == at - 1
    page.keys("map", Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_UP)
    assert page.text("tip").startswith(("block: ", "free piece: ")) and page.script("return window.report.chosen().picked") == 0
    page.keys("map", Keys.ESCAPE)
    assert not page.text("tip")
    page.keys("memory", "p")
    assert page.cursor() == page.script("return window.report.chosen().model.peak")
    page.keys("memory", "+", "+")
    span = "const v = window.report.chosen(); return (v.to - v.from) / (v.model.time[v.model.n - 1])"
    assert abs(page.script(span) - .25) < .01
    page.keys("memory", "0")
    assert abs(page.script(span) - 1) < .01
    chromium.find_element(By.ID, "axis-event").click()
    assert chromium.find_element(By.ID, "axis-event").get_attribute("aria-pressed") == "true"
    focusable = page.script("return [...document.querySelectorAll('canvas')].every((c) => c.tabIndex === 0 && c.getAttribute('aria-label'))")
    assert focusable
    page.quiet()


def test_a_drag_zooms_and_a_click_moves(chromium, oom):
    page = Open(chromium, oom)
    canvas = chromium.find_element(By.ID, "memory")
    page.script("arguments[0].scrollIntoView({block: 'center'})", canvas)
    ActionChains(chromium).move_to_element_with_offset(canvas, -100, -50).click_and_hold().move_by_offset(200, 0).release().perform()
    share = page.script("const v = window.report.chosen(); return (v.to - v.from) / v.model.time[v.model.n - 1]")
    assert .1 < share < .3
    before = page.cursor()
    ActionChains(chromium).move_to_element_with_offset(canvas, 0, 0).click().perform()
    assert page.cursor() != before
    page.quiet()


@pytest.mark.parametrize("name", ["medium_1024_training.pickle.xz", "inf1024.trc.xz"])
def test_recordings_of_others(chromium, folder, name):
    path = folder / f"{name}.html"
    made(path, RECORDED / name)
    page = Open(chromium, path)
    said, sums = page.text("verdict"), page.script("const m = window.report.chosen().model; return [m.requested[m.peak], m.reserved[m.peak]]")
    assert "No request was refused." in said and 0 < sums[0] < sums[1]
    assert page.script("return [arguments[0], arguments[1]].map(bytes => `${(bytes / 2 ** 30).toFixed(2)} GiB`)", *sums) == re.findall(r"[\d.]+ GiB", said)[:2]
    for each in DRAWN:
        assert page.script(INK, each)[0] >= 4, each


def test_files_side_by_side(chromium, oom, folder):
    stats = folder / "stats.json"
    gauges = ("requested_bytes", "allocated_bytes", "active_bytes", "reserved_bytes", "cached_bytes")
    lines = [{"format": "stats", "format_version": 1, "devices": [{"index": 0, "ooms": k // 3, "driver_alloc_calls": 3 * k, "driver_free_calls": k, **{
        gauge: {"current": (k + 1) * (n + 1) * MIB, "peak": 9 * MIB, "total": 9} for n, gauge in enumerate(gauges)}}]} for k in range(5)]
    stats.write_text("\n".join(map(json.dumps, lines)))
    made(folder / "ranks.html", folder / "oom.trace", stats, RECORDED / "inf1024.trc.xz")
    page = Open(chromium, folder / "ranks.html")
    assert chromium.find_element(By.ID, "choose-0").get_attribute("aria-pressed") == "true"
    assert all(page.script(INK, f"rank-{k}")[0] >= 4 for k in range(3))
    for k, shows in ((1, False), (2, True), (0, True)):
        chromium.find_element(By.ID, f"choose-{k}").click()
        assert chromium.find_element(By.ID, "map-section").is_displayed() == shows
    chromium.find_element(By.ID, "choose-1").click()
    assert "Out of memory" in page.text("verdict") and page.script(INK, "memory")[0] >= 5
    # the peak of a gauge lies between two lines: no line has more than 5 MiB requested
    assert "9.00 MiB" in page.text("cards") and "refused\n1" in page.text("cards")
    page.quiet()


def test_text_of_the_input_is_not_run(chromium, folder):
    trace = folder / "evil.trace"
    trace.write_bytes(crafted(program="</script><script>document.title='run'</script><img src=x onerror=\"document.title='run'\">",
                              records=[(6, 1 << 40, 2 * MIB), (1, 1 << 40, 1000)]))
    made(folder / "evil.html", trace)
    page = Open(chromium, folder / "evil.html")
    assert "run" not in chromium.title and "</script>" in page.text("title")
    page.quiet()


@pytest.mark.parametrize("records", [[], [(5, MIB, 2)], [(1, 1 << 40, 1000)]], ids=["nothing", "refused only", "no segment"])
def test_small_traces(chromium, folder, records):
    (folder / "small.trace").write_bytes(crafted(records=records))
    made(folder / "small.html", folder / "small.trace", "--force")
    Open(chromium, folder / "small.html")


def test_a_narrow_window(chromium, oom):
    page = Open(chromium, oom, width=520)
    assert page.script("return document.documentElement.scrollWidth <= window.innerWidth")
    page.quiet()


def test_paper_is_light(chromium, oom):
    page = Open(chromium, oom, dark=True)
    page.script("window.addEventListener('beforeprint', () => { const c = document.getElementById('memory'); "
                "window.printed = getComputedStyle(document.documentElement).getPropertyValue('--used').trim(); })")
    chromium.execute_cdp_cmd("Page.printToPDF", {})
    assert page.script("return window.printed") == "#0072b2"
    assert page.script("return getComputedStyle(document.documentElement).getPropertyValue('--used').trim()") == "#3d9bd9"
    page.quiet()


def million(path):
    """A snapshot as PyTorch documents it: a million events of a program that allocates at random, with times."""
    seed = int(os.environ.get("REPORT_SEED", "1"))
    print("REPORT_SEED", seed)
    pick, live, events, base = random.Random(seed), [], [], 0x7f0000000000
    slots = list(range(4096))
    for number in range(1_000_000):
        if live and (not slots or pick.random() < .5):
            slot, size = live.pop(pick.randrange(len(live)))
            slots.append(slot)
            action = "free_completed"
        else:
            slot, size = slots.pop(), int(2 ** pick.uniform(9, 24))
            live.append((slot, size))
            action = "alloc"
        events.append(f'{{"action":"{action}","addr":{base + slot * (16 << 20)},"size":{size},"stream":0,"time_us":{number * 7 + pick.randrange(5)}}}')
    segments = f'{{"device":0,"address":{base},"total_size":{4096 * (16 << 20)},"stream":0,"blocks":[]}}'
    path.write_text(f'{{"segments":[{segments}],"device_traces":[[{",".join(events)}]]}}')


@pytest.mark.skipif(not os.environ.get("CACHEALLOC_TEST_LONG"), reason="long: CACHEALLOC_TEST_LONG is not set")
def test_a_million_events(chromium, folder):
    """At most 25 MB, 60 s of the processor and 2 GiB to make, 5 s to the first drawing (the best of three: others run, too)."""
    million(folder / "million.json")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, COMMAND, "report", folder / "million.json", "-o", folder / "million.html"],
                          env=environment(CACHEALLOC_BUILD=BUILD), timeout=300, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    took, peak = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, after.ru_maxrss / 1024
    assert done.returncode == 0
    size = (folder / "million.html").stat().st_size
    readies = []
    for _ in range(3):
        page = Open(chromium, folder / "million.html")
        readies.append(page.script("return Number(document.documentElement.dataset.ready)"))
    ready = min(readies)
    print(f"{size / 1e6:.1f} MB, made in {took:.1f} s and at most {peak:.0f} MiB, first drawing after {ready / 1000:.2f} s")
    assert size <= 25e6 and took <= 60 and peak <= 2048 and ready <= 5000
    assert page.script("return window.report.chosen().model.n") >= 1_000_000
    for name in DRAWN:
        assert page.script(INK, name)[0] >= 5, name
