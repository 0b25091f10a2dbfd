// What a cause is, in words.
import type { Cause } from "../../api/ops.ts";

/** Names a cause in links: short, and the same as long as code, orchestration, version, difference and line are. */
export function causeId(cause: Cause): string {
  const text = [cause.code, cause.name, cause.version, cause.cause, cause.location ?? ""].join("\u0000");
  let hash = 0xcbf29ce484222325n;
  for (const character of text) hash = BigInt.asUintN(64, (hash ^ BigInt(character.codePointAt(0) ?? 0)) * 0x100000001b3n);
  return hash.toString(36);
}

export type CauseKind = "divergence" | "panic" | "missing" | "other";

export function kindOf({ code }: Pick<Cause, "code">): CauseKind {
  return code === "PER-0203" ? "divergence" : code === "PER-0201" ? "panic" : code === "PER-0301" ? "missing" : "other";
}

export const KIND_WORDS: Record<CauseKind, string> = {
  divergence: "Divergence",
  panic: "Panic",
  missing: "Missing code",
  other: "Blocked",
};

/** The cause in a line, without what the row says elsewhere. */
export function headline(cause: Cause): string {
  switch (kindOf(cause)) {
    case "divergence":
      return cause.difference ?? cause.cause;
    case "panic":
      return panicOf(cause)?.message ?? cause.cause;
    case "missing":
      return `No node has ${cause.version === "" ? "a version" : `version ${cause.version}`} of its code`;
    case "other":
      return cause.cause;
  }
}

/** Message and place of a panic: `PER-0201 panic in unit root at src/orders.rs:41: out of stock`. */
export function panicOf({ reason }: Pick<Cause, "reason">): { unit: string; place: string; message: string } | null {
  const found = /^PER-0201 panic(?: in unit (\S+))? at (.+?:\d+(?::\d+)?): ([^]*)$/.exec(reason);
  if (found === null) return null;
  return { unit: found[1] ?? "", place: found[2] ?? "", message: found[3] ?? "" };
}

export function placeOf(cause: Cause): string | null {
  return cause.location ?? panicOf(cause)?.place ?? null;
}

/** Where two lines differ, in words: what both begin with, what each has of its own, what both end with. */
export function wordDiff(left: string, right: string): { before: string; left: string; right: string; after: string } {
  const [a, b] = [left.split(/(\s+)/), right.split(/(\s+)/)];
  let begin = 0;
  while (begin < a.length && begin < b.length && a[begin] === b[begin]) begin++;
  let end = 0;
  while (end < a.length - begin && end < b.length - begin && a[a.length - 1 - end] === b[b.length - 1 - end]) end++;
  return {
    before: a.slice(0, begin).join(""),
    left: a.slice(begin, a.length - end).join(""),
    right: b.slice(begin, b.length - end).join(""),
    after: a.slice(a.length - end).join(""),
  };
}
