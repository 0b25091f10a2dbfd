// Everything by keyboard alone: no test here touches the mouse.
import assert from "node:assert/strict";
import { test } from "node:test";

import { browse, eventually, fixtureFor, live, open, rowOf } from "./harness.mjs";

const full = fixtureFor();

/** Presses a key until what has the focus fits. */
async function until(page, key, fits, times = 80) {
  for (let pressed = 0; pressed < times; pressed += 1) {
    const focused = await page.evaluate(() => {
      const element = document.activeElement;
      return `${element?.getAttribute("aria-label") ?? ""} ${element?.textContent ?? ""}`.replace(/\s+/g, " ").trim();
    });
    if (fits.test(focused)) return focused;
    await page.keyboard.press(key);
  }
  throw new Error(`${key} never led to ${fits}`);
}

test("f16 d41 d30 an approval is found, read and given by keyboard alone, and the focus is never lost", async () => {
  await browse(full.fixture, async (page) => {
    await open(page, full.fixture, "overview");
    await live(page);
    await page.keyboard.press("Control+k");
    await page.getByRole("dialog").waitFor();
    await page.keyboard.type("approval-2");
    await page.getByRole("dialog").getByText("approval-2").first().waitFor();
    await page.keyboard.press("Enter");
    await page.waitForURL(/#\/instances\/approval-2/);
    await page.getByText(/^Waits for event/).waitFor();
    // Tabs, one after the other, and back.
    for (const [key, tab] of [
      ["]", "history"],
      ["]", "waits"],
      ["]", "tree"],
      ["[", "waits"],
      ["[", "history"],
    ]) {
      await page.keyboard.press(key);
      await page.waitForURL(new RegExp(`tab=${tab}`));
    }
    // An event, its side, and away again.
    await page.locator("[data-event]").first().waitFor();
    await page.keyboard.press("j");
    await page.waitForURL(/event=1\b/);
    await page.getByRole("complementary", { name: "Event 1" }).waitFor();
    await page.keyboard.press(".");
    await page.getByRole("menuitem").first().waitFor();
    await until(page, "ArrowDown", /^Raise an event/);
    await page.keyboard.press("Enter");
    const dialog = page.getByRole("dialog", { name: "Raise an event" });
    await dialog.waitFor();
    // Single keys are text here.
    await until(page, "Tab", /^$/);
    await dialog.getByLabel("Payload").focus();
    await page.keyboard.press("Control+a");
    await page.keyboard.type('"[.x?] by keys"');
    await until(page, "Tab", /^Raise$/);
    await page.keyboard.press("Enter");
    await page
      .getByText(/^Completed/)
      .first()
      .waitFor();
    assert.notEqual(await page.evaluate(() => document.activeElement), null);
    const { output } = await full.fixture.get("instances/approval-2/result");
    assert.equal(output, "[.x?] by keys");
  });
});

test("f16 d18 d41 the timeline is zoomed, followed and stepped through by keys", async () => {
  await browse(full.fixture, async (page) => {
    await open(page, full.fixture, "instances/order-7");
    await page.locator(".tl-bar").first().waitFor();
    await page.keyboard.press("+");
    await page.waitForURL(/zoom=/);
    await page.keyboard.press("0");
    await page.waitForURL((url) => !url.hash.includes("zoom="));
    await page.keyboard.press("f");
    await eventually(async () => {
      assert.equal(await page.getByRole("button", { name: "Follow now" }).getAttribute("aria-pressed"), "true");
    });
    await open(page, full.fixture, "instances/shipping-failed");
    await page.locator(".tl-bar").first().waitFor();
    await page.keyboard.press("n");
    await page.getByRole("complementary", { name: "Selected operation" }).waitFor();
  });
});

test("d41 d31 no key ends anything: terminating takes a dialog, and a typed id", async () => {
  await browse(full.fixture, async (page) => {
    const sent = [];
    page.on("request", (request) => request.method() !== "GET" && sent.push(request.url()));
    await open(page, full.fixture, "instances/nap-hour");
    await page.locator(".tl-bar").first().waitFor();
    for (const key of "abcdefhijklmnopqrstuvwxyzDXT") await page.keyboard.press(key);
    await page.keyboard.press("Escape");
    await open(page, full.fixture, "instances/nap-hour");
    await page.keyboard.press(".");
    await until(page, "ArrowDown", /^Terminate/);
    await page.keyboard.press("Enter");
    const dialog = page.getByRole("dialog", { name: "Terminate" });
    await dialog.waitFor();
    for (const key of ["Enter", "Enter", "y"]) await page.keyboard.press(key);
    assert.equal(await dialog.count(), 1);
    await page.keyboard.press("Escape");
    await dialog.waitFor({ state: "detached" });
    assert.deepEqual(sent, []);
    assert.equal((await full.fixture.get("instances/nap-hour")).status, "running");
  });
});

test("d41 single keys can be switched off, and stay so", async () => {
  await browse(full.fixture, async (page) => {
    await open(page, full.fixture, "instances");
    await rowOf(page, "fan").waitFor();
    await page.getByRole("button", { name: "Times, theme and keys" }).press("Enter");
    await page.getByRole("checkbox", { name: "Single-key shortcuts" }).press("Space");
    await page.keyboard.press("Escape");
    await page.reload();
    await rowOf(page, "fan").waitFor();
    await page.keyboard.press("x");
    await page.keyboard.press("?");
    assert.equal(await page.getByRole("dialog").count(), 0);
    await page.keyboard.press("Control+k");
    await page.getByRole("dialog").waitFor();
  });
});
