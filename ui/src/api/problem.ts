// What a request can fail with, in the server's words.
import type { ProblemBody } from "./types.ts";

/** A refusal or failure that the server told, or that there was no answer. */
export class Problem extends Error {
  readonly status: number;
  /** `PER-…`; `null` if the server could not be reached or did not speak for itself. */
  readonly code: string | null;
  readonly title: string;
  readonly detail: string;
  readonly remedy: string;
  readonly retryable: boolean;
  readonly body: ProblemBody | null;

  constructor(body: Omit<ProblemBody, "code" | "type"> & { code: string | null; type?: string }) {
    super(body.detail);
    this.status = body.status;
    this.code = body.code;
    this.title = body.title;
    this.detail = body.detail;
    this.remedy = body.remedy;
    this.retryable = body.retryable;
    this.body = body.code === null ? null : (body as ProblemBody);
  }

  /** Whether there was no answer at all. */
  get isAway(): boolean {
    return this.status === 0;
  }
  /** Whether the request may have been carried out. It must not be shown as a failure. */
  get isOutcomeUnknown(): boolean {
    return this.code === "PER-0502" || this.code === "PER-0612";
  }

  /** A file of the pages that did not come: a server of another version does not have it. */
  static missingPart(): Problem {
    return new Problem({
      status: 404,
      code: null,
      title: "This part of the pages could not be loaded",
      detail: "The server did not send it: it cannot be reached, or is another version than these pages.",
      remedy: "Try again; this loads all pages again, and stays at this place.",
      retryable: true,
    });
  }

  static away(wasChange: boolean): Problem {
    return new Problem({
      status: 0,
      code: null,
      title: "The server cannot be reached",
      detail: wasChange
        ? "There was no answer. The request may or may not have been carried out."
        : "There was no answer from the server.",
      remedy: wasChange
        ? "Look at the instance when the server is back, before you send the request again."
        : "Check that the server runs. This page tries again.",
      retryable: !wasChange,
    });
  }

  static foreign(status: number): Problem {
    return new Problem({
      status,
      code: null,
      title: `Unexpected answer ${status}`,
      detail: "The answer is not one of Perennial's. A proxy between the browser and the server may have sent it.",
      remedy: "Check the address, and the proxy if there is one.",
      retryable: status >= 500,
    });
  }

  /** Turns anything that was thrown into a problem. Errors of this program stay visible as such. */
  static from(error: unknown): Problem {
    if (error instanceof Problem) return error;
    const detail = error instanceof Error ? error.message : String(error);
    return new Problem({
      status: -1,
      code: null,
      title: "The dashboard failed",
      detail,
      remedy: "Reload the page. If it happens again, it is a bug of the dashboard.",
      retryable: true,
    });
  }
}
