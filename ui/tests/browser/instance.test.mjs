// The page of one instance.
import assert from "node:assert/strict";
import { test } from "node:test";

import { browse, eventually, fixtureFor, live, open } from "./harness.mjs";

const full = fixtureFor();

/** The sentence on top of the page. */
function sentence(page, text) {
  return page.getByRole("main").getByText(text).first();
}

test("d15 one sentence says where an instance stands and why", async () => {
  await browse(full.fixture, async (page) => {
    for (const [id, text] of [
      ["payment-1", /charge.*attempt.*card service answered 503/],
      ["approval-1", /approved/],
      ["invoice-1", /Blocked: .*reserve.*greet/],
      ["fragile-1", /panicked at .*code\.rs:\d+.*no shelf 1/],
      ["shipping-failed", /Failed .* at event \d+: out of stock.*returned by ship/],
      ["terminated", /Terminated .*started by mistake/],
      ["hello-1", /Completed .*Hello, Ada!/],
    ]) {
      await open(page, full.fixture, `instances/${id}`);
      await eventually(async () => assert.match((await page.getByRole("main").innerText()).replace(/\s+/g, " "), text));
    }
  });
});

test("f5 d16 a retried activity shows its attempts as segments with their errors, and is retried now", async () => {
  await browse(full.fixture, async (page) => {
    await open(page, full.fixture, "instances/payment-2?tab=timeline");
    const timeline = page.getByRole("table", { name: "Timeline" });
    const row = timeline.getByRole("row").filter({ hasText: "charge" });
    const segments = (kind) => row.locator(`.tl-seg.${kind}`);
    // Four attempts follow one another within seconds; the fifth comes minutes later.
    const failed = 4;
    await eventually(async () => {
      const { waits } = await full.fixture.get("instances/payment-2/waits");
      assert.deepEqual([waits[0].state, waits[0].attempt], ["retry", failed + 1]);
    });
    // The first two are a few milliseconds apart, and may touch.
    await eventually(async () => assert.ok((await segments("run.bad").count()) >= 2));
    assert.ok((await segments("pause").count()) >= 1);
    await timeline.getByRole("button", { name: /^activity charge, event 3, open, .*attempts, .*error: card service/ }).click();
    const side = page.getByRole("complementary", { name: "Selected operation" });
    await eventually(async () =>
      assert.equal(await side.getByText(/^card service answered 503 to request \d+$/).count(), failed + 1),
    );
    await page.getByRole("button", { name: "Retry charge now…" }).waitFor();
    await full.fixture.run("card-service", "on");
    await page.getByRole("button", { name: "Retry charge now…" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Retry now" }).click();
    await sentence(page, /Completed/).waitFor();
    await full.fixture.run("card-service", "off");
    // The attempt that the button began is there, and succeeded.
    await timeline
      .getByRole("button", { name: new RegExp(`^activity charge, event 3, completed, .*${failed + 1} attempts`) })
      .waitFor();
    await side
      .getByText(`"charged 200 at attempt ${failed + 1}"`)
      .first()
      .waitFor();
    const history = await full.fixture.run("history", "payment-2");
    assert.equal(history.turns.at(-1).events.at(-1)[1], "OrchestrationCompleted");
  });
});

test("f7 d30 an approval is given by raising the event that is waited for", async () => {
  await browse(full.fixture, async (page) => {
    await open(page, full.fixture, "instances/approval-1");
    await live(page);
    await page.getByRole("button", { name: /^Raise approved/ }).click();
    const dialog = page.getByRole("dialog", { name: "Raise an event" });
    assert.equal(await dialog.getByLabel("Event").inputValue(), "approved");
    await dialog.getByLabel("Payload").fill('{"by": "Grace", "number": 9007199254740993}');
    await dialog.getByRole("button", { name: "Raise", exact: true }).click();
    await sentence(page, /Completed/).waitFor();
    const { output } = await full.fixture.get("instances/approval-1/result");
    assert.equal(output.by, "Grace");
    // Digit for digit, on the page as in the store.
    await eventually(async () => assert.match(await page.getByRole("main").innerText(), /9007199254740993/));
  });
});

test("d6 every action shows the same as a command and as curl", async () => {
  await browse(full.fixture, async (page) => {
    await open(page, full.fixture, "instances/approval-2");
    await page.getByRole("button", { name: /^Raise approved/ }).click();
    const dialog = page.getByRole("dialog", { name: "Raise an event" });
    await dialog.getByText("The same in a terminal").click();
    await dialog.getByText(/perennial .*raise approval-2 approved/).waitFor();
    await dialog.getByRole("button", { name: "curl" }).click();
    await dialog.getByText(/curl .*instances\/approval-2\/events\/approved/).waitFor();
  });
});

test("f20 d51 two instances of one id, one after another: the open page acts on neither by mistake", async () => {
  await browse(full.fixture, async (page) => {
    const { key } = await full.fixture.run("start", "nap", "replaced", 3_600_000);
    await open(page, full.fixture, "instances/replaced");
    await live(page);
    await page.getByRole("button", { name: "Actions" }).click();
    await page
      .getByRole("menuitem", { name: /Terminate/ })
      .or(page.getByRole("button", { name: /^Terminate…/ }))
      .first()
      .click();
    const dialog = page.getByRole("dialog", { name: "Terminate" });
    await dialog.getByLabel(/^Type/).fill("replaced");
    const second = await full.fixture.run("replace", "nap", "replaced", 3_600_000);
    assert.notEqual(second.key, key);
    await dialog.getByRole("button", { name: "Terminate", exact: true }).click();
    await eventually(async () => assert.match(await page.locator("body").innerText(), /PER-0812|another instance/i));
    const now = await full.fixture.get("instances/replaced");
    assert.deepEqual([now.key, now.status], [second.key, "running"]);
  });
});

test("d51 an instance that does not exist, and one that is deleted while it is shown, are told", async () => {
  await browse(full.fixture, async (page) => {
    await open(page, full.fixture, "instances/nobody");
    await page.getByText("PER-0605").first().waitFor();
    await open(page, full.fixture, "instances/hello-5");
    await live(page);
    await sentence(page, /Completed/).waitFor();
    await full.fixture.run("delete", "hello-5");
    await eventually(async () => assert.match(await page.getByRole("main").innerText(), /deleted/i));
  });
});
