// Histories that cannot be read.
import assert from "node:assert/strict";
import { test } from "node:test";

import { browse, eventually, fixtureFor, open } from "./harness.mjs";

const full = fixtureFor();

const events = (page) =>
  page
    .getByRole("table", { name: "History" })
    .locator("[data-event]")
    .evaluateAll((all) => all.map((each) => Number(each.dataset.event)));

test("d49 a damaged history is shown up to where it can be read, with what is wrong and what to do", async () => {
  const { turns } = await full.fixture.run("history", "branches-1");
  await full.fixture.run("damage", "branches-1", 3);
  await browse(full.fixture, async (page) => {
    await open(page, full.fixture, "instances/branches-1?tab=history");
    const readable = turns.filter(({ turn }) => turn < 3).flatMap((turn) => turn.events.map(([id]) => id));
    await eventually(async () => assert.deepEqual(await events(page), readable));
    await page.getByRole("tabpanel").getByRole("alert").filter({ hasText: "PER-0508" }).filter({ hasText: "turn 3" }).waitFor();
    await page.getByText(/Running\. Its history is damaged: .*turn 3/).waitFor();
    // The past before the damage can be looked at, and what needs all of the history says why it has nothing.
    await open(page, full.fixture, "instances/branches-1?tab=waits&turn=2");
    await page.getByRole("tabpanel").getByText("event 3").waitFor();
    await open(page, full.fixture, "instances/branches-1");
    await page.getByRole("tabpanel").getByRole("alert").filter({ hasText: "PER-0508" }).waitFor();
    await open(page, full.fixture, "instances/branches-1?tab=waits");
    await page
      .getByRole("tabpanel")
      .getByText(/history was not read/)
      .waitFor();
  });
});

test("d49 an ended instance whose history is damaged says so, and the list still shows it", async () => {
  await full.fixture.run("damage", "hello-1", 1);
  await browse(full.fixture, async (page) => {
    await open(page, full.fixture, "instances/hello-1");
    await page.getByText(/Completed .* after .*\. Its history is damaged: .*turn 1/).waitFor();
    await page.getByRole("tabpanel").getByRole("alert").filter({ hasText: "keep a copy of the store" }).first().waitFor();
    await page.getByRole("tab", { name: "History" }).click();
    await page.getByRole("tabpanel").getByRole("alert").filter({ hasText: "PER-0508" }).waitFor();
    await open(page, full.fixture, "instances?id=hello-1");
    await page.getByRole("row").filter({ hasText: "hello-1" }).filter({ hasText: "Completed" }).waitFor();
  });
});
