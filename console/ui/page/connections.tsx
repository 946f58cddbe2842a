// The connections of a human: providers that are private to them, to which they sign in with an account of their own.
import { useAll } from "../api/objects";
import type { Provider } from "../api/types";
import { Empty, ErrorBox, Skeleton } from "../part/feedback";
import { Card, Facts, Page } from "../part/page";
import { SignInCard } from "./oauth";
import { ProviderStateMark } from "./providers";

export function ConnectionsPage() {
  const { list, rows } = useAll<Provider>("providers");
  const error = list.error.value;
  return (
    <Page
      title="Connections"
      lead="Providers that are private to you. Keys that act as you may use them, and projects that you share them with."
    >
      {error && <ErrorBox error={error} retry={() => list.load()} />}
      {!list.isRead && !error && (
        <div class="card">
          <Skeleton rows={4} />
        </div>
      )}
      {rows.map((of) => (
        <Connection key={`${of.source} ${of.id}`} of={of} />
      ))}
      {list.isRead && rows.length === 0 && <None />}
    </Page>
  );
}

function Connection({ of }: { of: Provider }) {
  if (of.sign_in) return <SignInCard of={of} title={of.id} />;
  return (
    <Card title={of.id}>
      <Facts rows={[["State", <ProviderStateMark key="s" of={of} />]]} />
      {of.reason && <p class="help wrap">{of.reason}</p>}
    </Card>
  );
}

function None() {
  return (
    <Card bare>
      <Empty icon="plug" title="You have no connection">
        An administrator creates one and names you as its owner. You then sign in here.
      </Empty>
    </Card>
  );
}
