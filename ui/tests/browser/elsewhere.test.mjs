// The pages in other surroundings: mounted under a prefix, with links into other tools, on a machine whose clock is wrong.
import assert from "node:assert/strict";
import { test } from "node:test";

import { browse, eventually, fixtureFor, live, open, rowOf } from "./harness.mjs";

const EDITOR = "vscode://file/home/ada/shop/{file}:{line}";
const LOGS = "https://logs.example.com/?q={id}&name={name}&key={key}";
const mounted = fixtureFor(
  "--prefix",
  "/ops/perennial",
  "--link",
  `editor=${EDITOR}`,
  "--link",
  `logs=${LOGS}`,
  "--link",
  "trace=javascript:alert(1)",
);

test("d58 mounted under a prefix, the pages load, follow and act below it alone", async () => {
  const { fixture } = mounted;
  await browse(fixture, async (page) => {
    const outside = [];
    page.on("request", (request) => {
      if (!new URL(request.url()).pathname.startsWith("/ops/perennial")) outside.push(request.url());
    });
    // The prefix alone leads to the page, and keeps the place.
    await page.goto(`${fixture.url.replace("/index.html", "")}#/instances?name=hello`);
    await live(page);
    assert.equal(page.url(), `${fixture.url}#/instances?name=hello`);
    await fixture.run("start", "hello", "below", "you");
    await rowOf(page, "below").filter({ hasText: "Completed" }).waitFor();
    await open(page, fixture, "instances/approval-1");
    await page.getByRole("button", { name: /^Raise approved/ }).click();
    const dialog = page.getByRole("dialog", { name: "Raise an event" });
    await dialog.getByText("The same in a terminal").click();
    await dialog.getByRole("button", { name: "curl" }).click();
    await dialog.getByText(/curl .*\/ops\/perennial\/api\/v1\/instances\/approval-1\/events\/approved/).waitFor();
    await dialog.getByRole("button", { name: "Raise", exact: true }).click();
    await page
      .getByText(/^Completed/)
      .first()
      .waitFor();
    assert.deepEqual(outside, []);
  });
});

test("d29 places in the source and log lines are links by the server's templates, and nothing is loaded from them", async () => {
  await browse(mounted.fixture, async (page) => {
    for (const id of ["invoice-1", "fragile-1"]) {
      await open(page, mounted.fixture, `instances/${id}`);
      const source = page
        .getByRole("main")
        .getByRole("link", { name: /code\.rs:\d+/ })
        .first();
      assert.match(await source.getAttribute("href"), /^vscode:\/\/file\/home\/ada\/shop\/.*\/code\.rs:\d+$/);
    }
    const { key } = await mounted.fixture.get("instances/fragile-1");
    const logs = page.getByRole("main").getByRole("link", { name: "open", exact: true });
    assert.equal(await logs.getAttribute("href"), `https://logs.example.com/?q=fragile-1&name=fragile&key=${key}`);
    await open(page, mounted.fixture, "blocked");
    await page.getByRole("button", { name: /invoice/ }).click();
    const editor = page.getByRole("link", { name: "editor" });
    assert.match(await editor.getAttribute("href"), /^vscode:\/\/file\/home\/ada\/shop\/.*code\.rs:\d+$/);
    assert.equal(await page.locator('a[href^="javascript:"]').count(), 0);
  });
});

test("d5 ages are right on a machine whose clock is an hour off", async () => {
  await browse(mounted.fixture, async (page) => {
    await page.clock.setSystemTime(Date.now() - 3_600_000);
    await mounted.fixture.run("start", "nap", "fresh", 3_600_000);
    await open(page, mounted.fixture, "instances?id=fresh");
    await eventually(async () => assert.match(await rowOf(page, "fresh").innerText(), /\b(now|\d+ s ago)\b/));
    await open(page, mounted.fixture, "instances/fresh");
    await eventually(async () =>
      assert.match(await page.getByRole("main").innerText(), /timer \(event 2\) until .* \(in (59|60) m\)/),
    );
    const nap = await page
      .getByRole("table", { name: "Timeline" })
      .getByRole("button", { name: /^timer/ })
      .getAttribute("aria-label");
    assert.match(nap, /so far (\d+ ms|\d+(\.\d)? s)/);
  });
});
