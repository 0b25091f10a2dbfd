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

test("d32 a lost answer is an unknown outcome with what to look at, a refusal has the server's words", async () => {
  await browse(full.fixture, async (page) => {
    await full.fixture.run("start", "approval", "lost-answer", "tea");
    await open(page, full.fixture, "instances/lost-answer");
    await live(page);
    // The server gets the request and carries it out; the connection breaks before its answer.
    await page.route("**/events/approved*", async (route) => {
      await route.fetch();
      await route.abort("connectionreset");
    });
    await page.getByRole("button", { name: /^Raise approved/ }).click();
    const dialog = page.getByRole("dialog", { name: "Raise an event" });
    await dialog.getByRole("button", { name: "Raise", exact: true }).click();
    const alert = dialog.getByRole("alert");
    await alert.filter({ hasText: "Outcome unknown" }).filter({ hasText: "may or may not have been carried out" }).waitFor();
    // The page goes on to show what became of it.
    await dialog.getByRole("button", { name: "Cancel" }).click();
    await page
      .getByText(/^Completed/)
      .first()
      .waitFor();
    await page.unroute("**/events/approved*");
    await full.fixture.run("start", "nap", "refusing", 3_600_000);
    await open(page, full.fixture, "instances/refusing");
    await page.getByRole("button", { name: "Actions" }).click();
    await page.getByRole("menuitem", { name: /^Raise an event/ }).click();
    await dialog.getByLabel("Event").fill(".");
    await full.fixture.run("terminate", "refusing", "first");
    await full.fixture.run("wait", "refusing", "ended");
    await dialog.getByRole("button", { name: "Raise", exact: true }).click();
    await alert.filter({ hasText: /PER-\d{4}/ }).waitFor();
    assert.equal(await alert.filter({ hasText: "Outcome unknown" }).count(), 0);
  });
});

test("d50 a page that a newer server no longer has says so, and trying again stays at the place", async () => {
  await browse(full.fixture, async (page) => {
    await open(page, full.fixture, "instances");
    await live(page);
    await page.route("**/assets/DeployPage*", (route) => route.fulfill({ status: 404 }));
    await page.getByRole("link", { name: "Deploy" }).click();
    const alert = page.getByRole("alert").filter({ hasText: "another version than these pages" });
    await alert.waitFor();
    await page.unroute("**/assets/DeployPage*");
    await alert.getByRole("button", { name: "Try again" }).click();
    await page.getByRole("heading", { level: 1, name: "Deploy" }).waitFor();
  });
});
