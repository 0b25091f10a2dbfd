// Large stores and long histories: elements, requests and bytes are counted and told; times are for `frames.mjs`.
import assert from "node:assert/strict";
import { test } from "node:test";

import { Fixture, browse, eventually, live, open, rows, shownIds } from "./harness.mjs";

const MAX_ELEMENTS = 3_000;
const MAX_BYTES = 500 << 10;

async function withFixture(options, body) {
  const fixture = await Fixture.start(...options);
  try {
    await browse(fixture, { viewport: { width: 1440, height: 900 } }, (page) => body(page, fixture));
  } finally {
    await fixture.stop();
  }
}

/** Counts what a page asks of the API, streams aside, and the elements that it has. */
class Counts {
  #page;
  #test;
  #arriving = [];
  requests = [];
  bytes = 0;

  constructor(page, test) {
    [this.#page, this.#test] = [page, test];
    page.on("response", (response) => {
      if (!response.url().includes("/api/v1/") || response.url().includes("/stream")) return;
      this.requests.push(new URL(response.url()).pathname.replace("/api/v1/", "") + new URL(response.url()).search);
      const add = async () => (this.bytes += (await response.body().catch(() => Buffer.alloc(0))).length);
      this.#arriving.push(add());
    });
  }

  /** Begins again, and returns what there was. */
  async take(what) {
    await Promise.all(this.#arriving);
    const elements = await this.#page.evaluate(() => document.querySelectorAll("*").length);
    const taken = { elements, requests: this.requests, bytes: this.bytes };
    const told = `${elements} elements, ${taken.requests.length} requests, ${(taken.bytes / 1024).toFixed(0)} KiB`;
    this.#test.diagnostic(`${what}: ${told}`);
    assert.ok(elements <= MAX_ELEMENTS, `${what}: ${elements} elements`);
    [this.requests, this.bytes, this.#arriving] = [[], 0, []];
    return taken;
  }
}

/** The memory that scripts use, after everything that is not needed was given back. */
async function heap(page) {
  const session = await page.context().newCDPSession(page);
  await session.send("HeapProfiler.collectGarbage");
  const { usedSize } = await session.send("Runtime.getHeapUsage");
  await session.detach();
  return usedSize / (1 << 20);
}

test("f13 d44 d46 1,000,000 instances: first rows, filters, and 10,000 rows scrolled in bounded memory", async (t) => {
  await withFixture(["--instances", 1_000_000], async (page, fixture) => {
    const counts = new Counts(page, t);
    await open(page, fixture, "instances?order=oldest");
    await eventually(async () => assert.ok((await shownIds(page)).includes("made-0000000")));
    await page.getByText("10,000+").first().waitFor();
    const first = await counts.take("first rows");
    assert.ok(first.bytes < MAX_BYTES, `${first.bytes} bytes: ${first.requests.join(" ")}`);
    const table = page.getByRole("table", { name: "Instances" });
    const height = await rows(page)
      .first()
      .evaluate((row) => row.getBoundingClientRect().height);
    const before = await heap(page);
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
    }
    const scrolled = await counts.take("10,000 rows scrolled");
    assert.ok(scrolled.requests.length < 200, `${scrolled.requests.length} requests`);
    const grown = (await heap(page)) - before;
    t.diagnostic(`10,000 rows scrolled: ${before.toFixed(1)} MiB of scripts' memory before, ${grown.toFixed(1)} MiB more after`);
    assert.ok(grown < 24, `${grown} MiB more`);
    for (const filter of ["name=hello&status=failed", "attr.region=%22region-7%22", "status=running"]) {
      await open(page, fixture, `instances?${filter}`);
      await eventually(async () => assert.ok((await rows(page).count()) > 5));
      await counts.take(`filter ${decodeURIComponent(filter)}`);
    }
    for (const place of ["overview", "blocked", "activities", "operations", "nodes", "deploy"]) {
      await open(page, fixture, place);
      await live(page);
      await eventually(async () => assert.equal(await page.locator("main .waiting").count(), 0));
      await counts.take(place);
    }
  });
});

const drawn = (page) =>
  page
    .getByRole("table", { name: "History" })
    .locator("[data-event]")
    .evaluateAll((all) => all.map((each) => Number(each.dataset.event)));

test("f12 d45 d46 100,000 events: opened at the end, two requests to any event, searched, zoomed, and live", async (t) => {
  await withFixture(["--events", 100_000], async (page, fixture) => {
    const { events: last } = await fixture.get("instances/long");
    assert.ok(last > 100_000, `${last} events`);
    const counts = new Counts(page, t);
    await open(page, fixture, "instances/long?tab=history");
    await eventually(async () => assert.ok((await drawn(page)).includes(last)));
    const opened = await counts.take("opened at the end");
    assert.ok(opened.bytes < MAX_BYTES, `${opened.bytes} bytes: ${opened.requests.join(" ")}`);

    await page.getByRole("textbox", { name: "Go to event" }).fill("50000");
    await page.keyboard.press("Enter");
    await eventually(async () => assert.ok((await drawn(page)).includes(50_000)));
    await page.getByRole("complementary", { name: "Event 50000" }).waitFor();
    const jumped = await counts.take("event 50,000 of the open page");
    const asked = jumped.requests.filter((request) => /history|events/.test(request));
    // The first brings it; more bring what stands beside it.
    assert.match(asked[0], /event=50000/);
    assert.ok(jumped.bytes < MAX_BYTES, `${jumped.bytes} bytes`);

    await page.goto("about:blank");
    await open(page, fixture, "instances/long?tab=history&event=777");
    await eventually(async () => assert.ok((await drawn(page)).includes(777)));
    const linked = await counts.take("event 777 by its link");
    assert.ok(linked.bytes < MAX_BYTES, `${linked.bytes} bytes: ${linked.requests.join(" ")}`);

    // The last of 50,000 inputs, so that all of it has to be searched.
    await page.getByRole("searchbox", { name: "Text" }).fill("step 49999");
    await eventually(async () => assert.match(await page.getByRole("search").innerText(), /^2 matches$/m));
    await page.getByRole("button", { name: "Next match" }).click();
    await page.getByText("1 of 2 matches").waitFor();
    await counts.take("all of it searched");

    await page.goto("about:blank");
    await open(page, fixture, "instances/long");
    const timeline = page.getByRole("table", { name: "Timeline" });
    await timeline.locator(".tl-bar").first().waitFor();
    const drawnTimeline = await counts.take("timeline");
    assert.ok(drawnTimeline.bytes < MAX_BYTES, `${drawnTimeline.bytes} bytes: ${drawnTimeline.requests.join(" ")}`);
    const axis = await timeline.locator(".tl-axis").boundingBox();
    await page.mouse.move(axis.x + axis.width / 3, axis.y + axis.height / 2);
    for (let turn = 0; turn < 6; turn += 1) await page.mouse.wheel(0, -300);
    await page.waitForURL(/zoom=/);
    await eventually(async () => assert.ok((await timeline.locator(".tl-bar").count()) > 3));
    await counts.take("timeline zoomed");

    // It is still live.
    await open(page, fixture, "instances/long?tab=history");
    await eventually(async () => assert.ok((await drawn(page)).includes(last)));
    await live(page);
    await fixture.run("raise", "long", "go");
    await eventually(async () => assert.ok((await drawn(page)).some((event) => event > last)));
    await counts.take("live at its end");
  });
});

test("d22 d45 payloads of 4 MiB and of 9,000 rows open without stopping the page", async (t) => {
  await withFixture([], async (page, fixture) => {
    const counts = new Counts(page, t);
    await open(page, fixture, "instances/large?tab=history&event=1");
    const side = page.getByRole("complementary", { name: "Event 1" });
    await page
      .getByRole("main")
      .getByRole("link", { name: /Input\s*4\.0 MiB/ })
      .waitFor();
    const opened = await counts.take("an instance with payloads of 4 MiB");
    assert.ok(opened.bytes < MAX_BYTES, `${opened.bytes} bytes`);
    await side.getByRole("button", { name: "Read 4.0 MiB" }).click();
    await side.getByText("It is too large to be shown in full.").waitFor();
    await side.getByRole("button", { name: "Download" }).first().waitFor();
    await counts.take("a payload of 4 MiB");
    await open(page, fixture, "instances/structured?tab=history&event=1");
    await side.getByRole("button", { name: /^Read \d/ }).click();
    await side.getByRole("searchbox").or(side.getByPlaceholder("Search")).first().fill("row 8999");
    await page.keyboard.press("Enter");
    await side.getByText("row 8999").first().waitFor();
    await counts.take("a payload of 9,000 objects");
  });
});

test("f14 d17 d25 d46 children three deep are unfolded in place, and 10,000 children stay usable", async (t) => {
  await withFixture(["--children", 10_000], async (page, fixture) => {
    const counts = new Counts(page, t);
    const family = page.getByRole("table", { name: "Family" });
    const member = (id) => family.getByRole("row").filter({ has: page.getByRole("link", { name: id, exact: true }) });
    await open(page, fixture, "instances/family?tab=tree");
    const deepest = ["family::1.2", "family::1.2::1.2", "family::1.2::1.2::1.2"];
    await member(deepest[2]).waitFor();
    // Folded and unfolded again, level by level.
    await family.getByRole("button", { name: "Children of family", exact: true }).click();
    await member(deepest[0]).waitFor({ state: "detached" });
    await family.getByRole("button", { name: "Children of family", exact: true }).click();
    for (const id of deepest) await member(id).waitFor();
    await counts.take("family of three levels");

    await open(page, fixture, "instances/fan?tab=tree");
    await member("fan::1.2").waitFor();
    await page.getByText("10,000 children of the root").waitFor();
    await counts.take("tree of 10,000 children");
    const { rows: failed } = await fixture.get(`count?parent=${(await fixture.get("instances/fan")).key}&status=failed`);
    await page.getByRole("button", { name: new RegExp(`^failed ${failed.toLocaleString("en")}$`) }).waitFor();
    // The last child is reached by scrolling, page by page; the root and a head are rows too.
    await eventually(async () => {
      await family.evaluate((box) => (box.scrollTop = box.scrollHeight));
      assert.equal(await family.getAttribute("aria-rowcount"), "10002");
    }, 120_000);
    await counts.take("scrolled to the last child");
    await page.getByRole("button", { name: new RegExp(`^failed ${failed.toLocaleString("en")}$`) }).click();
    await eventually(async () => assert.equal((await family.locator(".tr-row.failed").count()) > 5, true));
    assert.equal(await family.locator(".tr-row.completed").count(), 0);
    await counts.take("only the failed ones");
    await open(page, fixture, "instances/fan");
    await page.getByRole("table", { name: "Timeline" }).locator(".tl-bar").first().waitFor();
    await counts.take("timeline with 10,000 children");
  });
});
