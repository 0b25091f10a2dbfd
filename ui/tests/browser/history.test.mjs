// The history of an instance, its past, its state, and two of them side by side.
import assert from "node:assert/strict";
import { test } from "node:test";

import { browse, eventually, fixtureFor, live, open } from "./harness.mjs";

const full = fixtureFor();

const history = (page) => page.getByRole("table", { name: "History" });
const numbers = (locator, name) => locator.evaluateAll((all, key) => all.map((each) => Number(each.dataset[key])), name);

/** Notes, at each change of the page, which turns and events are drawn. */
async function noteDrawn(page) {
  await page.evaluate(() => {
    const drawn = (name) => [...document.querySelectorAll(`[data-${name}]`)].map((each) => Number(each.dataset[name]));
    globalThis.drawn = [];
    const note = () => globalThis.drawn.push({ turns: drawn("turn"), events: drawn("event") });
    new MutationObserver(note).observe(document.body, { subtree: true, childList: true });
  });
}

test("f4 h28 an instance is watched to its end while the server goes away: every turn is drawn once", async () => {
  const { fixture } = full;
  await fixture.run("start", "cart", "watched", null);
  // All of it fits into a tall window.
  await browse(fixture, { viewport: { width: 1280, height: 2_400 } }, async (page) => {
    await open(page, fixture, "instances/watched?tab=history");
    await live(page);
    await history(page).locator("[data-turn]").first().waitFor();
    await noteDrawn(page);
    const like = async (check) => {
      const { turns } = await fixture.run("history", "watched");
      const events = turns.flatMap((turn) => turn.events.map(([id]) => id));
      const kinds = turns.flatMap((turn) => turn.events.map(([, kind]) => kind));
      assert.deepEqual(
        await numbers(history(page).locator("[data-turn]"), "turn"),
        turns.map(({ turn }) => turn),
      );
      assert.deepEqual(await numbers(history(page).locator("[data-event]"), "event"), events);
      assert.deepEqual(await history(page).locator("[data-event]").getByRole("button").allInnerTexts(), kinds);
      assert.ok(check(turns));
    };
    const raise = async (note) => {
      const { turns } = await fixture.run("history", "watched");
      await fixture.run("raise", "watched", "note", note);
      await fixture.run("wait", "watched", String(turns.length + 1));
    };
    // One turn after the other, each seen before the next.
    for (const note of ["one", "two", "three"]) {
      await raise(note);
      await eventually(() => like(() => true));
    }
    await fixture.run("kill-server");
    await page.getByText("The server cannot be reached since").waitFor();
    for (const note of ["four", "five", "six"]) await raise(note);
    await fixture.run("start-server");
    await eventually(() => like((turns) => turns.length >= 7));
    await fixture.run("raise", "watched", "checkout");
    await fixture.run("wait", "watched", "ended");
    await eventually(() => like((turns) => turns.at(-1).events.at(-1)[1] === "OrchestrationCompleted"));
    await page
      .getByText(/^Completed/)
      .first()
      .waitFor();
    const { turns } = await fixture.run("history", "watched");
    const drawn = await page.evaluate(() => globalThis.drawn);
    // At no moment was one drawn twice, or one missing between others; and it was watched, not read at the end.
    for (const { turns: shown } of drawn) {
      const sorted = [...shown].sort((a, b) => a - b);
      assert.deepEqual(
        sorted,
        Array.from(sorted, (_, index) => index + 1),
        `drawn: ${shown}`,
      );
    }
    for (const { events: shown } of drawn) assert.equal(new Set(shown).size, shown.length, `drawn: ${shown}`);
    const lengths = new Set(drawn.map(({ turns: shown }) => shown.length));
    for (const length of [2, 3, 4, turns.length]) assert.ok(lengths.has(length), `never ${length} turns, but ${[...lengths]}`);
  });
});

test("d21 events are filtered, counted and stepped through, and each has a link", async () => {
  await browse(full.fixture, async (page) => {
    await open(page, full.fixture, "instances/branches-1?tab=history");
    await history(page).getByRole("row").filter({ hasText: "OrchestrationStarted" }).waitFor();
    await page.getByRole("searchbox", { name: "Text" }).fill("wrap");
    await page.getByText("2 matches").waitFor();
    await page.getByRole("button", { name: "Next match" }).click();
    await page.getByText("1 of 2 matches").waitFor();
    await page.getByRole("button", { name: "Next match" }).click();
    await page.waitForURL(/event=7/);
    await page.getByRole("button", { name: "Clear" }).click();
    // The event stays selected, among its neighbours.
    await page.getByRole("complementary", { name: "Event 7" }).waitFor();
    await eventually(async () => assert.equal((await numbers(history(page).locator("[data-event]"), "event")).length, 9));
    await open(page, full.fixture, "instances/shipping-failed?tab=history&failed=true");
    await eventually(async () => assert.deepEqual(await numbers(history(page).locator("[data-event]"), "event"), [3, 4]));
    await open(page, full.fixture, "instances/shipping-failed?tab=history&by=operations");
    await history(page).getByRole("row").filter({ hasText: "2 → 3" }).filter({ hasText: "out of stock (attempt 5)" }).waitFor();
  });
});

test("d22 d23 payloads appear digit for digit, and two events are compared", async () => {
  await browse(full.fixture, async (page) => {
    await open(page, full.fixture, "instances/numbers?tab=history&event=1");
    await page.getByRole("complementary", { name: "Event 1" }).getByText("9007199254740993").first().waitFor();
    await open(page, full.fixture, "instances/branches-1?tab=history&event=2");
    await page.getByRole("button", { name: "Compare with another event" }).click();
    await history(page).getByRole("button", { name: "ActivityScheduled" }).nth(1).click();
    const dialog = page.getByRole("dialog", { name: "Events 2 and 6" });
    await dialog.getByText('"fold"').waitFor();
    await dialog.getByText('"wrap"').waitFor();
    await dialog.getByText("1 line differs.").waitFor();
  });
});

test("f15 d27 the past at a turn equals what the server tells about that turn", async () => {
  await browse(full.fixture, async (page) => {
    for (const turn of [1, 2, 4]) {
      const then = await full.fixture.get(`instances/branches-1/waits?execution=1&turn=${turn}`);
      await open(page, full.fixture, `instances/branches-1?tab=waits&turn=${turn}`);
      await page.getByText(`after turn ${turn} of 4`).waitFor();
      const shown = page.getByRole("tabpanel").getByRole("listitem");
      await eventually(async () => assert.equal(await shown.count(), then.waits.length));
      for (const wait of then.waits) await page.getByRole("tabpanel").getByText(`event ${wait.event}`).first().waitFor();
      // The timeline has the same operations open.
      await open(page, full.fixture, `instances/branches-1?turn=${turn}`);
      const open_ = page.getByRole("table", { name: "Timeline" }).getByRole("button", { name: /, open,/ });
      await eventually(async () => assert.equal(await open_.count(), then.waits.length));
    }
    await page.getByRole("button", { name: "Back to now" }).click();
    await page.getByRole("button", { name: "The past" }).waitFor();
    // An earlier execution, by the slider.
    await open(page, full.fixture, "instances/rounds-1?tab=state&execution=2&turn=1");
    await page.getByText("of execution 2").waitFor();
    await page.getByRole("button", { name: "One turn later" }).click();
    const then = await full.fixture.get("instances/rounds-1/waits?execution=2&turn=2");
    await page.getByRole("tabpanel").getByText(then.published).waitFor();
  });
});

test("f8 d26 a query with input is answered, and an update is refused and accepted", async () => {
  await browse(full.fixture, async (page) => {
    await open(page, full.fixture, "instances/cart-1?tab=state");
    const items = page.getByRole("region", { name: "Query items" });
    await items.getByLabel("after each turn").check();
    await items.getByRole("button", { name: "Ask" }).click();
    await items.getByText('"tea"').waitFor();
    const item = page.getByRole("region", { name: "Query item", exact: true });
    await item.getByLabel("Input").fill("0");
    await item.getByRole("button", { name: "Ask" }).click();
    await item.getByText('"tea"').waitFor();
    const update = async (input) => {
      await page.getByRole("region", { name: "Update add" }).getByRole("button", { name: "Update…" }).click();
      const dialog = page.getByRole("dialog", { name: "Update" });
      await dialog.getByLabel("Input").fill(input);
      await dialog.getByRole("button", { name: "Update", exact: true }).click();
      return dialog;
    };
    const refused = await update('"tea"');
    await refused.getByText("tea is in the cart").waitFor();
    await refused.getByRole("button", { name: "Cancel" }).click();
    await update('"milk"');
    await page.getByText(/Updated add, answered 2, durable/).waitFor();
    // The query repeats itself after the turn of the update.
    await items.getByText('"milk"').waitFor();
  });
});

test("d24 what is open is listed by unit with what can be done about it", async () => {
  await browse(full.fixture, async (page) => {
    await open(page, full.fixture, "instances/branches-1?tab=waits");
    const panel = page.getByRole("tabpanel");
    await panel.getByRole("heading", { name: "Unit p1" }).waitFor();
    await panel.getByRole("button", { name: "Raise…" }).waitFor();
    await open(page, full.fixture, "instances/cancelling?tab=waits");
    await panel.getByText(/Cancel requested .*the customer left/).waitFor();
    await open(page, full.fixture, "instances/nightly-1?tab=waits");
    await panel.getByText("heartbeat", { exact: true }).waitFor();
    await panel.getByText("progress", { exact: true }).waitFor();
  });
});

test("d28 two instances are laid side by side, with where they first part", async () => {
  await browse(full.fixture, async (page) => {
    await full.fixture.run("start", "steps", "three", [3, 1]);
    await full.fixture.run("start", "steps", "two", [2, 1]);
    await full.fixture.run("wait", "three", "ended");
    await full.fixture.run("wait", "two", "ended");
    await open(page, full.fixture, "instances/three?tab=compare");
    await page.getByRole("button", { name: "two" }).click();
    await page.getByRole("button", { name: "length at operation 5" }).waitFor();
    await eventually(async () => assert.equal(await page.getByText("nothing", { exact: true }).count(), 2));
    await open(page, full.fixture, "instances/hello-1?tab=compare&with=hello-2");
    await page
      .getByRole("status")
      .filter({ hasText: /same names, inputs and outcomes|first part/ })
      .waitFor();
  });
});

test("d25 failed children are counted, and can be shown alone", async () => {
  await browse(full.fixture, async (page) => {
    await open(page, full.fixture, "instances/fan?tab=tree");
    const family = page.getByRole("table", { name: "Family" });
    await eventually(async () => assert.equal(await family.getByRole("row").count(), 13));
    await page.getByRole("button", { name: "failed 1" }).click();
    await eventually(async () => assert.equal(await family.getByRole("row").count(), 2));
    await open(page, full.fixture, "instances/fan?tab=tree&as=graph");
    await page.getByRole("group", { name: "The family as a graph" }).getByText("…::1.5").waitFor();
  });
});
