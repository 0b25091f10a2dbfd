import type { JSX } from "preact";

import { Empty } from "../../design/Problem.tsx";
import { Page } from "../../frame/Page.tsx";

export default function NodesPage(): JSX.Element {
  return (
    <Page title="Nodes">
      <Empty title="No node has worked on this store">
        <p>Processes that run a runtime on this store appear here.</p>
      </Empty>
    </Page>
  );
}
