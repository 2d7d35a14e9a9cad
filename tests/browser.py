"""A real headless Chromium for tests of pages, where one is installed."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class Browser:
    """A page, what it shows, what it logs and what it asks for."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, path: Path, *, width: int = 1100, height: int = 900, dark: bool = False) -> None:
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.command("Emulation.setEmulatedMedia", media="", features=[scheme])
        self.resize(width, height)
        self.driver.get("about:blank")
        for log in ("browser", "performance"):
            self.driver.get_log(log)
        self.driver.get(path.resolve().as_uri())

    def resize(self, width: int, height: int = 900) -> None:
        phone = width < 500
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=phone,
        )

    def command(self, name: str, **values: Any) -> Any:
        return self.driver.execute_cdp_cmd(name, values)

    def run(self, script: str) -> Any:
        return self.driver.execute_script(script)

    def text(self, selector: str) -> str:
        return self.run(f"return document.querySelector({json.dumps(selector)}).textContent")

    def wait(self, condition: Callable[[], bool], seconds: float = 30) -> None:
        """Until the condition holds; fails when it does not come to hold."""
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(self.driver, seconds).until(lambda _: condition())

    def problems(self) -> list[str]:
        """Everything on the console: errors, warnings, refusals by the policy."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """Addresses asked for since the page was opened, those inside the page left out."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        sent = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
        return [url for url in sent if not url.startswith(("data:", "file:"))]


@contextlib.contextmanager
def chromium(profile: Path) -> Iterator[Browser]:
    """Start Chromium with a fresh profile; skips the test where it is not installed."""
    webdriver = pytest.importorskip("selenium.webdriver")
    from selenium.webdriver.chrome.service import Service

    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver_program = shutil.which("chromedriver")
    if program is None or driver_program is None:
        pytest.skip("Chromium and its driver are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(driver_program))
    try:
        yield Browser(driver)
    finally:
        driver.quit()
