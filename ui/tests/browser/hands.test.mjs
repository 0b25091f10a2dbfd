// Keyboard, accessibility, small screens, large text, many tabs.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { test } from "node:test";

import { browse, eventually, fixtureFor, live, open, rowOf, rows, shownIds } from "./harness.mjs";

const full = fixtureFor();
const AXE = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const PAGES = ["overview", "instances", "blocked", "activities", "operations", "nodes", "deploy"];
const TABS = ["timeline", "history", "waits", "tree", "state"];

/** What axe finds on a page. */
async function flaws(page) {
  if (!(await page.evaluate(() => "axe" in globalThis))) await page.evaluate(AXE);
  return page.evaluate(async () => {
    const tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"];
    const { violations } = await globalThis.axe.run(document, { runOnly: { type: "tag", values: tags } });
    return violations.flatMap((violation) =>
      violation.nodes.slice(0, 3).map((node) => `${violation.id}: ${node.html.slice(0, 200)} (${node.failureSummary})`),
    );
  });
}

for (const colorScheme of ["light", "dark"]) {
  test(`f17 d42 axe finds nothing on any page, tab and dialog, ${colorScheme}`, async () => {
    await browse(full.fixture, { colorScheme }, async (page) => {
      for (const place of [
        ...PAGES,
        ...TABS.map((tab) => `instances/payment-1?tab=${tab}`),
        "instances/invoice-1",
        "instances/nobody",
        "nowhere",
      ]) {
        await page.goto(`${full.fixture.url}#/${place}`);
        await page.getByRole("heading").first().waitFor();
        await live(page);
        assert.deepEqual(await flaws(page), [], place);
      }
      await open(page, full.fixture, "instances");
      await page.keyboard.press("?");
      await page.getByRole("dialog", { name: "Keys" }).waitFor();
      assert.deepEqual(await flaws(page), [], "keys");
      await page.keyboard.press("Escape");
      await page.keyboard.press("Control+k");
      await page.getByRole("dialog").waitFor();
      assert.deepEqual(await flaws(page), [], "palette");
      await page.keyboard.press("Escape");
      await open(page, full.fixture, "instances?start=new");
      await page.getByRole("dialog").waitFor();
      assert.deepEqual(await flaws(page), [], "start");
      await page.keyboard.press("Escape");
      await open(page, full.fixture, "instances?id=nap-hour");
      await rowOf(page, "nap-hour").getByRole("checkbox").check();
      await page.getByRole("button", { name: "Terminate…" }).click();
      await page.getByRole("dialog").waitFor();
      assert.deepEqual(await flaws(page), [], "terminate");
    });
  });
}

test("f16 d41 a list is moved through, selected from, filtered and opened by keyboard alone", async () => {
  await browse(full.fixture, async (page) => {
    await open(page, full.fixture, "instances");
    await rows(page).first().waitFor();
    const [first, second] = await shownIds(page);
    for (const key of ["j", "j", "k"]) await page.keyboard.press(key);
    await eventually(async () => assert.equal(await page.evaluate(() => document.activeElement?.textContent), first));
    await page.keyboard.press("x");
    await page.getByText("1 selected").waitFor();
    await page.keyboard.press("Escape");
    await page.getByText("1 selected").waitFor({ state: "detached" });
    await page.keyboard.press("j");
    await eventually(async () => assert.equal(await page.evaluate(() => document.activeElement?.textContent), second));
    await page.keyboard.press("Enter");
    await page.waitForURL((url) => decodeURIComponent(url.hash).startsWith(`#/instances/${second}`));
    await page.goBack();
    await page.keyboard.press("g");
    await page.keyboard.press("n");
    await page.getByRole("heading", { level: 1, name: "Nodes" }).waitFor();
    await page.keyboard.press("Control+k");
    await page.getByRole("dialog").waitFor();
    await page.keyboard.type("approval-1");
    await page.getByRole("dialog").getByText("approval-1").first().waitFor();
    await page.keyboard.press("Enter");
    await page.waitForURL(/#\/instances\/approval-1/);
    await page.goBack();
    await page.keyboard.press("g");
    await page.keyboard.press("i");
    await page.getByRole("heading", { level: 1, name: "Instances" }).waitFor();
    await page.keyboard.press("/");
    // While one types, keys are text.
    await page.keyboard.type("status:failed");
    await page.keyboard.press("Enter");
    await page.waitForURL(/status=failed/);
  });
});

test("f21 d43 every page fits 360 px, and text of twice the size", async () => {
  const places = [...PAGES, ...TABS.map((tab) => `instances/payment-1?tab=${tab}`)];
  const fits = async (page, place, how) => {
    await open(page, full.fixture, place);
    await live(page);
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert.ok(wide <= 0, `${place} is ${wide} px too wide, ${how}`);
  };
  await browse(full.fixture, { viewport: { width: 360, height: 740 } }, async (page) => {
    for (const place of places) await fits(page, place, "at 360 px");
    await open(page, full.fixture, "instances?id=hello-1");
    await rowOf(page, "hello-1").getByRole("link", { name: "hello-1" }).click();
    await page.waitForURL(/instances\/hello-1/);
  });
  await browse(full.fixture, { viewport: { width: 1024, height: 768 } }, async (page) => {
    const session = await page.context().newCDPSession(page);
    await session.send("Page.setFontSizes", { fontSizes: { standard: 32, fixed: 26 } });
    for (const place of places) await fits(page, place, "with large text");
  });
});

test("f19 d47 twenty tabs are all live at once", async () => {
  await browse(full.fixture, async (page, context) => {
    await open(page, full.fixture, "instances?name=hello");
    const tabs = [page];
    for (let tab = 1; tab < 20; tab += 1) tabs.push(await context.newPage());
    for (const tab of tabs.slice(1)) await open(tab, full.fixture, "instances?name=hello");
    for (const tab of tabs) await live(tab);
    await full.fixture.run("start", "hello", "seen-by-twenty", "you");
    for (const tab of tabs) await rowOf(tab, "seen-by-twenty").filter({ hasText: "Completed" }).waitFor();
  });
});
