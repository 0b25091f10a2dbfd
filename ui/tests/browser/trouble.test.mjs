// The server and the runtime go away and come back.
import assert from "node:assert/strict";
import { test } from "node:test";

import { browse, eventually, fixtureFor, live, open, rowOf, shownIds } from "./harness.mjs";

const full = fixtureFor();

test("f11 d50 a killed server leaves the data, and what happened meanwhile is caught up without a reload", async () => {
  await browse(full.fixture, async (page) => {
    await open(page, full.fixture, "instances");
    await live(page);
    await page.evaluate(() => (globalThis.sameDocument = true));
    const [first] = await eventually(async () => {
      const ids = await shownIds(page);
      assert.ok(ids.length > 5);
      return ids;
    });
    await full.fixture.run("kill-server");
    await page.getByText("The server cannot be reached since").waitFor();
    await rowOf(page, first).waitFor();
    const start = page.getByRole("button", { name: /^Start…/ });
    assert.equal(await start.getAttribute("aria-disabled"), "true");
    await full.fixture.run("start", "hello", "meanwhile", "you");
    await full.fixture.run("wait", "meanwhile", "ended");
    await full.fixture.run("start-server");
    await page
      .getByRole("button", { name: "Try now" })
      .click({ timeout: 2_000 })
      .catch(() => {}); // It may be back by itself.
    await live(page);
    await page.getByText("The server cannot be reached since").waitFor({ state: "detached" });
    await rowOf(page, "meanwhile").filter({ hasText: "Completed" }).waitFor();
    assert.equal(await page.evaluate(() => globalThis.sameDocument), true);
  });
});

test("f11 d2 a store without a runtime says so on every page until one runs again", async () => {
  await browse(full.fixture, async (page) => {
    await open(page, full.fixture, "instances");
    await live(page);
    await full.fixture.run("kill-runtime");
    const banner = page.getByText(/No runtime has run on this store since/);
    await banner.waitFor();
    for (const place of ["nodes", "overview", "instances"]) {
      await open(page, full.fixture, place);
      await page.getByText(/^No runtime .* on this store.*; nothing moves until one is started/).waitFor();
    }
    // Starting is durable without a runtime, and the instance waits for one.
    await full.fixture.run("start", "hello", "without", "you");
    await rowOf(page, "without").filter({ hasText: "Pending" }).waitFor();
    await full.fixture.run("start-runtime");
    await rowOf(page, "without").filter({ hasText: "Completed" }).waitFor();
    await eventually(async () => assert.equal(await page.getByText(/nothing moves until one is started/).count(), 0));
  });
});
