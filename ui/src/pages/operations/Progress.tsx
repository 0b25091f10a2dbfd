// How far an operation is. Without a known total a running one shows only that it goes on.
import type { JSX } from "preact";

import type { FullOperation } from "../../api/ops.ts";

export function Progress({ operation }: { operation: FullOperation }): JSX.Element {
  const { done, skipped, failed, seen, state, total } = operation;
  const all = state !== "running" ? seen : total === undefined || total.more ? 0 : Math.max(total.rows, seen);
  const says = `${done} done, ${skipped} skipped, ${failed} failed`;
  if (all === 0 && state === "running")
    return (
      <span class="progress unknown" role="progressbar" aria-label={says}>
        <span class="done" />
      </span>
    );
  const part = (count: number) => ({ width: `${all === 0 ? 0 : (count / all) * 100}%` });
  return (
    <span
      class="progress"
      role="progressbar"
      aria-label={says}
      aria-valuemin={0}
      aria-valuemax={Math.max(1, all)}
      aria-valuenow={Math.min(seen, Math.max(1, all))}
    >
      <span class="done" style={part(done)} />
      <span class="skipped" style={part(skipped)} />
      <span class="failed" style={part(failed)} />
    </span>
  );
}
