// Blocked instances by cause: a bad deployment from the first divergence to the last instance that goes on again.
import assert from "node:assert/strict";
import { test } from "node:test";

import { browse, eventually, fixtureFor, live, logIn, open } from "./harness.mjs";

const full = fixtureFor();
const guarded = fixtureFor("--tokens");

/** The row of the cause that blocks an orchestration. */
function causeOf(page, name) {
  return page
    .getByRole("listitem")
    .filter({ has: page.getByRole("button", { name: new RegExp(`\\b${name}\\b`) }) })
    .first();
}

test("f6 d33 200 that diverge are one cause with both sides and the line; after the rollback it counts down to 0", async () => {
  const { fixture } = full;
  await fixture.run("start-many", 200, "checkout", "co-", "socks");
  await fixture.run("wait-many", 200, "co-", "2");
  await fixture.run("deploy", "bad");
  await browse(fixture, async (page) => {
    await open(page, fixture, "blocked");
    await live(page);
    await fixture.run("raise-many", 200, "go", "co-");
    const row = causeOf(page, "checkout");
    await row.filter({ hasText: /200\s*instances/ }).waitFor();
    await row.getByRole("button", { name: /checkout/ }).click();
    const sides = page.getByRole("table", { name: /Record and code part at event/ });
    const parting = sides.getByRole("row", { name: /they part here/ });
    assert.match(await parting.getByRole("cell").nth(0).innerText(), /"reserve"/);
    assert.match(await parting.getByRole("cell").nth(1).innerText(), /"ship"/);
    await row
      .getByText(/code\.rs:\d+:\d+/)
      .last()
      .waitFor();
    await row.getByRole("heading", { name: "What to do" }).waitFor();
    assert.match(page.url(), /cause=/);

    // With the bad code still there, a retry changes nothing, and the operation says what it did.
    await retryAll(page, row, "200");
    const done = async () => {
      const { operations } = await fixture.get("operations");
      assert.deepEqual([operations[0].action, operations[0].state, operations[0].done], ["retry", "done", 200]);
    };
    await eventually(done);
    await row.filter({ hasText: /200\s*instances/ }).waitFor();

    await fixture.run("deploy", "good");
    // A runtime that starts tries what is blocked, so that nobody has to.
    await row.filter({ hasText: /none left/ }).waitFor();
    assert.equal(await row.getByRole("button", { name: /^Retry all/ }).count(), 0);
    const { causes } = await fixture.get("blocked");
    assert.ok(!causes.some((cause) => cause.name === "checkout"));
  });
});

/** Retries all of a cause, after typing their number. */
async function retryAll(page, row, typed) {
  await row.getByRole("button", { name: /^Retry all/ }).click();
  const dialog = page.getByRole("dialog", { name: "Retry all that this cause blocks" });
  const button = dialog.getByRole("button", { name: /^Retry \d/ });
  await button.waitFor();
  assert.equal(await button.getAttribute("aria-disabled"), "true", "over 100 the number has to be typed");
  await dialog.getByLabel(/^Type/).fill(typed);
  await button.click();
  await dialog.waitFor({ state: "detached" });
}

test("d33 a panic shows its message and its place, and missing code its version", async () => {
  await browse(full.fixture, async (page) => {
    await open(page, full.fixture, "blocked");
    const row = causeOf(page, "fragile");
    await row.getByRole("button", { name: /fragile/ }).click();
    await row
      .getByText(/the warehouse has no shelf \d/)
      .last()
      .waitFor();
    await row
      .getByText(/code\.rs:\d+/)
      .last()
      .waitFor();
    await row.getByRole("link", { name: "PER-0201" }).waitFor();
    await page
      .getByText(/retired/)
      .first()
      .waitFor();
    await page
      .getByText(/0\.9\.0/)
      .first()
      .waitFor();
  });
});

test("d33 the export of a cause holds the histories of its instances", async () => {
  await browse(full.fixture, async (page) => {
    await open(page, full.fixture, "blocked");
    const row = causeOf(page, "invoice");
    await row.getByRole("button", { name: /invoice/ }).click();
    const address = await row.getByRole("link", { name: "Export for a test" }).getAttribute("href");
    const lines = (await page.evaluate(async (url) => (await fetch(url)).text(), address))
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line));
    assert.deepEqual(lines.at(-1), { complete: true, instances: 3 });
  });
});

test("d34 a link to a cause that is gone says so, and leads to the others", async () => {
  await browse(full.fixture, async (page) => {
    await open(page, full.fixture, "blocked?cause=gone");
    await page.getByText("The cause in this link is gone").waitFor();
    await page.getByRole("link", { name: "Show all causes" }).click();
    await page.getByText("The cause in this link is gone").waitFor({ state: "detached" });
  });
});

test("d7 d31 a reader cannot retry or terminate a cause; an operator types the number to terminate", async () => {
  await browse(guarded.fixture, async (page) => {
    await open(page, guarded.fixture, "blocked");
    await logIn(page, guarded.fixture.reader);
    const row = causeOf(page, "invoice");
    await row.getByRole("button", { name: /invoice/ }).click();
    for (const name of [/^Retry all/, /^Terminate all/]) {
      const button = row.getByRole("button", { name });
      assert.equal(await button.getAttribute("aria-disabled"), "true");
      assert.match((await button.textContent()) ?? "", /Only operators/);
    }
  });
  await browse(guarded.fixture, async (page) => {
    await open(page, guarded.fixture, "blocked");
    await logIn(page, guarded.fixture.operator);
    const row = causeOf(page, "invoice");
    await row.getByRole("button", { name: /invoice/ }).click();
    await row.getByRole("button", { name: /^Terminate all/ }).click();
    const dialog = page.getByRole("dialog", { name: "Terminate all that this cause blocks" });
    const button = dialog.getByRole("button", { name: /^Terminate 3/ });
    await button.waitFor();
    assert.equal(await button.getAttribute("aria-disabled"), "true");
    await dialog.getByLabel(/^Type/).fill("3");
    await dialog.getByLabel(/^Reason/).fill("seen in a test");
    await button.click();
    await row.filter({ hasText: /none left/ }).waitFor();
    assert.equal((await guarded.fixture.get("instances/invoice-1", guarded.fixture.reader)).status, "terminated");
  });
});
