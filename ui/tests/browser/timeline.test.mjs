// The timeline of an instance.
import assert from "node:assert/strict";
import { test } from "node:test";

import { browse, eventually, fixtureFor, open } from "./harness.mjs";

const full = fixtureFor();

const timeline = (page) => page.getByRole("table", { name: "Timeline" });
const bar = (page, name) => timeline(page).getByRole("button", { name });

/** The names of the operations that are drawn, by their bars. */
async function bars(page) {
  return timeline(page)
    .locator(".tl-bar")
    .evaluateAll((all) => all.map((each) => each.getAttribute("aria-label")));
}

test("d16 d20 f5 attempts are segments of their own, and the side tells each one's error", async () => {
  await browse(full.fixture, async (page) => {
    await open(page, full.fixture, "instances/shipping-failed");
    await bar(page, /^activity ship, event 2, failed, .*5 attempts, .*out of stock/).click();
    const row = timeline(page).getByRole("row").filter({ hasText: "ship" });
    // Five attempts that failed, with pauses between them.
    assert.equal(await row.locator(".tl-seg.run.bad").count(), 5);
    assert.equal(await row.locator(".tl-seg.pause").count(), 4);
    const side = page.getByRole("complementary", { name: "Selected operation" });
    for (let attempt = 1; attempt <= 4; attempt++) await side.getByText(`out of stock (attempt ${attempt})`).waitFor();
    await side.getByRole("heading", { name: "Input" }).waitFor();
    await side.getByText('"nothing"').first().waitFor();
    // The selection is part of the link.
    await page.reload();
    await side.getByText("out of stock (attempt 1)").waitFor();
  });
});

test("d16 what is open ends at now, and says until when", async () => {
  await browse(full.fixture, async (page) => {
    await open(page, full.fixture, "instances/approval-2");
    await bar(page, /^wait for event approved, event \d+, open/).waitFor();
    await bar(page, /^timer, event \d+, open, .*until \d{4}-/).waitFor();
    await timeline(page).getByText("now", { exact: true }).waitFor();
  });
});

test("d17 units fold, children unfold in place to any depth, executions follow one another", async () => {
  await browse(full.fixture, async (page) => {
    await open(page, full.fixture, "instances/branches-1");
    await eventually(async () => assert.equal((await bars(page)).length, 5));
    await timeline(page).getByRole("button", { name: "Unit p0", exact: true }).click();
    await eventually(async () => assert.equal((await bars(page)).length, 2));

    await open(page, full.fixture, "instances/family");
    for (const child of ["family::1.2", "family::1.2::1.2", "family::1.2::1.2::1.2"]) {
      await timeline(page)
        .getByRole("button", { name: `Operations of child ${child}`, exact: true })
        .click();
    }
    await bar(page, /^wait for event go, event 2, open/).waitFor();
    assert.equal((await bars(page)).length, 7);

    await open(page, full.fixture, "instances/rounds-1");
    await timeline(page).getByRole("button", { name: "Execution 4", exact: true }).click();
    await timeline(page).getByRole("button", { name: "Execution 3", exact: true }).click();
    await eventually(async () => assert.equal((await bars(page)).filter((name) => name.startsWith("activity greet")).length, 3));
  });
});

test("d18 zooming keeps what is under the pointer, and the link keeps the zoom", async () => {
  await browse(full.fixture, async (page) => {
    await open(page, full.fixture, "instances/shipping-failed?idle=shown");
    await bar(page, /ship/).waitFor();
    const axis = await timeline(page).locator(".tl-axis").boundingBox();
    // The third failed attempt: its place on the screen must stay while the wheel turns over it.
    const marks = timeline(page).locator(".tl-seg.run.bad");
    const places = () => marks.evaluateAll((all) => all.map((each) => each.getBoundingClientRect().left));
    const third = (await places())[2];
    const offBy = async () => Math.min(...(await places()).map((place) => Math.abs(place - third)));
    await page.mouse.move(third + 1, axis.y + axis.height / 2);
    await page.mouse.wheel(0, -300);
    await page.waitForURL(/zoom=/);
    assert.ok((await places()).length < 5, "nothing was zoomed");
    assert.ok((await offBy()) < 4, `off by ${await offBy()}`);
    const zoomed = page.url();
    await page.reload();
    await bar(page, /ship/).waitFor();
    assert.ok((await offBy()) < 4, `off by ${await offBy()} after a reload`);
    await page.getByRole("heading", { level: 1 }).click();
    await page.keyboard.press("0");
    await eventually(async () => assert.ok(!page.url().includes("zoom=")));
    assert.notEqual(page.url(), zoomed);
    await page.keyboard.press("+");
    await page.waitForURL(/zoom=/);
  });
});

test("d19 the critical path is lit, sums stand beside it, and failures are stepped through", async () => {
  await browse(full.fixture, async (page) => {
    await open(page, full.fixture, "instances/shipping-failed");
    await page.getByRole("button", { name: "Sums" }).click();
    const sums = page.getByRole("complementary", { name: "Sums by name" });
    await sums.getByRole("rowheader", { name: /ship/ }).waitFor();
    await page.getByRole("button", { name: "Critical path" }).click();
    await eventually(async () => assert.equal(await timeline(page).locator(".tl-row.lit").count(), 1));
    await page.getByRole("heading", { level: 1 }).click();
    await page.keyboard.press("n");
    await page.getByRole("complementary", { name: "Selected operation" }).getByText("out of stock (attempt 1)").waitFor();
  });
});

test("d42 the timeline is a table too", async () => {
  await browse(full.fixture, async (page) => {
    await open(page, full.fixture, "instances/branches-1");
    await page.getByRole("button", { name: "Table", exact: true }).click();
    const table = page.getByRole("table", { name: "Operations" });
    for (const head of ["Operation", "Queue", "Run", "Pause", "Outcome"])
      await table.getByRole("columnheader", { name: head }).waitFor();
    await eventually(async () => assert.equal(await table.getByRole("row").filter({ hasText: "greet" }).count(), 3));
  });
});
