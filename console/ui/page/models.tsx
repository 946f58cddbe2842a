// The catalog: what every connected provider can serve, with what is known of it and from where.
import { useState } from "preact/hooks";
import { call, may } from "../api/client";
import { useList } from "../api/list";
import { phraseOf } from "../api/phrase";
import { changed, useResource } from "../api/resource";
import type { Model, PricesFrom, SyncOutcome, Usage } from "../api/types";
import { href, param, setParams } from "../app/router";
import { Copyable } from "../part/copy";
import { Dialog } from "../part/dialog";
import { isByTraffic, provenAt } from "../part/evidence";
import { notify } from "../part/feedback";
import { FormError, Select, Text, useSubmission } from "../part/form";
import { ago, capital, plural, short, UNKNOWN } from "../part/format";
import { Icon } from "../part/icon";
import { Ref } from "../part/links";
import { ClearButton, ListCard } from "../part/list";
import { asked as askedFor, orderOf } from "../part/order";
import { Facts, Page } from "../part/page";
import { Overrides } from "./models/overrides";
import { PriceForm } from "./models/price_form";
import { pricesInWords } from "./models/words";
import { priceOf } from "./provider/models";
import { usePeriod } from "./requests";

const CAPABILITIES = ["vision", "tools", "reasoning", "audio"] as const;
const OPERATIONS = [
  "chat_completions",
  "responses",
  "messages",
  "generate_content",
  "embeddings",
  "speech",
  "transcription",
  "images",
  "videos",
];
const WORDS = { vision: "images", tools: "tools", reasoning: "reasoning", audio: "audio" };

const BY_NAME = { sort: "name", order: "asc" } as const;
/** The columns by which the gateway sorts models. */
const SORTED = ["name", "context", "input_price", "output_price", "proven"];

const FILTERS = ["q", "provider", "capability", "operation", "context_min", "price_max", "priced", "proven"];

export function ModelsPage() {
  const asked = Object.fromEntries(FILTERS.map((name) => [name, param(name)]));
  // The search takes what a model has to be as well as a part of its name.
  const { filters, rest } = phraseOf(asked.q ?? "");
  const order = orderOf(SORTED, BY_NAME);
  const list = useList<Model>("catalog", { ...asked, ...filters, q: rest, ...askedFor(order) });
  const isFiltered = Object.values(asked).some(Boolean);
  // The column is not read while a dialog covers it.
  const serving = useServing(param("open") === "");
  const submission = useSubmission();
  const sync = (): void =>
    void submission.run(Date.now(), async (repeatKey) => {
      const { data } = await call<{ data: SyncOutcome[] }>("POST", "catalog/sync", { body: {}, repeatKey });
      changed("catalog", "providers");
      const failed = data.data.filter(({ ok }) => !ok).length;
      notify(`Read ${plural(data.data.length - failed, "list")}${failed ? `, ${failed} failed: see Providers` : ""}`);
    });
  const shown = param("open");
  const open = shown ? list.pages.value.flatMap(({ rows }) => rows ?? []).find(({ id }) => id === shown) : undefined;
  return (
    <Page
      title="Models"
      lead="What each provider lists. A model is proven once it has answered a test or a client; unknown facts are –."
      actions={
        <button type="button" class="btn" onClick={sync} disabled={submission.busy}>
          <Icon name="refresh-cw" small />
          {submission.busy ? "Reading…" : "Sync catalog"}
        </button>
      }
    >
      <FormError error={submission.error} />
      <Filters />
      <ListCard
        list={list}
        label="Models"
        order={order}
        usual={BY_NAME}
        rowKey={(model) => model.id}
        isFiltered={isFiltered}
        icon="boxes"
        titles={["No model fits the filter", "No model is known"]}
        help={!isFiltered && "Connect a provider and sync its catalog."}
        action={
          isFiltered ? (
            <ClearButton of={FILTERS} />
          ) : (
            <a class="btn" href={href("/providers", { connect: "choose" })}>
              Connect provider
            </a>
          )
        }
        columns={[
          {
            head: "Selector",
            width: "5fr",
            least: 180,
            sort: "name",
            cell: (model) => (
              <button type="button" class="row-link link mono" onClick={() => setParams({ open: model.id })}>
                {model.id}
              </button>
            ),
          },
          { head: "Context", width: 92, number: true, sort: "context", fold: 4, cell: (model) => short(model.context_window) },
          { head: "Can", width: "4fr", least: 160, fold: 3, cell: (model) => <Can of={model} /> },
          {
            head: "Proven",
            width: 92,
            sort: "proven",
            from: "desc",
            fold: 2,
            cell: (model) => <Proven of={model} isServing={serving.has(model.id)} />,
          },
          {
            head: "Input per million",
            width: 140,
            number: true,
            sort: "input_price",
            from: "asc",
            fold: 5,
            cell: (model) => priceOf(model, "input"),
          },
          {
            head: "Output per million",
            width: 152,
            number: true,
            sort: "output_price",
            from: "asc",
            cell: (model) => priceOf(model, "output"),
          },
          { head: "Facts from", width: "3fr", fold: 1, cell: ({ sources }) => <SourcesOf of={sources} /> },
        ]}
      />
      {open && <Shown of={open} />}
    </Page>
  );
}

/** The models that have answered clients in the last 30 days, as `provider/model`. */
function useServing(isAsked: boolean): Set<string> {
  const search = new URLSearchParams({ group_by: "provider,model", outcome: "completed", from: usePeriod("30d"), limit: "500" });
  const lines = useResource<Usage>(isAsked && may("see_usage") ? `usage?${search}` : null).data.value?.data ?? [];
  return new Set(lines.map(({ group }) => `${group.provider}/${group.model}`));
}

/** Where the facts are from; an override is marked. */
function SourcesOf({ of }: { of: Model["sources"] }) {
  const others = of.filter((source) => source !== "override");
  return (
    <>
      {others.length < of.length && <span class="tag accent">override</span>} <span class="muted">{others.join(", ")}</span>
    </>
  );
}

const CONVERSATIONS = ["chat_completions", "responses", "messages", "generate_content"];

/** What a model can do: the capabilities in a conversation, or the operations of one that holds none. */
export function abilitiesOf(of: Pick<Model, "operations" | (typeof CAPABILITIES)[number]>): string | null {
  if (of.operations.length && !of.operations.some((name) => CONVERSATIONS.includes(name)))
    return of.operations.map((name) => name.replace(/_/g, " ")).join(", ");
  const can = CAPABILITIES.filter((name) => of[name] === true).map((name) => WORDS[name]);
  if (can.length) return can.join(", ");
  return CAPABILITIES.every((name) => of[name] === null) ? null : "only text";
}

function Can({ of }: { of: Model }) {
  return <>{abilitiesOf(of) ?? <span class="faint">{UNKNOWN}</span>}</>;
}

/** When a model last answered a test or a client, or that it has answered clients. */
export function Proven({ of, isServing = false }: { of: Model; isServing?: boolean }) {
  const at = provenAt(of);
  if (at !== null) return <span title={isByTraffic(of) ? "It answered a client." : "It answered a test."}>{ago(at)}</span>;
  return isServing ? <>by traffic</> : <span class="faint">{UNKNOWN}</span>;
}

function Filters() {
  const [text, setText] = useState(param("q"));
  return (
    <form
      class="filters"
      onSubmit={(event) => {
        event.preventDefault();
        setParams({ q: text.trim() });
      }}
    >
      <Text type="search" data-filter value={text} onValue={setText} placeholder="Name, or “images under $2”" aria-label="Search models" />
      <Select
        aria-label="Can"
        value={param("capability")}
        onValue={(capability) => setParams({ capability })}
        options={[["", "Any capability"], ...CAPABILITIES.map((name): [string, string] => [name, WORDS[name]])]}
      />
      <Select
        aria-label="Serves"
        value={param("operation")}
        onValue={(operation) => setParams({ operation })}
        options={[["", "Any operation"], ...OPERATIONS.map((name): [string, string] => [name, name.replace(/_/g, " ")])]}
      />
      <Select
        aria-label="Context"
        value={param("context_min")}
        onValue={(context_min) => setParams({ context_min })}
        options={[
          ["", "Any context"],
          ["32000", "32 k or more"],
          ["128000", "128 k or more"],
          ["200000", "200 k or more"],
          ["1000000", "1 M or more"],
        ]}
      />
      <Select
        aria-label="Evidence"
        value={param("proven")}
        onValue={(proven) => setParams({ proven })}
        options={[
          ["", "Proven or not"],
          ["true", "Inference proven"],
          ["false", "Unproven"],
        ]}
      />
      <Select
        aria-label="Price"
        value={param("priced")}
        onValue={(priced) => setParams({ priced })}
        options={[
          ["", "Priced or not"],
          ["true", "Price known"],
          ["false", "Price unknown"],
        ]}
      />
      {param("provider") && (
        <span class="tag accent">
          Provider: {param("provider")}
          <button type="button" class="tag-x" aria-label="Remove the filter Provider" onClick={() => setParams({ provider: null })}>
            <Icon name="x" small />
          </button>
        </span>
      )}
    </form>
  );
}

function Shown({ of }: { of: Model }) {
  const known = (value: boolean | null): string => (value === null ? UNKNOWN : value ? "yes" : "no");
  return (
    <Dialog title={of.display_name ?? of.model} wide onClose={() => setParams({ open: null })}>
      <Facts
        rows={[
          ["Selector", <Copyable key="s" text={of.id} label="the selector" />],
          ["Provider", <Ref key="p" kind="provider" id={of.provider} name={of.provider} />],
          ...CAPABILITIES.map((name): [string, string] => [capital(WORDS[name]), known(of[name])]),
          ["Context", short(of.context_window)],
          ["Output", short(of.max_output_tokens)],
          ["Protocols", of.protocols?.join(", ")],
          ["Lacks", of.lacks.join(", ") || null],
          ["Rules", rulesOf(of.rules) || "none known"],
          ["Prices", <StandingPrice key="m" of={of} />],
          ["Without a price", of.unpriced.join(", ") || null],
          ["Answered a test", of.proven_at_ms && ago(of.proven_at_ms)],
          ["Answered last", of.last_answered_at_ms && ago(of.last_answered_at_ms)],
          ["Facts from", of.sources.join(", ")],
          ["Overrides", <Overrides key="o" of={of} />],
        ]}
      />
      <div class="dialog-foot">
        <a class="btn" href={href("/playground", { model: of.id })}>
          <Icon name="flask-conical" small />
          Try
        </a>
      </div>
      <h3 class="dialog-part">Set a price</h3>
      <PriceForm of={of} known={of} />
    </Dialog>
  );
}

/** The prices in force, and a mark if an administrator has set them. */
function StandingPrice({ of }: { of: Model }) {
  if (!of.prices) return <>unknown</>;
  return (
    <>
      {pricesInWords(of.prices)}
      {of.prices_from && (
        <>
          <span class={of.prices_from.source === "override" ? "tag accent" : "tag"}>{sourceWords(of.prices_from)}</span>
        </>
      )}
    </>
  );
}

const SOURCES: Record<PricesFrom["source"], string> = {
  override: "override",
  config: "configuration",
  upstream: "upstream",
  list: "price list",
  built_in: "built in",
};

/** `price list of 2026-11-22`, `override since 2026-11-27`. */
export const sourceWords = ({ source, as_of }: PricesFrom): string =>
  `${SOURCES[source]}${as_of ? ` ${source === "override" ? "since" : "of"} ${as_of}` : ""}`;

/** A rule's value in words. */
const ruleText = (value: unknown): string => {
  if (Array.isArray(value)) return value.join(", ") || "none";
  return value === "" ? "empty" : String(value);
};

/** The rules of a model in words: `sampling none; efforts low, high`. */
export const rulesOf = (rules: Model["rules"]): string =>
  Object.entries(rules)
    .filter(([, value]) => value !== null && value !== undefined)
    .map(([name, value]) => `${name.replace(/_/g, " ")} ${ruleText(value)}`)
    .join("; ");
