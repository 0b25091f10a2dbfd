// The list of instances.
import assert from "node:assert/strict";
import { test } from "node:test";

import { browse, eventually, fixtureFor, live, open, rowOf, rows, shownIds } from "./harness.mjs";

const full = fixtureFor();

test("f2 d3 a filter is clicked, survives a reload, is shared as a link, and is undone by going back", async () => {
  await browse(full.fixture, async (page) => {
    await open(page, full.fixture, "instances?order=oldest");
    await rowOf(page, "shipping-failed").getByRole("button", { name: "Failed" }).click();
    await page.waitForURL(/status=failed/);
    const failed = async (where) => {
      await eventually(async () => {
        const ids = await shownIds(where);
        assert.ok(ids.includes("shipping-failed") && !ids.includes("hello-1"), ids.join());
      });
    };
    await failed(page);
    await page.reload();
    await failed(page);
    const link = page.url();
    await browse(full.fixture, async (other) => {
      await other.goto(link);
      await failed(other);
    });
    await page.goBack();
    await eventually(async () =>
      assert.ok((await shownIds(page)).includes("timed-out") || !page.url().includes("status=failed")),
    );
    assert.ok(!page.url().includes("status=failed"));
    await page.goForward();
    await failed(page);
  });
});

test("d9 an id that is typed becomes a filter, and its chip is removed", async () => {
  await browse(full.fixture, async (page) => {
    await open(page, full.fixture, "instances");
    await page.getByRole("textbox", { name: "Filter" }).fill("status:completed");
    await page.keyboard.press("Enter");
    await eventually(async () => assert.ok((await shownIds(page)).includes("hello-1")));
    assert.ok(!(await shownIds(page)).includes("shipping-failed"));
    await page.getByRole("button", { name: "Remove Status" }).click();
    await page.waitForURL((url) => !url.hash.includes("status"));
  });
});

test("d48 an empty filter says which chip hides the most", async () => {
  await browse(full.fixture, async (page) => {
    await open(page, full.fixture, "instances?status=completed&name=payment");
    await page.getByRole("heading", { name: "No instance fits this filter" }).waitFor();
    await page.getByText("hides the most").waitFor();
  });
});

test("d8 a row says what its instance does now", async () => {
  await browse(full.fixture, async (page) => {
    for (const [id, text] of [
      ["payment-1", /charge.*attempt/i],
      ["approval-1", /approved/],
      ["nap-hour", /timer/i],
      ["invoice-1", /blocked/i],
    ]) {
      await open(page, full.fixture, `instances?id=${id}`);
      await rowOf(page, id).filter({ hasText: text }).waitFor();
    }
  });
});

test("d8 a row of an ended instance shows its error or result", async () => {
  await browse(full.fixture, async (page) => {
    for (const [id, text] of [
      ["shipping-failed", /out of stock/],
      ["hello-1", /Hello, Ada!/],
    ]) {
      await open(page, full.fixture, `instances?id=${id}`);
      await rowOf(page, id).filter({ hasText: text }).waitFor();
    }
  });
});

test("f3 d4 the list lives while 1,000 instances start, and the selection stays", async () => {
  await browse(full.fixture, async (page) => {
    await open(page, full.fixture, "instances");
    await live(page);
    await rowOf(page, "fan").getByRole("checkbox").check();
    const before = await shownIds(page);
    await full.fixture.run("start-many", 1_000, "hello", "burst-", "somebody");
    await page.getByRole("button", { name: /\d new$/ }).waitFor();
    assert.deepEqual(await shownIds(page), before, "rows hold still while some are selected");
    assert.ok(await rowOf(page, "fan").getByRole("checkbox").isChecked());
    await page.getByText("1 selected").waitFor();
    await full.fixture.run("wait", "burst-1000", "ended");
    await page.getByRole("button", { name: /\d new$/ }).click();
    await eventually(async () => assert.ok((await shownIds(page)).some((id) => id.startsWith("burst-"))));
    const elements = await page.evaluate(() => document.querySelectorAll("*").length);
    assert.ok(elements < 3_000, `${elements} elements`);
  });
});
