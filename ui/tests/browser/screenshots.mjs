// One picture of every page, tab, empty and error state, in both themes and two widths, from a seeded store and with a clock that
// stands still. People look at them when the pages change; nothing compares them.
//
//   node tests/browser/screenshots.mjs DIRECTORY [PART OF A NAME]
import { mkdir } from "node:fs/promises";
import { join } from "node:path";

import { Fixture, launch } from "./fixture.mjs";

const [directory = "screenshots", wanted = ""] = process.argv.slice(2);
const WIDTHS = { wide: { width: 1440, height: 900 }, narrow: { width: 390, height: 844 } };

const press =
  (...keys) =>
  async (page) => {
    for (const key of keys) await page.keyboard.press(key);
  };
const select = async (page) =>
  page
    .getByRole("checkbox", { name: /^Select / })
    .nth(1)
    .check();

const terminate = async (page) => {
  await page.getByRole("button", { name: "Actions" }).click();
  await page.getByRole("menuitem", { name: /Terminate/ }).click();
};

/** Name, place, and what is done there. */
const FULL = [
  ["overview", "overview"],
  ["instances", "instances"],
  ["instances-filtered", "instances?status=failed"],
  ["instances-selected", "instances?name=hello", select],
  ["instances-no-match", "instances?status=failed&name=hello"],
  ["instances-folded", "instances?root=true"],
  ["instances-hostile", "instances?id_prefix=%3C"],
  ["start", "instances?start=new"],
  ["keys", "instances", press("?")],
  ["palette", "instances", press("Control+k")],
  ["blocked", "blocked"],
  ["cause", "blocked", (page) => page.getByRole("button", { name: /invoice/ }).click()],
  ["activities", "activities"],
  ["operations", "operations"],
  ["nodes", "nodes"],
  ["deploy", "deploy"],
  ...["timeline", "history", "waits", "tree", "state", "compare"].map((tab) => [`one-${tab}`, `instances/payment-1?tab=${tab}`]),
  ["one-order", "instances/order-7?tab=timeline"],
  ["one-units", "instances/branches-1?tab=timeline"],
  ["one-completed", "instances/hello-1?tab=history"],
  ["one-failed", "instances/shipping-failed?tab=timeline"],
  ["one-diverged", "instances/invoice-1"],
  ["one-panicked", "instances/fragile-1"],
  ["one-executions", "instances/rounds-1?tab=timeline"],
  ["one-handlers", "instances/cart-1?tab=state"],
  ["one-cancelling", "instances/cancelling?tab=waits"],
  ["one-numbers", "instances/numbers?tab=history"],
  ["one-large", "instances/large?tab=history"],
  ["one-family", "instances/family?tab=tree"],
  ["one-children", "instances/fan?tab=tree"],
  ["one-missing", "instances/nobody"],
  ["one-side", "instances/order-7?event=7"],
  ["one-sums", "instances/order-7", (page) => page.getByRole("button", { name: "Sums" }).click()],
  ["one-table", "instances/order-7", (page) => page.getByRole("button", { name: "Table", exact: true }).click()],
  ["one-event", "instances/order-7?tab=history&event=7"],
  ["one-operations", "instances/order-7?tab=history&by=operations"],
  ["one-past", "instances/order-7?turn=3"],
  ["one-graph", "instances/family?tab=tree&as=graph"],
  ["one-compared", "instances/invoice-1?tab=compare&with=invoice-2"],
  ["one-terminate", "instances/nap-hour", terminate],
  ["guide", "guide/PER-0203"],
  ["nowhere", "nowhere"],
];
const EMPTY = ["overview", "instances", "blocked", "activities", "operations", "nodes", "deploy"].map((place) => [
  `empty-${place}`,
  place,
]);

const troubles = [];

/** `prepare` is done at each place, `before` before each. */
async function take(browser, fixture, states, prepare, before) {
  for (const [size, viewport] of Object.entries(WIDTHS)) {
    for (const colorScheme of ["light", "dark"]) {
      const context = await browser.newContext({
        viewport,
        colorScheme,
        reducedMotion: "reduce",
        locale: "en-GB",
        timezoneId: "UTC",
      });
      const page = await context.newPage();
      for (const [name, place, act] of states) {
        if (!name.includes(wanted)) continue;
        await before?.();
        await page.goto("about:blank");
        // The clock stands still at the time of the store, so that ages fit what the store says.
        await page.clock.setFixedTime((await fixture.run("now")).now_ms);
        await page.goto(`${fixture.url}#/${place}`);
        await page.getByRole("heading").first().waitFor();
        await act?.(page);
        await prepare?.(page).catch((error) => troubles.push(`${name}-${size}-${colorScheme}: ${error.message.split("\n")[0]}`));
        await settled(page);
        await page.screenshot({ path: join(directory, `${name}-${size}-${colorScheme}.png`) });
        console.log(`${name}-${size}-${colorScheme}.png`);
      }
      await context.close();
    }
  }
}

/** Waits until nothing is being loaded and two frames in a row have the same text. */
async function settled(page) {
  await page.waitForFunction(() => document.querySelector(".skeleton") === null, undefined, { timeout: 5_000 }).catch(() => {});
  let before = "";
  for (let tries = 0; tries < 40; tries += 1) {
    const text = await page.evaluate(() => new Promise((resolve) => setTimeout(() => resolve(document.body.innerText), 100)));
    if (text === before) return;
    before = text;
  }
}

await mkdir(directory, { recursive: true });
const browser = await launch();
const full = await Fixture.start();
await take(browser, full, FULL);
await full.run("kill-runtime");
await take(browser, full, [["without-runtime", "instances"]], (page) =>
  page
    .getByText(/^No runtime/)
    .first()
    .waitFor(),
);
await full.run("kill-server");
const leave = async (page) => {
  await page.getByRole("row").nth(3).waitFor();
  await full.run("kill-server");
  await page.getByText("cannot be reached").first().waitFor();
};
await take(browser, full, [["away", "instances"]], leave, () => full.run("start-server"));
await full.stop();
const empty = await Fixture.start("--empty");
await take(browser, empty, EMPTY);
await empty.stop();
const guarded = await Fixture.start("--tokens");
await take(browser, guarded, [["login", "instances"]]);
await guarded.stop();
await browser.close();
for (const trouble of troubles) console.error(trouble);
process.exitCode = troubles.length === 0 ? 0 : 1;
