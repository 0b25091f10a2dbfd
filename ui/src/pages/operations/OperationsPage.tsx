import type { JSX } from "preact";

import { Empty } from "../../design/Problem.tsx";
import { Page } from "../../frame/Page.tsx";

export default function OperationsPage(): JSX.Element {
  return (
    <Page title="Operations">
      <Empty title="No operation has been started">
        <p>What is done to many instances at once appears here, with its progress.</p>
      </Empty>
    </Page>
  );
}
