// Saved views: those that come along, one's own in this browser, and those that the store keeps for everybody.
import { signal } from "@preact/signals";

import { get, put, remove } from "../../api/client.ts";
import { remembered } from "../../router/memory.ts";
import { BUILT_IN_VIEWS } from "./built-in-views.ts";

export interface View {
  name: string;
  /** A query string, as `queryOf` makes it. */
  filter: string;
  kind: "built-in" | "own" | "shared";
}

interface Saved {
  name: string;
  filter: string;
}

function isSaved(value: unknown): value is Saved[] {
  return (
    Array.isArray(value) &&
    value.every((view: Partial<Saved>) => typeof view?.name === "string" && typeof view.filter === "string")
  );
}

export const ownViews = remembered<Saved[]>("views", [], isSaved);
const shared = signal<Saved[]>([]);

export async function readShared(): Promise<void> {
  shared.value = (await get("views")).views;
}

export function allViews(): View[] {
  return [
    ...BUILT_IN_VIEWS.map((view) => ({ name: view.name, filter: view.filter(), kind: "built-in" as const })),
    ...ownViews.value.map((view) => ({ ...view, kind: "own" as const })),
    ...shared.value.map((view) => ({ ...view, kind: "shared" as const })),
  ];
}

export async function save(name: string, filter: string, isShared: boolean): Promise<void> {
  if (!isShared) {
    ownViews.value = [...ownViews.value.filter((view) => view.name !== name), { name, filter }];
    return;
  }
  await put("views/{name}", { filter }, { path: [name] });
  await readShared();
}

export async function forget(view: View): Promise<void> {
  if (view.kind === "own") {
    ownViews.value = ownViews.value.filter((other) => other.name !== view.name);
  } else {
    await remove("views/{name}", { path: [view.name] });
    await readShared();
  }
}
