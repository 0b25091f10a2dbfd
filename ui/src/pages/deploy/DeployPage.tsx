import type { JSX } from "preact";

import { Empty } from "../../design/Problem.tsx";
import { Page } from "../../frame/Page.tsx";

export default function DeployPage(): JSX.Element {
  return (
    <Page title="Deploy">
      <Empty title="Nothing is registered">
        <p>Orchestrations and their versions appear here, with the nodes that have their code.</p>
      </Empty>
    </Page>
  );
}
