// What a key, a project or a human can call: each selector with yes, or why not and what would change it.
import { useState } from "preact/hooks";
import { may } from "../api/client";
import { useList } from "../api/list";
import { useResource } from "../api/resource";
import type { SelectorAccess } from "../api/shapes";
import type { Key, Principal, Project } from "../api/types";
import { href, param, setParams } from "../app/router";
import { Empty, Loaded } from "../part/feedback";
import { Text } from "../part/form";
import { Mark } from "../part/icon";
import { Card, Page } from "../part/page";
import { Table } from "../part/table";

type Kind = "keys" | "projects" | "principals";

export const KeyAccessPage = ({ id }: { id: string }) => <AccessPage kind="keys" id={id} />;
export const ProjectAccessPage = ({ id }: { id: string }) => <AccessPage kind="projects" id={id} />;
export const HumanAccessPage = ({ id }: { id: string }) => <AccessPage kind="principals" id={id} />;

const LEADS: Record<Kind, string> = {
  keys: "Quotas that are used up and open circuits do not count: they pass.",
  projects: "As a key of the project without lists of its own. Quotas that are used up and open circuits do not count: they pass.",
  principals: "As a key without lists that acts as the human. Quotas that are used up and open circuits do not count: they pass.",
};

/** Why a selector cannot be used, and what would change it. */
export const OBSTACLES: Record<string, [why: string, remedy: string]> = {
  not_allowed: ["a list of the key or its project does not contain it", "Add it to the lists."],
  private: ["it is private to a human as whom the key does not act", "Let the key act as its owner, or bind the provider to the project."],
  no_price: ["its price is unknown, and a limit on cost applies", "Set a price under Models, or remove the limit."],
  not_ready: ["its provider cannot be used at present", "See the provider."],
  no_target: ["no target of it is enabled and known", "Add a target under Routes."],
  ambiguous: ["several models have this name", "Ask for PROVIDER/MODEL."],
  key_disabled: ["the key is disabled", "Enable it."],
  key_expired: ["the key has expired", "Change its expiry, or rotate it."],
  key_revoked: ["the key is revoked", "Mint another."],
  project_disabled: ["the project is disabled", "Enable it."],
  principal_disabled: ["the human is disabled", "Enable it."],
};

const KINDS: Record<SelectorAccess["kind"], string> = { endpoint: "endpoint", model: "model", alias: "name alone" };

function AccessPage({ kind, id }: { kind: Kind; id: string }) {
  const of = useResource<Key | Project | Principal>(`${kind}/${encodeURIComponent(id)}`);
  const allowed = param("allowed");
  const q = param("q");
  const list = useList<SelectorAccess>(`${kind}/${encodeURIComponent(id)}/access`, { allowed, q });
  const [text, setText] = useState(q);
  const isFiltered = allowed !== "" || q !== "";
  return (
    <Loaded
      resource={of}
      missing={
        <Empty page icon="users" title="There is no such object">
          <span class="mono wrap">{id}</span> was deleted, or never existed.
        </Empty>
      }
    >
      {({ name }) => (
        <Page title={`What can ${name} call?`} lead={LEADS[kind]}>
          <form
            class="filters"
            onSubmit={(event) => {
              event.preventDefault();
              setParams({ q: text.trim() });
            }}
          >
            <Text type="search" data-filter value={text} onValue={setText} placeholder="Search selectors" aria-label="Search selectors" />
            <span class="seg" role="group" aria-label="Which">
              {[
                ["", "All"],
                ["true", "Can call"],
                ["false", "Cannot call"],
              ].map(([value = "", title]) => (
                <button key={value} type="button" aria-pressed={allowed === value} onClick={() => setParams({ allowed: value })}>
                  {title}
                </button>
              ))}
            </span>
          </form>
          <p class="help">A selector that a list does not contain is called once it is added to the lists.</p>
          <Card bare>
            <Table
              list={list}
              label="Selectors"
              rowKey={({ selector }) => selector}
              empty={
                <Empty
                  icon="route"
                  title={isFiltered ? "No selector fits the filter" : "There is nothing to call"}
                  action={
                    isFiltered ? (
                      <button type="button" class="btn" onClick={() => setParams({ q: null, allowed: null })}>
                        Clear the filter
                      </button>
                    ) : (
                      may("administer") && (
                        <a class="btn" href={href("/providers", { connect: "choose" })}>
                          Connect provider
                        </a>
                      )
                    )
                  }
                >
                  {isFiltered ? null : "Connect a provider; its models and the endpoints are the selectors."}
                </Empty>
              }
              columns={[
                { head: "Selector", width: "5fr", least: 180, cell: (row) => <Selector of={row} /> },
                { head: "Kind", width: 104, fold: 1, cell: (row) => <span class="muted">{KINDS[row.kind]}</span> },
                { head: "Can call", width: 136, cell: (row) => <Verdict of={row} /> },
                { head: "Why not", width: "7fr", least: 200, fold: 3, cell: ({ reasons }) => wordsOf(reasons, 0) },
                {
                  head: "What would change it",
                  width: "8fr",
                  least: 200,
                  fold: 2,
                  cell: ({ reasons }) => <Change reasons={reasons} />,
                },
              ]}
            />
          </Card>
        </Page>
      )}
    </Loaded>
  );
}

const wordsOf = (reasons: string[], place: 0 | 1): string =>
  reasons
    .map((reason) => OBSTACLES[reason]?.[place] ?? (place === 0 ? reason.replace(/_/g, " ") : ""))
    .filter(Boolean)
    .join(place === 0 ? "; " : " ");

function Change({ reasons }: { reasons: string[] }) {
  const words = wordsOf(
    reasons.filter((reason) => reason !== "not_allowed"),
    1,
  );
  return words ? <span class="muted">{words}</span> : null;
}

function Selector({ of: { selector, kind } }: { of: SelectorAccess }) {
  if (!may("administer")) return <span class="mono">{selector}</span>;
  const to =
    kind === "endpoint"
      ? href(`/routes/${encodeURIComponent(selector)}`)
      : href("/models", { q: selector.split("/").slice(1).join("/") || selector });
  return (
    <a class="row-link mono" href={to}>
      {selector}
    </a>
  );
}

function Verdict({ of: { allowed, targets, usable, reasons } }: { of: SelectorAccess }) {
  // That a list does not contain it is as it should be; anything else can be mended.
  const isListed = !reasons.includes("not_allowed");
  const kind = !allowed ? (isListed ? "bad" : "off") : usable < targets ? "warn" : "ok";
  return (
    <span class="state">
      <Mark kind={kind} />
      {!allowed ? "no" : usable < targets ? `yes, ${usable} of ${targets}` : "yes"}
    </span>
  );
}
