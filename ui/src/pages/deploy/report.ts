// The report of a preflight, as a program left it. It comes from outside, so nothing about its shape is taken for granted.

export interface Incompatible {
  id: string;
  name: string;
  version: string;
  code: string;
  event: number | null;
  location: string | null;
  reason: string;
  report: string;
}
export interface MissingVersion {
  name: string;
  version: string;
  instances: number;
  ids: string[];
}
export interface Report {
  checked: number;
  compatible: number;
  incompatible: Incompatible[];
  missing: MissingVersion[];
}

type Loose = Record<string, unknown>;
const isObject = (value: unknown): value is Loose => typeof value === "object" && value !== null && !Array.isArray(value);
const text = (value: unknown): string => (typeof value === "string" ? value : "");
const number = (value: unknown): number => (typeof value === "number" ? value : 0);
const objects = (value: unknown): Loose[] => (Array.isArray(value) ? value.filter(isObject) : []);

/** `null` if it is not the report of a preflight. */
export function readReport(value: unknown): Report | null {
  if (!isObject(value) || typeof value["checked"] !== "number") return null;
  return {
    checked: value["checked"],
    compatible: number(value["compatible"]),
    incompatible: objects(value["incompatible"]).map((each) => ({
      id: text(each["id"]),
      name: text(each["name"]),
      version: text(each["version"]),
      code: text(each["code"]),
      event: typeof each["event"] === "number" ? each["event"] : null,
      location: typeof each["location"] === "string" ? each["location"] : null,
      reason: text(each["reason"]),
      report: text(each["report"]),
    })),
    missing: objects(value["missing"]).map((each) => ({
      name: text(each["name"]),
      version: text(each["version"]),
      instances: number(each["instances"]),
      ids: Array.isArray(each["ids"]) ? each["ids"].map(text) : [],
    })),
  };
}

export function withoutCode(report: Report): number {
  return report.missing.reduce((sum, each) => sum + each.instances, 0);
}
