// What the tests of the pages share: the fixture program (a real server on a real store), a browser, and waiting for what is
// seen.
//
// After each test the page must have thrown nothing, broken no rule of the content security policy, and asked nothing of any
// other server than its own.
import assert from "node:assert/strict";
import { after, before } from "node:test";

import { Fixture, launch } from "./fixture.mjs";

export { Fixture, example } from "./fixture.mjs";

/** How long to wait for what must come. Long, because the machine may be busy. */
export const PATIENCE_MS = 30_000;

/** A fixture for all tests of a file, on the kind of store that `PERENNIAL_TEST_STORE` names. */
export function fixtureFor(...options) {
  const holder = {};
  const store = process.env.PERENNIAL_TEST_STORE === undefined ? [] : ["--store", process.env.PERENNIAL_TEST_STORE];
  before(async () => {
    holder.fixture = await Fixture.start(...store, ...options);
  });
  after(() => holder.fixture?.stop());
  return holder;
}

let shared;
before(async () => {
  shared = await launch();
});
after(() => shared?.close());

/** What went wrong on the pages of a context. */
function watch(context, origin) {
  const troubles = [];
  const note = (trouble) => troubles.length < 20 && !troubles.includes(trouble) && troubles.push(trouble);
  context.on("page", (page) => {
    page.on("pageerror", (error) => note(`threw ${(error.stack ?? String(error)).split("\n").slice(0, 4).join(" ")}`));
    page.on("console", (message) => {
      const text = message.text();
      // A server that is away is part of some tests; the browser reports each request.
      if (message.type() === "error" && !text.startsWith("Failed to load resource")) note(`logged ${text}`);
    });
    page.on("dialog", (dialog) => {
      troubles.push(`opened a dialog: ${dialog.message()}`);
      void dialog.dismiss();
    });
  });
  context.on("request", (request) => {
    if (new URL(request.url()).origin !== origin) note(`asked ${request.url()}`);
  });
  return troubles;
}

/** Runs `body` with a browser of its own (cookies, storage, workers), and checks afterwards that nothing went wrong. */
export async function browse(fixture, options, body) {
  if (typeof options === "function") [options, body] = [{}, options];
  const context = await shared.newContext({ viewport: { width: 1280, height: 800 }, reducedMotion: "reduce", ...options });
  context.setDefaultTimeout(PATIENCE_MS);
  const troubles = watch(context, new URL(fixture.url).origin);
  await context.addInitScript(() => {
    globalThis.violations = [];
    addEventListener("securitypolicyviolation", (event) =>
      globalThis.violations.push(`${event.violatedDirective}: ${event.blockedURI}`),
    );
  });
  try {
    const page = await context.newPage();
    const result = await body(page, context);
    for (const open of context.pages()) {
      troubles.push(...(await open.evaluate(() => globalThis.violations)).map((violation) => `broke the policy: ${violation}`));
      const hacked = await open.evaluate(() => globalThis.hacked);
      if (hacked !== undefined) troubles.push(`a text of the store became a script: ${hacked}`);
    }
    assert.deepEqual(troubles, []);
    return result;
  } catch (error) {
    await describe(context, troubles, error);
    throw error;
  } finally {
    await context.close();
  }
}

/** Adds what was seen to a failure, and keeps a picture of it if `PERENNIAL_TEST_PICTURES` names a directory. */
async function describe(context, troubles, error) {
  const directory = process.env.PERENNIAL_TEST_PICTURES;
  const page = context.pages().at(-1);
  if (page === undefined || !(error instanceof Error)) return;
  const text = await page.evaluate(() => document.body.innerText.slice(0, 1_500)).catch(() => "");
  if (directory !== undefined) await page.screenshot({ path: `${directory}/${Date.now()}.png` }).catch(() => {});
  const seen = `\n${troubles.join("\n")}\nat ${page.url()} the page showed:\n${text}`;
  error.message += seen;
  error.stack += seen;
}

/** Opens a place of the dashboard: `open(page, fixture, "instances?status=failed")`. */
export async function open(page, fixture, place = "") {
  await page.goto(`${fixture.url}#/${place}`);
  await page.getByRole("heading", { level: 1 }).first().waitFor();
}

/** Logs in with a token. */
export async function logIn(page, token) {
  await page.getByLabel("Token").fill(token);
  await page.getByRole("button", { name: "Log in" }).click();
  await page.getByRole("navigation", { name: "Pages" }).waitFor();
}

/** Tries until it holds. What throws last is the failure. */
export async function eventually(check, patience = PATIENCE_MS) {
  const end = Date.now() + patience;
  for (;;) {
    try {
      return await check();
    } catch (error) {
      if (Date.now() > end) throw error;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }
}

/** The rows of the list of instances. */
export function rows(page) {
  return page
    .getByRole("table", { name: "Instances" })
    .getByRole("row")
    .filter({ has: page.getByRole("cell") });
}

/** The row of an instance. */
export function rowOf(page, id) {
  return rows(page).filter({ has: page.getByRole("link", { name: id, exact: true }) });
}

/** The ids of the rows that are drawn. */
export async function shownIds(page) {
  return rows(page).getByRole("link").allTextContents();
}

/** Waits until the page is connected to its stream. */
export async function live(page) {
  await page.getByRole("button", { name: "Live", exact: true }).waitFor();
}
