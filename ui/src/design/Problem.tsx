// What went wrong, in the server's words, with its code, the remedy and a way to try again; and the frame of a part of a page
// that loads and fails for itself.
import type { ComponentChildren, JSX } from "preact";

import { textOf } from "../api/json.ts";
import type { Loaded } from "../api/load.ts";
import type { Problem as ProblemError } from "../api/problem.ts";
import { connection } from "../api/stream/stream.ts";
import { Code } from "./Copy.tsx";
import { Text } from "./Id.tsx";
import { capital } from "./Rich.tsx";

export function Problem({ problem, onRetry }: { problem: ProblemError; onRetry?: (() => void) | undefined }): JSX.Element {
  const isUnknown = problem.isOutcomeUnknown || (problem.isAway && !problem.retryable);
  return (
    <div class={`problem ${isUnknown ? "unknown" : ""}`} role="alert">
      <div class="row wrap">
        <strong>{isUnknown ? "Outcome unknown" : <Text text={capital(problem.title)} />}</strong>
        {problem.code !== null && <Code code={problem.code} />}
        {onRetry !== undefined && (
          <button type="button" class="button small push" onClick={onRetry}>
            Try again
          </button>
        )}
      </div>
      <p>
        <Text text={capital(problem.detail)} />
      </p>
      {problem.body?.error !== undefined && (
        <p class="problem-error mono">
          <Text text={errorText(problem.body.error)} />
        </p>
      )}
      {!tellsRemedy(problem) && (
        <p class="muted-2">
          <Text text={capital(problem.remedy)} />
        </p>
      )}
    </div>
  );
}

/** Whether there is no remedy, or the detail ends with it already, as those of some errors do. */
function tellsRemedy({ detail, remedy }: ProblemError): boolean {
  return detail.toLowerCase().includes(remedy.toLowerCase().split(" ").slice(0, 4).join(" "));
}

/** What the code of the instance returned. */
function errorText(error: unknown): string {
  return typeof error === "string" ? error : textOf(error).slice(0, 2_000);
}

/** Shows a value when it was read, the problem if it could not be, and that it is being read. */
export function Part<T>(props: {
  of: Loaded<T>;
  children: (value: T) => ComponentChildren;
  /** Shown until the first value is there. */
  waiting?: ComponentChildren;
}): JSX.Element {
  const { of: loaded } = props;
  const value = loaded.value.value;
  const problem = value !== undefined && isToldAbove(loaded.problem.value) ? null : loaded.problem.value;
  return (
    <>
      {problem !== null && <Problem problem={problem} onRetry={() => void loaded.reload()} />}
      {value !== undefined ? props.children(value) : problem === null && (props.waiting ?? <Waiting />)}
    </>
  );
}

/** Whether the frame says already that the server is away: a part that has data keeps it, and says nothing of its own. */
export function isToldAbove(problem: ProblemError | null): boolean {
  return problem !== null && problem.isAway && connection.value.is === "away";
}

/** Lines that stand where text will be. */
export function Waiting({ lines = 3 }: { lines?: number }): JSX.Element {
  const widths = ["72%", "54%", "63%", "40%"];
  return (
    <div class="stack waiting" role="status">
      <span class="sr-only">Loading</span>
      {Array.from({ length: lines }, (_, line) => (
        <span key={line} class="skeleton" style={{ width: widths[line % widths.length] ?? "50%" }} />
      ))}
    </div>
  );
}

/** A page or part that has nothing to show says what would be there, and what to do. */
export function Empty({ title, children }: { title: string; children?: ComponentChildren }): JSX.Element {
  return (
    <div class="empty">
      <h2>{title}</h2>
      {children}
    </div>
  );
}
