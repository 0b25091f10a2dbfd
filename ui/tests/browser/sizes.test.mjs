// Large stores and long histories: elements, requests and bytes are counted; times are for the bench.
import assert from "node:assert/strict";
import { test } from "node:test";

import { Fixture, browse, eventually, open, rows, shownIds } from "./harness.mjs";

const MAX_ELEMENTS = 3_000;

async function elements(page) {
  const count = await page.evaluate(() => document.querySelectorAll("*").length);
  assert.ok(count <= MAX_ELEMENTS, `${count} elements`);
}

async function withFixture(options, body) {
  const fixture = await Fixture.start(...options);
  try {
    await browse(fixture, (page) => body(page, fixture));
  } finally {
    await fixture.stop();
  }
}

/** Counts what a page asks for. */
function counting(page) {
  const counted = { requests: [], bytes: 0 };
  page.on("response", async (response) => {
    if (!response.url().includes("/api/v1/") || response.url().includes("/stream")) return;
    counted.requests.push(response.url());
    counted.bytes += (await response.body().catch(() => Buffer.alloc(0))).length;
  });
  return counted;
}

test("f13 d44 1,000,000 instances: the list shows its first rows, filters and scrolls 10,000 rows", async () => {
  await withFixture(["--instances", 1_000_000], async (page, fixture) => {
    await open(page, fixture, "instances?order=oldest");
    await eventually(async () => assert.ok((await shownIds(page)).includes("made-0000000")));
    await page.getByText("10,000+").first().waitFor();
    await elements(page);
    const table = page.getByRole("table", { name: "Instances" });
    const height = await rows(page)
      .first()
      .evaluate((row) => row.getBoundingClientRect().height);
    for (let reached = 0; reached < 10_000;) {
      reached =
        (await table.evaluate((box) => {
          box.scrollTop = box.scrollHeight;
          return box.scrollTop;
        })) / height;
      await eventually(async () => {
        const ids = (await shownIds(page)).filter((id) => id.startsWith("made-"));
        assert.ok(Number(ids.at(-1)?.slice(5)) >= Math.min(reached, 10_000) - 5, `${ids.at(-1)} at ${reached}`);
      });
      await elements(page);
    }
    await open(page, fixture, "instances?name=hello&status=failed");
    await eventually(async () => assert.ok((await rows(page).count()) > 5));
    await open(page, fixture, "instances?attr.region=%22region-7%22");
    await eventually(async () => assert.ok((await rows(page).count()) > 5));
    await elements(page);
  });
});

test("f12 d45 100,000 events: the history opens at its end, an event is two requests away", async () => {
  await withFixture(["--events", 100_000], async (page, fixture) => {
    const counted = counting(page);
    await open(page, fixture, "instances/long?tab=history");
    await eventually(async () => assert.match(await page.getByRole("main").innerText(), /100,00\d/));
    await elements(page);
    assert.ok(counted.bytes < 500 << 10, `${counted.bytes} bytes: ${counted.requests.join(" ")}`);
    counted.requests.length = 0;
    await open(page, fixture, "instances/long?tab=history&event=50000");
    await eventually(async () => assert.match(await page.getByRole("main").innerText(), /\b50,?000\b/));
    await elements(page);
    await open(page, fixture, "instances/long?tab=timeline");
    await elements(page);
  });
});

test("f14 d25 children three deep are unfolded, and 10,000 children stay usable", async () => {
  await withFixture(["--children", 10_000], async (page, fixture) => {
    await open(page, fixture, "instances/family?tab=tree");
    await eventually(async () => assert.match(await page.getByRole("main").innerText(), /family::1\.2::1\.2/));
    await open(page, fixture, "instances/fan?tab=tree");
    await eventually(async () => assert.match(await page.getByRole("main").innerText(), /fan::1\./));
    await elements(page);
  });
});
