// Rows hold still while somebody looks at them, and all that a filter shows is one operation of the server.
import assert from "node:assert/strict";
import { test } from "node:test";

import { browse, eventually, fixtureFor, live, open, rowOf, rows, shownIds } from "./harness.mjs";

const full = fixtureFor();

test("d4 new rows gather while the pointer is over the list, and come in when it leaves", async () => {
  await browse(full.fixture, async (page) => {
    await open(page, full.fixture, "instances");
    await live(page);
    await rows(page).nth(2).hover();
    const before = await shownIds(page);
    await full.fixture.run("start-many", 12, "hello", "new-", "somebody");
    await page.getByRole("button", { name: "12 new" }).waitFor();
    assert.deepEqual(await shownIds(page), before);
    await page.getByRole("heading", { level: 1 }).hover();
    await eventually(async () => assert.equal((await shownIds(page))[0], "new-12"));
    await page.getByRole("button", { name: "12 new" }).waitFor({ state: "detached" });
  });
});

test("d4 a row that no longer fits stays, marked, until the pointer leaves", async () => {
  await browse(full.fixture, async (page) => {
    await open(page, full.fixture, "instances?name=approval&status=running");
    await live(page);
    await rowOf(page, "approval-1").hover();
    await full.fixture.run("raise", "approval-1", "approved", true);
    await full.fixture.run("wait", "approval-1", "ended");
    await eventually(async () => {
      assert.equal(await rowOf(page, "approval-1").getAttribute("title"), "It no longer fits the filter.");
    });
    await page.getByRole("heading", { level: 1 }).hover();
    await rowOf(page, "approval-1").waitFor({ state: "detached" });
  });
});

test("d4 a frozen page says so, stands still, and catches up afterwards", async () => {
  await browse(full.fixture, async (page) => {
    await open(page, full.fixture, "instances?name=hello");
    await live(page);
    await page.getByRole("button", { name: "Live", exact: true }).click();
    await page.getByText("Frozen as of").waitFor();
    const before = await shownIds(page);
    await full.fixture.run("start", "hello", "while-frozen", "somebody");
    await full.fixture.run("wait", "while-frozen", "ended");
    // The stream has told it by the time that another page shows it.
    await browse(full.fixture, async (other) => {
      await open(other, full.fixture, "instances?name=hello");
      await rowOf(other, "while-frozen").waitFor();
    });
    assert.deepEqual(await shownIds(page), before);
    await page.getByRole("button", { name: "Go on" }).click();
    await rowOf(page, "while-frozen").waitFor();
  });
});

test("d12 d31 rows are selected by range, and all that the filter shows becomes one operation", async () => {
  await browse(full.fixture, async (page) => {
    await full.fixture.run("start-many", 150, "nap", "sleepy-", 3_600_000);
    await open(page, full.fixture, "instances?id_prefix=sleepy-");
    await rows(page).nth(0).getByRole("checkbox").click();
    await rows(page)
      .nth(4)
      .getByRole("checkbox")
      .click({ modifiers: ["Shift"] });
    await page.getByText("5 selected").waitFor();
    await page.getByRole("button", { name: "Select all 150 that the filter shows" }).click();
    await page.getByText("All 150 selected").waitFor();
    await page.getByRole("button", { name: "Terminate…" }).click();
    const dialog = page.getByRole("dialog", { name: "Terminate all that the filter shows" });
    const act = dialog.getByRole("button", { name: /^Terminate 150/ });
    await act.waitFor();
    assert.equal(await act.getAttribute("aria-disabled"), "true");
    await dialog.getByLabel("Reason").fill("a test");
    await dialog.getByLabel(/^Type/).fill("150");
    const sent = [];
    page.on("request", (request) => request.method() === "POST" && sent.push(new URL(request.url()).pathname));
    await act.click();
    await dialog.waitFor({ state: "detached" });
    await eventually(async () => assert.equal((await full.fixture.get("count?id_prefix=sleepy-&status=terminated")).rows, 150));
    assert.deepEqual(sent, ["/api/v1/operations"]);
  });
});

test("d12 h22 several selected rows are one operation, bound to the instances that were seen", async () => {
  await browse(full.fixture, async (page) => {
    await full.fixture.run("start-many", 5, "nap", "picked-", 3_600_000);
    await open(page, full.fixture, "instances?id_prefix=picked-&order=oldest");
    await rows(page).nth(0).getByRole("checkbox").click();
    await rows(page)
      .nth(2)
      .getByRole("checkbox")
      .click({ modifiers: ["Shift"] });
    await page.getByText("3 selected").waitFor();
    // Another instance gets the id of one that was selected.
    const second = await full.fixture.run("replace", "nap", "picked-2", 3_600_000);
    await page.getByRole("button", { name: "Terminate…" }).click();
    const dialog = page.getByRole("dialog", { name: "Terminate 3 instances" });
    await dialog.getByText("3 selected instances").waitFor();
    await dialog.getByLabel("Reason").fill("picked by hand");
    const act = dialog.getByRole("button", { name: /^Terminate \d/ });
    const typed = dialog.getByLabel(/^Type/);
    await typed.fill((await dialog.locator("label code").innerText()).trim());
    const sent = [];
    page.on("request", (request) => request.method() === "POST" && sent.push(new URL(request.url()).pathname));
    await act.click();
    await dialog.waitFor({ state: "detached" });
    await eventually(async () => {
      const status = async (number) => (await full.fixture.get(`instances/picked-${number}`)).status;
      assert.deepEqual(await Promise.all([1, 2, 3, 4].map(status)), ["terminated", "running", "terminated", "running"]);
    });
    assert.deepEqual(sent, ["/api/v1/operations"]);
    assert.equal((await full.fixture.get("instances/picked-2")).key, second.key);
  });
});

test("d53 copying works without the clipboard of the browser", async () => {
  await browse(full.fixture, async (page) => {
    await page.addInitScript(() => Object.defineProperty(navigator, "clipboard", { value: undefined }));
    await open(page, full.fixture, "instances?id=payment-1");
    await rowOf(page, "payment-1").getByRole("checkbox").check();
    await page.getByRole("button", { name: "Cancel…" }).click();
    const dialog = page.getByRole("dialog", { name: "Cancel an instance" });
    await dialog.getByText("The same in a terminal").click();
    await page.evaluate(() => addEventListener("copy", () => (globalThis.copied = String(document.activeElement?.value ?? ""))));
    await dialog.getByRole("button", { name: "Copy", exact: true }).click();
    await eventually(async () => assert.equal(await page.evaluate(() => globalThis.copied), "perennial cancel payment-1"));
  });
});

test("d49 a filter that the server refuses is told, and the other tabs stay live", async () => {
  await browse(full.fixture, async (page, context) => {
    await open(page, full.fixture, "instances");
    await live(page);
    const wrong = await context.newPage();
    await open(wrong, full.fixture, "instances?min_age_ms=soon");
    await wrong.getByRole("alert").filter({ hasText: "PER-0805" }).waitFor();
    await live(wrong);
    await full.fixture.run("start", "hello", "seen-by-the-other", "you");
    await page.bringToFront();
    await rowOf(page, "seen-by-the-other").waitFor();
  });
});
