// The connected providers, with what is known of each.
import { useList } from "../api/list";
import { useResource } from "../api/resource";
import type { Circuit, Evidence, Page as PageOf, Provider, ProviderHealth } from "../api/types";
import { href, param, setParams } from "../app/router";
import { provenAt, reachedAt } from "../part/evidence";
import { Select } from "../part/form";
import { ago, count, duration, moment, plural, UNKNOWN } from "../part/format";
import { Icon, Mark, type MarkKind, State } from "../part/icon";
import { ClearButton, ListCard } from "../part/list";
import { asked as askedFor, orderOf } from "../part/order";
import { Page, Tabs } from "../part/page";
import { Search } from "../part/search";
import { Connect } from "./connect_provider";
import { Extensions } from "./extensions";

/** The columns by which the gateway sorts providers. */
const SORTED = ["name", "state", "failures", "served", "first_token", "last_failure"];
const FAILING_FIRST = { sort: "state", order: "asc" } as const;

const STATES: Record<Provider["state"], [MarkKind, string]> = {
  ready: ["ok", "ready"],
  disabled: ["off", "disabled"],
  not_connected: ["warn", "not connected"],
  shadowed: ["off", "shadowed by the file"],
  faulty: ["bad", "faulty"],
};

export function ProviderStateMark({ of, health }: { of: Provider; health?: ProviderHealth | undefined }) {
  if (of.state === "ready" && health && health.circuit.state !== "closed") return <CircuitMark circuit={health.circuit} />;
  if (of.state === "ready" && health?.rests.length)
    return <State kind="warn" word={`ready, ${plural(health.rests.length, "model")} resting`} />;
  const [kind, word] = STATES[of.state];
  return (
    <span title={of.reason ?? undefined}>
      <State kind={kind} word={word} />
    </span>
  );
}

/** The state of a circuit; an open one says when it tries again. */
export function CircuitMark({ circuit }: { circuit: Circuit }) {
  if (circuit.state === "closed") return <State kind="ok" word="closed" />;
  if (circuit.state === "half_open") return <State kind="warn" word="failing, half open" />;
  return <State kind="bad" word={`failing, next try in ${Math.ceil((circuit.retry_in_ms ?? 0) / 1000)} s`} />;
}

const CATALOG_READ = "Catalog read";
const FACTS: [string, (evidence: Evidence) => number | null][] = [
  ["Reachable", reachedAt],
  [CATALOG_READ, ({ catalog }) => catalog.synced_at_ms],
  ["Inference proven", ({ inference }) => provenAt(inference)],
];

/** Three facts as three marks, hollow where not proven. Their words are spoken. */
export function EvidenceMarks({ evidence, served = 0 }: { evidence: Evidence | undefined; served?: number }) {
  if (!evidence) return <span class="faint">{UNKNOWN}</span>;
  // What it has served proves that it can be reached, and that it answers.
  const isServing = served > 0;
  return (
    <span class="marks">
      {FACTS.map(([name, timeOf]) => {
        const at = timeOf(evidence);
        const isProven = at !== null || (isServing && name !== CATALOG_READ);
        const text = `${name}: ${at !== null ? moment(at) : isProven ? "by traffic" : "no"}`;
        return (
          <span key={name} title={text}>
            <Mark kind={isProven ? "ok" : "off"} />
            <span class="sr">{text}. </span>
          </span>
        );
      })}
    </span>
  );
}

export function ProvidersPage() {
  const isExtensions = param("tab") === "extensions";
  return (
    <Page
      title="Providers"
      lead="Where requests go. Reachable, catalog read and inference proven are three facts."
      actions={
        <button type="button" class="btn primary" data-new onClick={() => setParams(isExtensions ? { new: "1" } : { connect: "choose" })}>
          <Icon name="plus" small />
          {isExtensions ? "Add extension" : "Connect provider"}
        </button>
      }
    >
      <Tabs
        label="Providers"
        tabs={[
          ["providers", "Providers"],
          ["extensions", "Extensions"],
        ]}
      />
      {isExtensions ? <Extensions /> : <Connected />}
      {param("connect") && <Connect />}
    </Page>
  );
}

function Connected() {
  const state = param("state");
  const q = param("q");
  const order = orderOf(SORTED, FAILING_FIRST);
  const list = useList<Provider>("providers", { state, q, ...askedFor(order) });
  const isFiltered = state !== "" || q !== "";
  const health = useResource<PageOf<ProviderHealth>>("health/providers").data.value?.data;
  const healthOf = (id: string): ProviderHealth | undefined => health?.find(({ provider }) => provider === id);
  return (
    <ListCard
      filters={
        <>
          <Search label="Search providers" placeholder="Name or address" />
          <Select
            aria-label="State"
            value={state}
            onValue={(state) => setParams({ state })}
            options={[["", "Any state"], ...Object.entries(STATES).map(([id, [, word]]): [string, string] => [id, word])]}
          />
        </>
      }
      list={list}
      label="Providers"
      rowKey={(provider) => `${provider.source} ${provider.id}`}
      order={order}
      usual={FAILING_FIRST}
      isFiltered={isFiltered}
      icon="plug"
      titles={["No provider fits the filter", "No provider is connected"]}
      help={!isFiltered && "Connect one provider. You can add more later."}
      action={
        isFiltered ? (
          <ClearButton of={["state", "q"]} />
        ) : (
          <button type="button" class="btn primary" onClick={() => setParams({ connect: "choose" })}>
            Connect provider
          </button>
        )
      }
      columns={[
        {
          head: "Name",
          width: "2fr",
          sort: "name",
          cell: (provider) => (
            <a class="row-link" href={href(`/providers/${provider.id}`, { source: provider.shadowed ? provider.source : null })}>
              {provider.id}
            </a>
          ),
        },
        { head: "Kind", width: 128, fold: 2, cell: (provider) => <span class="muted">{provider.registry_id ?? provider.type}</span> },
        {
          head: "State",
          width: "2fr",
          least: 150,
          sort: "state",
          cell: (provider) => <ProviderStateMark of={provider} health={healthOf(provider.id)} />,
        },
        {
          head: "Evidence",
          width: 84,
          fold: 3,
          cell: (provider) => <EvidenceMarks evidence={provider.evidence} served={healthOf(provider.id)?.recent.requests ?? 0} />,
        },
        {
          head: "Models listed",
          width: 112,
          number: true,
          fold: 1,
          cell: ({ evidence }) => (evidence?.catalog.synced_at_ms ? count(evidence.catalog.models) : UNKNOWN),
        },
        {
          head: "Served lately",
          width: 120,
          number: true,
          sort: "served",
          fold: 5,
          cell: ({ id }) => count(healthOf(id)?.recent.requests),
        },
        {
          head: "First token",
          width: 112,
          number: true,
          sort: "first_token",
          from: "asc",
          fold: 6,
          cell: ({ id }) => duration(healthOf(id)?.recent.first_content_us_avg),
        },
        {
          head: "Last failure",
          width: 116,
          sort: "last_failure",
          from: "desc",
          fold: 4,
          cell: ({ id }) => ago(healthOf(id)?.last_failure?.at_ms),
        },
        {
          head: "Defined in",
          width: 116,
          fold: 0,
          cell: ({ source, anonymous }) =>
            anonymous ? (
              <span class="tag" title="The gateway connected it because it needs no account.">
                no account
              </span>
            ) : (
              <span class="muted">{source === "file" ? "the file" : "the console"}</span>
            ),
        },
      ]}
    />
  );
}
