// All pages. Each is loaded when it is first shown. To add one: write `src/pages/NAME/NamePage.tsx` with a default export
// that is a component without properties, which reads its state from the router, and add a line here.
import type { ComponentType } from "preact";

import type { IconName } from "../design/icons.tsx";

export interface PageEntry {
  /** The first segment of its place. */
  path: string;
  title: string;
  /** In the navigation, if it has an icon. */
  icon?: IconName;
  /** `g` and this key go there. */
  key?: string;
  load: () => Promise<{ default: ComponentType }>;
}

export const PAGES: readonly PageEntry[] = [
  { path: "overview", title: "Overview", icon: "overview", key: "o", load: () => import("./overview/OverviewPage.tsx") },
  { path: "instances", title: "Instances", icon: "instances", key: "i", load: () => import("./instances/InstancesPage.tsx") },
  { path: "blocked", title: "Blocked", icon: "blocked", key: "b", load: () => import("./blocked/BlockedPage.tsx") },
  {
    path: "activities",
    title: "Activities",
    icon: "activities",
    key: "a",
    load: () => import("./activities/ActivitiesPage.tsx"),
  },
  {
    path: "operations",
    title: "Operations",
    icon: "operations",
    key: "p",
    load: () => import("./operations/OperationsPage.tsx"),
  },
  { path: "nodes", title: "Nodes", icon: "nodes", key: "n", load: () => import("./nodes/NodesPage.tsx") },
  { path: "deploy", title: "Deploy", icon: "deploy", key: "d", load: () => import("./deploy/DeployPage.tsx") },
];

/** The page of one instance: `#/instances/ID`. */
export const INSTANCE: PageEntry = {
  path: "instances",
  title: "Instance",
  load: () => import("./instance/InstancePage.tsx"),
};

/** The guide's page of errors: `#/guide/PER-0605`. */
const GUIDE: PageEntry = { path: "guide", title: "Errors by code", load: () => import("./guide/GuidePage.tsx") };

export const FIRST = "instances";

/** The page of a place. */
export function pageAt(path: readonly string[]): PageEntry | null {
  if (path[0] === "instances" && path.length > 1) return INSTANCE;
  if (path[0] === GUIDE.path) return GUIDE;
  return PAGES.find((page) => page.path === (path[0] ?? FIRST)) ?? null;
}
