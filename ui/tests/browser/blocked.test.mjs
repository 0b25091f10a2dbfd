// A bad deployment, and work over many instances.
import assert from "node:assert/strict";
import { test } from "node:test";

import { browse, eventually, fixtureFor, live, open } from "./harness.mjs";

const full = fixtureFor();

test("f6 d33 a bad deployment is one cause with both sides and the line, and counts down after the roll back", async () => {
  await full.fixture.run("start-many", 200, "checkout", "checkout-", "socks");
  await full.fixture.run("wait-many", 200, "checkout-", 2);
  await full.fixture.run("deploy", "bad");
  await browse(full.fixture, async (page) => {
    await open(page, full.fixture, "blocked");
    await live(page);
    await full.fixture.run("raise-many", 200, "go", "checkout-");
    await full.fixture.run("wait-many", 200, "checkout-", "blocked");
    await page.getByRole("button", { name: /new cause/ }).click({ timeout: 3_000 }).catch(() => {}); // Shown only while rows are held still.
    const cause = page.getByRole("listitem").filter({ hasText: "checkout" });
    await cause.filter({ hasText: "200" }).waitFor();
    assert.equal(await cause.count(), 1);
    await cause.getByRole("button", { name: /checkout/ }).first().click();
    await eventually(async () => {
      const text = await cause.innerText();
      assert.match(text, /reserve/);
      assert.match(text, /ship/);
      assert.match(text, /code\.rs:\d+/);
    });
    // With the bad build a retry changes nothing.
    await cause.getByRole("button", { name: "Retry all…" }).click();
    const dialog = page.getByRole("dialog", { name: "Retry all that this cause blocks" });
    await dialog.getByText(/200 instances are/).waitFor();
    const typed = dialog.getByLabel(/^Type/);
    if ((await typed.count()) > 0) await typed.fill("200");
    await dialog.getByRole("button", { name: /^Retry/ }).click();
    await dialog.waitFor({ state: "detached" });
    await full.fixture.run("deploy", "good");
    await full.fixture.run("wait", "checkout-200", "ended");
    await open(page, full.fixture, "blocked");
    await eventually(async () => assert.equal(await page.getByRole("listitem").filter({ hasText: "checkout" }).count(), 0));
  });
});

test("f10 d39 an operation over 5,000 goes on while the browser is closed", async () => {
  await full.fixture.run("start-many", 5_000, "nap", "many-", 3_600_000);
  await browse(full.fixture, async (page) => {
    await open(page, full.fixture, "instances?id_prefix=many-");
    await eventually(async () => assert.match(await page.getByRole("main").innerText(), /5,000/));
    await page.getByRole("checkbox", { name: "Select all rows that are loaded" }).check();
    await page.getByRole("button", { name: /^Select all 5,000/ }).click();
    await page.getByRole("button", { name: "Terminate…" }).click();
    const dialog = page.getByRole("dialog", { name: "Terminate all that the filter shows" });
    await dialog.getByLabel("Reason").fill("a test");
    await dialog.getByLabel(/^Type/).fill("5000");
    await dialog.getByRole("button", { name: "Terminate 5,000 instances" }).click();
    await page.getByRole("heading", { level: 1, name: "Operations" }).waitFor();
    await page.getByRole("listitem").filter({ hasText: "Terminate" }).waitFor();
  });
  await browse(full.fixture, async (page) => {
    await open(page, full.fixture, "operations");
    const done = page.getByRole("listitem").filter({ hasText: "Terminate" }).filter({ hasText: "Done" });
    await done.waitFor({ timeout: 120_000 });
    await done.filter({ hasText: "5,000" }).waitFor();
  });
  const { rows } = await full.fixture.get("count?id_prefix=many-&status=terminated");
  assert.equal(rows, 5_000);
});
