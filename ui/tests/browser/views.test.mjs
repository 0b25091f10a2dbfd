// Views, columns, folded children, and the form that starts an instance.
import assert from "node:assert/strict";
import { test } from "node:test";

import { browse, eventually, fixtureFor, open, rowOf, shownIds } from "./harness.mjs";

const full = fixtureFor();

test("d10 d13 views show their counts, and those that come along list what they say", async () => {
  await browse(full.fixture, async (page) => {
    await open(page, full.fixture, "instances");
    const views = page.getByRole("navigation", { name: "Views" });
    const { rows } = await full.fixture.get("count?retrying=true");
    await views.getByRole("link", { name: `Retrying ${rows}` }).click();
    await page.waitForURL(/retrying=true/);
    await eventually(async () => assert.ok((await shownIds(page)).includes("payment-1")));
    assert.ok(!(await shownIds(page)).includes("hello-1"));
    assert.equal(await views.getByRole("link", { name: /^Retrying/ }).getAttribute("aria-current"), "true");
  });
});

test("d10 an own view is kept by the browser, a shared one by the store for everybody", async () => {
  await browse(full.fixture, async (page) => {
    for (const [name, isShared] of [
      ["Mine", false],
      ["Ours", true],
    ]) {
      await open(page, full.fixture, `instances?name=${isShared ? "payment" : "hello"}`);
      await page.getByRole("button", { name: "Save view" }).click();
      await page.getByLabel("Name").fill(name);
      if (isShared) await page.getByLabel("For everybody who uses this store").check();
      await page.getByRole("button", { name: "Save", exact: true }).click();
      await page.getByRole("link", { name: new RegExp(`^${name}`) }).waitFor();
    }
    await browse(full.fixture, async (other) => {
      await open(other, full.fixture, "instances");
      await other.getByRole("link", { name: /^Ours/ }).click();
      await other.waitForURL(/name=payment/);
      assert.equal(await other.getByRole("link", { name: /^Mine/ }).count(), 0);
    });
    await page.reload();
    await page.getByRole("link", { name: /^Ours/ }).click();
    await page.getByRole("button", { name: "Delete the view Ours" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Delete the view" }).click();
    await page.getByRole("link", { name: /^Ours/ }).waitFor({ state: "detached" });
    assert.deepEqual((await full.fixture.get("views")).views, []);
  });
});

test("d9 the values of a chip come with counts, and are chosen from them", async () => {
  await browse(full.fixture, async (page) => {
    await open(page, full.fixture, "instances");
    await page.getByRole("button", { name: "Filter", exact: true }).click();
    await page.getByRole("button", { name: "Orchestration", exact: true }).click();
    await page.getByRole("checkbox", { name: /^payment\s*3$/ }).check();
    await page.waitForURL(/name=payment/);
    await page.keyboard.press("Escape");
    await eventually(async () => assert.deepEqual((await shownIds(page)).sort(), ["payment-1", "payment-2", "payment-3"]));
  });
});

test("d8 columns are chosen, also attributes, and a cell of one adds itself to the filter", async () => {
  await browse(full.fixture, async (page) => {
    await open(page, full.fixture, "instances?name=payment");
    await rowOf(page, "payment-2").waitFor();
    await page.getByRole("button", { name: "Columns and density" }).click();
    await page.getByRole("checkbox", { name: "cents" }).check();
    await page.getByRole("checkbox", { name: "Version" }).uncheck();
    await page.keyboard.press("Escape");
    assert.equal(await page.getByRole("columnheader", { name: "Version" }).count(), 0);
    await rowOf(page, "payment-2").getByRole("button", { name: "200", exact: true }).click();
    await page.waitForURL(/attr.cents=200/);
    await eventually(async () => assert.deepEqual(await shownIds(page), ["payment-2"]));
    await page.reload();
    await page.getByRole("columnheader", { name: "cents" }).waitFor();
  });
});

test("d11 children are folded under their parents and unfold in place", async () => {
  await browse(full.fixture, async (page) => {
    await open(page, full.fixture, "instances");
    await page.getByRole("button", { name: "Fold children" }).click();
    await page.waitForURL(/root=true/);
    await rowOf(page, "family").waitFor();
    assert.ok(!(await shownIds(page)).some((id) => id.startsWith("family::")));
    await rowOf(page, "family").getByRole("button", { name: "Children of family" }).click();
    await rowOf(page, "family::1.2").getByRole("button", { name: "Children of family::1.2" }).click();
    await rowOf(page, "family::1.2::1.3").waitFor();
    await rowOf(page, "family").getByRole("button", { name: "Children of family" }).click();
    await rowOf(page, "family::1.2").waitFor({ state: "detached" });
  });
});

test("d14 d22 an instance is started like another, after what is sent was seen, with every digit", async () => {
  await browse(full.fixture, async (page) => {
    await open(page, full.fixture, "instances?start=new&like=numbers");
    const dialog = page.getByRole("dialog", { name: "Start like this" });
    await eventually(async () => assert.match(await dialog.getByLabel("Input").inputValue(), /9007199254740993/));
    await dialog.getByLabel("Id", { exact: true }).fill("numbers-again");
    await dialog.getByRole("button", { name: "Review" }).click();
    await dialog.getByText("Nothing has been started yet").waitFor();
    await dialog.getByText("9007199254740993").first().waitFor();
    assert.equal((await full.fixture.get("instances/numbers-again")).code, "PER-0605");
    await dialog.getByRole("button", { name: "Start", exact: true }).click();
    await page.waitForURL(/instances\/numbers-again/);
    await full.fixture.run("wait", "numbers-again", "ended");
    const recorded = await (await fetch(new URL("api/v1/instances/numbers-again", full.fixture.url))).text();
    assert.match(recorded, /9007199254740993/);
  });
});

test("d14 a start whose input is not JSON is not sent", async () => {
  await browse(full.fixture, async (page) => {
    await open(page, full.fixture, "instances");
    await page.getByRole("button", { name: "Start…" }).click();
    const dialog = page.getByRole("dialog", { name: "Start an instance" });
    await dialog.getByLabel("Orchestration").fill("hello");
    await dialog.getByLabel("Input").fill('{"a":');
    await dialog.getByRole("button", { name: "Review" }).click();
    await dialog.getByText("This is not JSON").waitFor();
    await page.keyboard.press("Escape");
    await dialog.waitFor({ state: "detached" });
  });
});
