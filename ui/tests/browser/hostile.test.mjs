// A store full of hostile strings changes nothing but what is read. `browse` checks policy, scripts and requests.
import assert from "node:assert/strict";
import { test } from "node:test";

import { browse, eventually, fixtureFor, open, rows } from "./harness.mjs";

const full = fixtureFor();
const PAGES = ["overview", "instances", "blocked", "activities", "operations", "nodes", "deploy"];
const TABS = ["timeline", "history", "waits", "tree", "state"];

/** Ids of the instances whose every text is hostile, longest first. */
async function hostileIds() {
  const ids = [];
  for (let cursor = ""; cursor !== null;) {
    const page = await full.fixture.get(`instances?limit=500${cursor === "" ? "" : `&cursor=${encodeURIComponent(cursor)}`}`);
    ids.push(...page.rows.filter((row) => row.version === "1.0.0-alpha" || row.id.startsWith("deep-")).map((row) => row.id));
    cursor = page.next;
  }
  return ids.sort((a, b) => b.length - a.length);
}

test("f18 d52 hostile ids, names, attributes and payloads are only text, on every page", async () => {
  const ids = await hostileIds();
  assert.ok(ids.length > 100 && ids[0].length > 950, `${ids.length} ids, the longest has ${ids[0]?.length}`);
  await browse(full.fixture, async (page) => {
    for (const place of PAGES) {
      await open(page, full.fixture, place);
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert.ok(wide <= 0, `${place} is ${wide} px too wide`);
    }
    await open(page, full.fixture, `instances?name=${encodeURIComponent("<img src=x onerror=window.hacked=7>")}`);
    await eventually(async () => assert.ok((await rows(page).count()) > 10));
    for (const id of ids.filter((id) => !id.startsWith("deep-")).concat(ids.slice(0, 1))) {
      const segment = encodeURIComponent(id);
      await open(page, full.fixture, `instances/${segment}`);
      await page.getByRole("heading", { level: 1 }).waitFor();
    }
    for (const tab of TABS)
      await open(page, full.fixture, `instances/${encodeURIComponent("<img src=x onerror=window.hacked=7>")}?tab=${tab}`);
    const made = await page.evaluate(() =>
      [...document.querySelectorAll("img, iframe, object, embed, main script, main b")].map((element) => element.outerHTML),
    );
    assert.deepEqual(
      made.filter((html) => /hacked|bold/.test(html) && !html.includes("&lt;")),
      [],
    );
    assert.equal(await page.evaluate(() => Object.prototype.polluted), undefined);
  });
});

test("d52 characters that turn or hide text are made visible", async () => {
  await browse(full.fixture, async (page) => {
    await open(page, full.fixture, "instances?id=a%E2%80%AEb");
    const cell = rows(page).first();
    await cell.waitFor();
    assert.ok(!(await cell.innerText()).includes("\u202e"), "the override is not sent to the screen as it is");
  });
});
