// Views that come along. A filter is a query string, as the API and the URL take it.
export interface BuiltInView {
  name: string;
  filter: () => string;
}

function startOfDay(): number {
  return new Date().setHours(0, 0, 0, 0);
}

export const BUILT_IN_VIEWS: readonly BuiltInView[] = [
  { name: "All", filter: () => "" },
  { name: "Running", filter: () => "status=running,pending" },
  { name: "Failed today", filter: () => `status=failed&ended_from_ms=${startOfDay()}` },
  { name: "Blocked", filter: () => "blocked=true&paused=false" },
  { name: "Retrying", filter: () => "retrying=true" },
  { name: "Oldest running", filter: () => "status=running&order=oldest" },
];
