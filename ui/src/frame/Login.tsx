// Exchanges a token for a session. The URL stays as it is, so that afterwards the page is the one that was asked for.
import type { JSX } from "preact";
import { useState } from "preact/hooks";

import { Problem as ProblemError } from "../api/problem.ts";
import { Button } from "../design/Controls.tsx";
import { CodeLine } from "../design/Copy.tsx";
import { Problem } from "../design/Problem.tsx";
import { Mark } from "./Mark.tsx";
import { logIn, session } from "./state.ts";

export function Login(): JSX.Element {
  const [token, setToken] = useState("");
  const [problem, setProblem] = useState<ProblemError | null>(null);
  const canLogIn = session.value.value?.can_log_in === true;
  const submit = async () => {
    setProblem(null);
    try {
      await logIn(token.trim());
    } catch (error) {
      setProblem(ProblemError.from(error));
    }
  };
  return (
    <main class="login" id="main">
      <form
        class="card stack"
        onSubmit={(event) => {
          event.preventDefault();
          void submit();
        }}
      >
        <Mark size={36} />
        <h1>Log in to Perennial</h1>
        {canLogIn ? (
          <>
            <div class="labelled">
              <label for="token">Token</label>
              <input
                id="token"
                class="field mono"
                type="password"
                autocomplete="current-password"
                required
                autofocus
                value={token}
                onInput={(event) => setToken(event.currentTarget.value)}
              />
              <span class="hint">
                The page does not keep it: it becomes a session of 12 hours, in a cookie that no script can read.
              </span>
            </div>
            {problem !== null && <Problem problem={problem} />}
            <Button kind="primary" type="submit">
              Log in
            </Button>
            <div class="stack">
              <span class="hint">Whoever runs the server makes tokens with</span>
              <CodeLine text="perennial token --role reader --name NAME --file tokens" />
            </div>
          </>
        ) : (
          <p>This server answers nobody here. The application that serves it decides who may look; log in there and reload.</p>
        )}
      </form>
    </main>
  );
}
