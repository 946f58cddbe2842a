// The connections of a human: providers that are private to them, to which they sign in with an account of their own.
import { useResource } from "../api/resource";
import type { Page as PageOf, Provider } from "../api/types";
import { Empty, Loaded } from "../part/feedback";
import { Card, Facts, Page } from "../part/page";
import { SignInCard } from "./oauth";
import { ProviderStateMark } from "./providers";

export function ConnectionsPage() {
  const connections = useResource<PageOf<Provider>>("providers?limit=500");
  return (
    <Page
      title="Connections"
      lead="Providers that are private to you. Keys that act as you may use them, and projects that you share them with."
    >
      <Loaded resource={connections}>
        {({ data }) => (data.length ? data.map((of) => <Connection key={`${of.source} ${of.id}`} of={of} />) : <None />)}
      </Loaded>
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
