// Who may do what: readers, operators, nobody.
import assert from "node:assert/strict";
import { test } from "node:test";

import { browse, eventually, fixtureFor, logIn, open, rowOf, rows } from "./harness.mjs";

const full = fixtureFor("--tokens");

test("d50 h8 a person logs in with a token and is then where they wanted to be", async () => {
  await browse(full.fixture, async (page) => {
    await page.goto(`${full.fixture.url}#/instances?status=failed`);
    await page.getByLabel("Token").fill("per_wrong");
    await page.getByRole("button", { name: "Log in" }).click();
    await page.getByRole("alert").filter({ hasText: "PER-0801" }).waitFor();
    await logIn(page, full.fixture.reader);
    await rowOf(page, "shipping-failed").waitFor();
    assert.match(page.url(), /status=failed/);
    const readable = await page.evaluate(
      (token) => document.cookie.includes("per") || JSON.stringify(localStorage).includes(token),
      full.fixture.reader,
    );
    assert.equal(readable, false, "no script can read the token or the cookie");
    await page.getByRole("button", { name: "bob, reader" }).click();
    await page
      .getByRole("menuitem", { name: "Log out" })
      .or(page.getByRole("button", { name: "Log out" }))
      .click();
    await page.getByLabel("Token").waitFor();
  });
});

test("f9 d7 a reader sees terminate disabled with the reason, and the server refuses it", async () => {
  await browse(full.fixture, async (page) => {
    await open(page, full.fixture, "instances?id=nap-hour");
    await logIn(page, full.fixture.reader);
    await rowOf(page, "nap-hour").getByRole("checkbox").check();
    const terminate = page.getByRole("button", { name: /^Terminate…/ });
    await terminate.waitFor();
    assert.equal(await terminate.getAttribute("aria-disabled"), "true");
    assert.match((await terminate.textContent()) ?? "", /Only operators/);
    await terminate.click({ force: true });
    assert.equal(await page.getByRole("dialog").count(), 0);
    const refused = await page.evaluate(async () => {
      const options = { method: "POST", headers: { "Content-Type": "application/json" }, body: "{}" };
      const response = await fetch("api/v1/instances/nap-hour/terminate", options);
      return [response.status, (await response.json()).code];
    });
    assert.deepEqual(refused, [403, "PER-0802"]);
  });
});

test("f9 d31 an operator terminates a running instance after typing its id", async () => {
  await browse(full.fixture, async (page) => {
    await open(page, full.fixture, "instances?id=nap-hour");
    await logIn(page, full.fixture.operator);
    await rowOf(page, "nap-hour").getByRole("checkbox").check();
    await page.getByRole("button", { name: "Terminate…" }).click();
    const dialog = page.getByRole("dialog", { name: "Terminate an instance" });
    await dialog.getByText("ends at once").waitFor();
    const act = dialog.getByRole("button", { name: /^Terminate/ });
    assert.equal(await act.getAttribute("aria-disabled"), "true");
    await dialog.getByLabel("Reason").fill("not needed");
    await dialog.getByLabel(/^Type/).fill("nap-hour");
    await act.click();
    await dialog.waitFor({ state: "detached" });
    await rows(page).filter({ hasText: "Terminated" }).waitFor();
    const { status, reason } = await full.fixture.get("instances/nap-hour/result", full.fixture.reader);
    assert.deepEqual([status, reason], ["terminated", "by ada: not needed"]);
    await eventually(async () => assert.equal(await rowOf(page, "nap-hour").count(), 1));
  });
});

test("d50 a session that ended leads to the login, and back to the same place", async () => {
  await browse(full.fixture, async (page, context) => {
    await open(page, full.fixture, "instances?status=failed");
    await logIn(page, full.fixture.reader);
    await rowOf(page, "shipping-failed").waitFor();
    await page.evaluate(() => (globalThis.sameDocument = true));
    await context.clearCookies();
    // Not by a click: a request of the page itself may have led to the login already.
    await page.evaluate(() => (location.hash = "#/deploy"));
    await page.getByLabel("Token").waitFor();
    await logIn(page, full.fixture.reader);
    await page.getByRole("heading", { level: 1, name: "Deploy" }).waitFor();
    assert.match(page.url(), /#\/deploy/);
    assert.equal(await page.evaluate(() => globalThis.sameDocument), true);
    await page.goBack();
    await rowOf(page, "shipping-failed").waitFor();
  });
});

test("d43 a chosen theme is there before the page is drawn, and follows into other tabs", async () => {
  await browse(full.fixture, { colorScheme: "light" }, async (page) => {
    await open(page, full.fixture, "overview");
    await logIn(page, full.fixture.reader);
    await page.getByRole("button", { name: "Times, theme and keys" }).click();
    await page.getByRole("button", { name: "Dark" }).click();
    await page.keyboard.press("Escape");
    await page.addInitScript(() => {
      // What the first frame is drawn with.
      requestAnimationFrame(() => (globalThis.atFirst = document.documentElement.dataset.theme));
    });
    await page.reload();
    await page.getByRole("heading", { level: 1 }).waitFor();
    assert.equal(await page.evaluate(() => globalThis.atFirst), "dark");
    assert.equal(await page.evaluate(() => getComputedStyle(document.documentElement).colorScheme), "dark");
  });
});
