// Overview, Activities, Nodes and Deploy: what they say, live, by keyboard, and in small.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { test } from "node:test";

import { browse, eventually, fixtureFor, live, open } from "./harness.mjs";

const full = fixtureFor();
const empty = fixtureFor("--empty");
const AXE = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const PAGES = ["overview", "blocked", "activities", "operations", "nodes", "deploy"];
const TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"];

async function flaws(page) {
  if (!(await page.evaluate(() => "axe" in globalThis))) await page.evaluate(AXE);
  return page.evaluate(async (values) => {
    const { violations } = await globalThis.axe.run(document, { runOnly: { type: "tag", values } });
    return violations.flatMap((violation) =>
      violation.nodes.slice(0, 3).map((node) => `${violation.id}: ${node.html.slice(0, 200)} (${node.failureSummary})`),
    );
  }, TAGS);
}

/** Leaves a report of a preflight, with texts that a hostile program could leave. */
async function leavePreflight(fixture) {
  const bad = "<img src=x onerror=window.hacked=9>";
  const incompatible = {
    id: bad,
    name: bad,
    version: "1.0.0",
    execution: 1,
    code: "PER-0203",
    event: 2,
    location: "src/a.rs:1:2",
    reason: bad,
    report: bad,
  };
  const report = {
    checked: 5,
    compatible: 3,
    incompatible: [incompatible],
    missing: [{ name: bad, version: "0.9.0", instances: 1, ids: [bad] }],
  };
  const body = JSON.stringify({ label: bad, report });
  const response = await fetch(new URL("api/v1/preflights", fixture.url), {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body,
  });
  assert.equal(response.status, 201);
}

test("d36 the overview counts what starts and ends, live, and every number leads to its list", async () => {
  const { fixture } = full;
  await browse(fixture, async (page) => {
    await open(page, fixture, "overview");
    await live(page);
    await page.getByRole("heading", { name: "Needs attention" }).waitFor();
    await page.getByText(/Activity page_somebody is queued/).waitFor();
    await page.getByRole("slider", { name: /^Started per minute/ }).waitFor();
    const before = Number((await page.getByRole("link", { name: /\bstarted$/ }).innerText()).replace(/\D/g, ""));
    await fixture.run("start-many", 25, "hello", "counted-");
    await eventually(async () =>
      assert.ok(Number((await page.getByRole("link", { name: /\bstarted$/ }).innerText()).replace(/\D/g, "")) >= before + 25),
    );
    await page.locator("figure").last().getByText("As a table").click();
    await page
      .getByRole("region", { name: /Ended per minute, as a table/ })
      .getByRole("columnheader", { name: "completed" })
      .waitFor();
    await page.getByRole("button", { name: "Week" }).click();
    await page.waitForURL(/span=week/);
    await page.getByRole("slider", { name: /^Ended per hour/ }).waitFor();
    await page
      .getByRole("link", { name: /^Blocked/ })
      .first()
      .click();
    await page.getByRole("heading", { level: 1, name: "Blocked" }).waitFor();
  });
});

test("d36 f16 a chart is read by arrow keys, and Enter opens the instances of a bucket", async () => {
  await browse(full.fixture, async (page) => {
    await open(page, full.fixture, "overview");
    const chart = page.getByRole("slider", { name: /^Started per minute/ });
    await chart.focus();
    await page.keyboard.press("End");
    await eventually(async () => assert.match((await chart.getAttribute("aria-valuetext")) ?? "", /: (\d+ started|none)$/));
    await page.keyboard.press("Enter");
    await page.waitForURL(/created_from_ms=\d+&created_before_ms=\d+/);
  });
});

test("d35 retried activities are grouped by name and error, and are all attempted at once", async () => {
  const { fixture } = full;
  await browse(fixture, async (page) => {
    await open(page, fixture, "activities");
    await live(page);
    const row = page
      .getByRole("listitem")
      .filter({ has: page.getByRole("button", { name: /charge/ }) })
      .first();
    await row.getByText("card service answered # to request #").first().waitFor();
    const stranded = page.getByRole("region", { name: "Activities that no node can run" });
    await stranded
      .getByRole("row", { name: /greet/ })
      .getByText(/serves? tag scanner/)
      .waitFor();
    await stranded
      .getByRole("row", { name: /page_somebody/ })
      .getByText(/No live node has registered/)
      .waitFor();
    await fixture.run("card-service", "on");
    await row.getByRole("button", { name: /^Retry all now/ }).click();
    const dialog = page.getByRole("dialog", { name: "Retry charge now" });
    await dialog.getByRole("button", { name: /^Retry \d/ }).click();
    // The row holds still while the focus is in it, and says that none is left.
    await row.getByText("none left").waitFor();
    await page.getByRole("heading", { level: 1 }).click();
    await page.getByRole("button", { name: /charge/ }).waitFor({ state: "detached" });
    for (const number of [1, 2, 3]) await fixture.run("wait", `payment-${number}`, "ended");
  });
});

test("d37 a node shows its lease, shards and registrations, and all shards their owner", async () => {
  await browse(full.fixture, async (page) => {
    await open(page, full.fixture, "nodes");
    const row = page
      .getByRole("listitem")
      .filter({ has: page.getByRole("button", { name: /node-1/ }) })
      .first();
    await row.getByText("256", { exact: true }).waitFor();
    await row.getByRole("button", { name: /node-1/ }).click();
    await row.getByRole("link", { name: "checkout" }).waitFor();
    const { nodes } = await full.fixture.get("nodes");
    await row
      .getByText(new RegExp(`(busy of )?${nodes[0].turn_threads}$`))
      .first()
      .waitFor();
    for (const fact of ["Turn threads", "Instances in memory", "Clock"]) await row.getByText(fact, { exact: true }).waitFor();
    await page.getByRole("columnheader", { name: "Lag" }).waitFor();
    await page.getByRole("img", { name: "256 shards by owner: node-1 256" }).waitFor();
    await page.getByRole("cell", { name: "0–255" }).waitFor();
    await full.fixture.run("kill-runtime");
    await page.getByRole("img", { name: "256 shards by owner: Nobody 256" }).waitFor();
    await row.getByText("Lease expired").or(page.getByText("No node works on this store now")).first().waitFor();
    await full.fixture.run("start-runtime");
    await page.getByRole("img", { name: "256 shards by owner: node-1 256" }).waitFor();
  });
});

test("d38 deploy says which version is missing and who needs it, and shows preflights", async () => {
  await leavePreflight(full.fixture);
  await browse(full.fixture, async (page) => {
    await open(page, full.fixture, "deploy");
    const table = page.getByRole("region", { name: "Orchestrations by version" });
    await table
      .getByRole("row", { name: /retired/ })
      .getByText("No live node has it; 3 open instances need it")
      .waitFor();
    await table
      .getByRole("row", { name: /checkout/ })
      .getByText("Current")
      .waitFor();
    await page.keyboard.press("/");
    await page.keyboard.type("retired");
    await page.waitForURL(/name=retired/);
    await eventually(async () => assert.equal(await table.getByRole("rowheader").count(), 1));
    await page.getByRole("button", { name: /onerror/ }).click();
    await page.getByRole("region", { name: "Incompatible instances" }).getByText("src/a.rs:1:2").waitFor();
    assert.equal(await page.locator("main img").count(), 0);
  });
});

for (const colorScheme of ["light", "dark"]) {
  test(`f17 d42 axe finds nothing on opened rows, tables and dialogs of the pages about trouble, ${colorScheme}`, async () => {
    await browse(full.fixture, { colorScheme }, async (page) => {
      for (const place of PAGES) {
        await open(page, full.fixture, place);
        await live(page);
        await page.getByRole("heading", { level: 1 }).waitFor();
        await eventually(async () => assert.equal(await page.locator("main .waiting").count(), 0));
        const toggles = page.locator("main [aria-expanded=false]");
        for (let left = await toggles.count(); left > 0 && left < 30; left -= 1)
          await toggles
            .first()
            .click({ position: { x: 4, y: 4 } })
            .catch(() => {});
        for (const summary of await page.locator("main summary").all()) await summary.click();
        assert.deepEqual(await flaws(page), [], place);
      }
      await open(page, full.fixture, "blocked");
      await page.getByRole("button", { name: /fragile/ }).click();
      await page.getByRole("button", { name: /^Terminate all/ }).click();
      await page
        .getByRole("dialog")
        .getByRole("button", { name: /^Terminate \d/ })
        .waitFor();
      assert.deepEqual(await flaws(page), [], "terminate a cause");
    });
  });
}

test("f16 d41 causes are moved through, opened and acted on by keyboard alone", async () => {
  await browse(full.fixture, async (page) => {
    await open(page, full.fixture, "overview");
    await page.keyboard.press("g");
    await page.keyboard.press("b");
    await page.getByRole("heading", { level: 1, name: "Blocked" }).waitFor();
    await page.getByRole("button", { name: /fragile/ }).waitFor();
    await page.keyboard.press("j");
    await eventually(async () => assert.equal(await page.evaluate(() => document.activeElement?.hasAttribute("data-row")), true));
    await page.keyboard.press("Enter");
    await page.waitForURL(/cause=/);
    const retry = page.getByRole("button", { name: /^Retry all/ }).first();
    await retry.focus();
    await page.keyboard.press("Enter");
    await page.getByRole("dialog").waitFor();
    await page.keyboard.press("Escape");
    await page.getByRole("dialog").waitFor({ state: "detached" });
    assert.equal(await retry.evaluate((button) => button === document.activeElement), true, "the focus is back where it was");
  });
});

test("d4 d41 rows hold still under the pointer while new causes gather", async () => {
  const { fixture } = full;
  await browse(fixture, async (page) => {
    await open(page, fixture, "blocked");
    await live(page);
    // Not the first row: a banner about the runtime may move all rows by its height while the code is deployed.
    await page.locator("main [data-row]").nth(1).hover();
    await fixture.run("start-many", 4, "checkout", "hold-", "socks");
    await fixture.run("wait-many", 4, "hold-", "2");
    await fixture.run("deploy", "bad");
    await fixture.run("raise-many", 4, "go", "hold-");
    await page.getByRole("button", { name: /^1 new cause$/ }).waitFor();
    assert.equal(await page.getByRole("button", { name: /checkout/ }).count(), 0);
    await page.getByRole("button", { name: /^1 new cause$/ }).click();
    await page.getByRole("button", { name: /checkout/ }).waitFor();
    await fixture.run("deploy", "good");
  });
});

test("d48 on an empty store every page says what would be there", async () => {
  const says = {
    overview: "Nothing needs help.",
    blocked: "No instance is blocked",
    activities: "No activity is retried",
    operations: "No operation has been started",
    deploy: "No report has been left.",
  };
  await browse(empty.fixture, async (page) => {
    for (const [place, text] of Object.entries(says)) {
      await open(page, empty.fixture, place);
      await page.getByText(text).first().waitFor();
    }
  });
});

test("d49 a part of a page that fails says so for itself, and is tried again", async () => {
  await browse(full.fixture, async (page) => {
    // The browser drops the request, as it does when a connection breaks.
    await page.route("**/api/v1/doctor", (route) => route.abort());
    await open(page, full.fixture, "overview");
    await page.getByRole("alert").filter({ hasText: "There was no answer from the server." }).waitFor();
    await page.getByRole("slider", { name: /^Started/ }).waitFor();
    await page.unroute("**/api/v1/doctor");
    await page.getByRole("button", { name: "Try again" }).click();
    await page.getByRole("heading", { name: "Needs attention" }).waitFor();
  });
});
