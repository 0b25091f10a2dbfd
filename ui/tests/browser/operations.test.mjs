// Operations of the server: they go on without a browser, and can be stopped.
import assert from "node:assert/strict";
import { test } from "node:test";

import { browse, eventually, fixtureFor, live, open, rows } from "./harness.mjs";

const full = fixtureFor();

/** Asks for a termination of all that an id's prefix shows, from the list. */
async function terminateAll(page, fixture, prefix, count) {
  await open(page, fixture, `instances?id_prefix=${prefix}`);
  await rows(page).first().waitFor();
  await rows(page).first().getByRole("checkbox").check();
  await page.getByRole("button", { name: /^Select all .* that the filter shows/ }).click();
  await page.getByRole("region", { name: "Selection" }).getByRole("button", { name: "Terminate…" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel(/^Type/).fill(String(count));
  await dialog.getByRole("button", { name: /^Terminate \d/ }).click();
  await dialog.waitFor({ state: "detached" });
}

test("f10 d39 an operation over 5,000 goes on after the browser is closed, and is there when it is opened again", async () => {
  const { fixture } = full;
  await fixture.run("start-many", 5_000, "nap", "op-", null);
  await browse(fixture, (page) => terminateAll(page, fixture, "op-", 5_000));
  await browse(fixture, async (page) => {
    await open(page, fixture, "operations");
    const row = page.getByRole("listitem").filter({ hasText: "Terminate" }).first();
    await row.getByText("op-").first().waitFor();
    await row.getByText("Done", { exact: true }).waitFor({ timeout: 600_000 });
    await row.getByText("5,000").first().waitFor();
  });
  const { rows: running } = await fixture.get("count?id_prefix=op-&status=running,pending");
  assert.equal(running, 0);
});

test("d39 a running operation is stopped, and what it has done stays done", async () => {
  const { fixture } = full;
  await fixture.run("start-many", 2_000, "nap", "st-", null);
  await browse(fixture, async (page) => {
    await terminateAll(page, fixture, "st-", 2_000);
    await open(page, fixture, "operations");
    await live(page);
    const row = page.getByRole("listitem").filter({ hasText: "st-" }).first();
    const stop = row.getByRole("button", { name: "Stop…" });
    // A fast machine may be done before.
    if (
      await stop.waitFor({ timeout: 5_000 }).then(
        () => true,
        () => false,
      )
    ) {
      await stop.click();
      await page.getByRole("dialog").getByRole("button", { name: "Stop" }).click();
    }
    await row.getByText(/^(Stopped|Done)$/).waitFor({ timeout: 600_000 });
    await row.getByRole("button", { name: /^Terminate/ }).click();
    await row.getByText("Seen", { exact: true }).waitFor();
    assert.match(page.url(), /operation=/);
  });
  await eventually(async () => {
    const { operations } = await fixture.get("operations");
    const count = await fixture.get("count?id_prefix=st-&status=terminated");
    assert.equal(operations[0].done, count.rows);
  });
});

test("d48 d39 without operations the page says where they are started", async () => {
  await browse(full.fixture, async (page) => {
    await open(page, full.fixture, "operations?operation=unknown");
    await page.getByText("The operation in this link is not known here").waitFor();
  });
});
