// The named endpoints: what clients may put into `model`, and the targets behind each.
import { useState } from "preact/hooks";
import { call } from "../api/client";
import { useList } from "../api/list";
import { changed, useResource } from "../api/resource";
import type { Points, SeriesAnswer } from "../api/shapes";
import { suggestModels } from "../api/suggest";
import type { Circuit, Endpoint, Page as PageOf, ProviderHealth, Target } from "../api/types";
import { go, href, param, setParams } from "../app/router";
import { Combobox, without } from "../part/combobox";
import { Dialog } from "../part/dialog";
import { Field, Form, FormButtons, FormFooterError, Text, useSubmission } from "../part/form";
import { count, UNKNOWN } from "../part/format";
import { Icon, Mark, type MarkKind, State } from "../part/icon";
import { HeadNewButton, ListCard, NewButton } from "../part/list";
import { asked as askedFor, orderOf } from "../part/order";
import { Page } from "../part/page";
import { Search } from "../part/search";
import { usePeriod } from "./requests";

/** Splits a selector at its first slash: model names may hold more of them. */
export function targetOf(selector: string): Target {
  const slash = selector.indexOf("/");
  return { provider: selector.slice(0, slash), model: selector.slice(slash + 1) };
}

type Named = Pick<Target, "provider" | "model">;
export const sameTarget = (a: Named, b: Named): boolean => a.provider === b.provider && a.model === b.model;

const BY_NAME = { sort: "name", order: "asc" } as const;

export function RoutesPage() {
  const q = param("q");
  const order = orderOf(["name", "targets", "requests"], BY_NAME);
  const list = useList<Endpoint>("endpoints", { q, ...askedFor(order) });
  const search = new URLSearchParams({ group_by: "endpoint", from: usePeriod("24h") });
  const uses = useResource<SeriesAnswer>(`series?${search}`).data.value;
  const health = useResource<PageOf<ProviderHealth>>("health/providers").data.value?.data ?? [];
  const byProvider = new Map(health.map((found) => [found.provider, found]));
  return (
    <Page
      title="Routes"
      lead="An endpoint gives clients one name. Its targets are tried from the first until one begins to answer."
      actions={<HeadNewButton>New endpoint</HeadNewButton>}
    >
      <ListCard
        filters={<Search label="Search endpoints" placeholder="Name" />}
        list={list}
        order={order}
        usual={BY_NAME}
        label="Endpoints"
        rowKey={(endpoint) => `${endpoint.source} ${endpoint.name}`}
        isFiltered={q !== ""}
        icon="route"
        titles={["No endpoint fits the search", "There is no endpoint yet"]}
        help="Give clients one name. Without one they ask for exact models."
        action={<NewButton>New endpoint</NewButton>}
        columns={[
          {
            head: "Name",
            width: 208,
            sort: "name",
            cell: (endpoint) => (
              <a
                class="row-link"
                href={href(`/routes/${encodeURIComponent(endpoint.name)}`, { source: endpoint.shadowed ? endpoint.source : null })}
              >
                {endpoint.name}
              </a>
            ),
          },
          {
            head: "Targets, in order",
            width: "1fr",
            least: 240,
            fold: 5,
            sort: "targets",
            from: "desc",
            cell: (endpoint) => <Targets of={endpoint} health={byProvider} />,
          },
          { head: "State", width: 120, fold: 4, cell: (endpoint) => <EndpointState of={endpoint} /> },
          { head: "First target, 24 h", width: 128, number: true, fold: 1, cell: ({ name }) => firstShare(uses, name) },
          { head: "Requests, 24 h", width: 132, number: true, sort: "requests", cell: ({ name }) => <Uses of={uses} name={name} /> },
          {
            head: "Defined in",
            width: 108,
            fold: 0,
            cell: ({ source }) => <span class="muted">{source === "file" ? "the file" : "the console"}</span>,
          },
        ]}
      />
      {param("new") && <NewEndpoint />}
    </Page>
  );
}

const pointsOf = (uses: SeriesAnswer | null, name: string): Points | undefined =>
  uses?.groups.find(({ group }) => group.endpoint === name)?.points;
const sum = (values: number[]): number => values.reduce((total, value) => total + value, 0);

/** The share of the answers that came without failover. */
export function firstShare(uses: SeriesAnswer | null, name: string): string {
  const points = pointsOf(uses, name);
  const completed = sum(points?.completed ?? []);
  return points && completed ? `${Math.round((1 - sum(points.failed_over ?? []) / completed) * 100)} %` : UNKNOWN;
}

function Uses({ of, name }: { of: SeriesAnswer | null; name: string }) {
  if (!of) return <>{UNKNOWN}</>;
  return <a href={href("/requests", { endpoint: name, period: "24h" })}>{count(sum(pointsOf(of, name)?.requests ?? []))}</a>;
}

/** The mark of a target, and what it stands for unless the target works. */
export function standingOf(isPassedOver: boolean, circuit: Circuit | undefined, isResting = false): [MarkKind, string | null] {
  if (isPassedOver) return ["off", "skipped"];
  if (!circuit || circuit.state === "closed") return isResting ? ["warn", "resting"] : ["ok", null];
  return [circuit.state === "open" ? "bad" : "warn", "failing"];
}

function Targets({ of, health }: { of: Endpoint; health: Map<string, ProviderHealth> }) {
  return (
    <>
      {of.order !== "listed" && <span class="tag">{of.order.replace("_", " ")}</span>}
      {of.failover.map((target, i) => {
        const passed = of.passed_over.find((other) => sameTarget(other, target));
        const found = health.get(target.provider);
        const isResting = found?.rests.some(({ model }) => model === target.model);
        const [kind, word] = standingOf(passed !== undefined, found?.circuit, isResting);
        return (
          <span key={`${target.provider}/${target.model}`} title={passed ? `skipped: ${passed.reason}` : (word ?? undefined)}>
            {i > 0 && <span class="faint"> → </span>}
            <Mark kind={kind} /> {target.provider}/{target.model}
            {word && <span class="sr"> ({word})</span>}
          </span>
        );
      })}
    </>
  );
}

export function EndpointState({ of }: { of: Endpoint }) {
  if (of.shadowed) return <State kind="off" word="shadowed by the file" />;
  const usable = of.failover.length - of.passed_over.length;
  if (usable <= 0) return <State kind="bad" word="no usable target" />;
  if (of.passed_over.length) return <State kind="warn" word={`${usable} of ${of.failover.length} usable`} />;
  return <State kind="ok" word="usable" />;
}

function NewEndpoint() {
  const close = (): void => setParams({ new: null });
  const create = async (body: EndpointBody, repeatKey: string): Promise<void> => {
    await call("POST", "endpoints", { body, repeatKey });
    changed("endpoints");
    go(href(`/routes/${encodeURIComponent(body.name)}`));
  };
  return (
    <Dialog title="New endpoint" onClose={close}>
      <EndpointForm name="" targets={[]} create={create} onClose={close} />
    </Dialog>
  );
}

type EndpointBody = { name: string; failover: Target[] };

type FormProps = {
  /** What the form begins with. */
  name: string;
  targets: string[];
  create: (body: EndpointBody, repeatKey: string) => Promise<void>;
  onClose?: () => void;
};

/** The form of a new endpoint. */
export function EndpointForm({ name: first, targets: given, create, onClose }: FormProps) {
  const [name, setName] = useState(first);
  const [targets, setTargets] = useState(given);
  const submission = useSubmission();
  const submit = (): void => {
    const body = { name, failover: targets.map(targetOf) };
    void submission.run(body, (repeatKey) => create(body, repeatKey));
  };
  return (
    <Form submission={submission} onSubmit={submit}>
      <Field
        label="Named endpoint"
        name="name"
        help="Agents ask for names of their own, such as claude-opus-5-5. An endpoint of that name needs no setting there."
      >
        <Text value={name} onValue={setName} placeholder="smart" autoFocus={onClose !== undefined} />
      </Field>
      <TargetsField value={targets} onValue={setTargets} />
      <FormFooterError />
      <FormButtons
        busy={submission.busy}
        submit="Create endpoint"
        submitting="Creating…"
        onCancel={onClose}
        lacks={targets.length === 0 && "Add a target first."}
      />
    </Form>
  );
}

/** The targets of a new endpoint in their order, and the field that adds one. */
export function TargetsField({ value, onValue }: { value: string[]; onValue: (targets: string[]) => void }) {
  return (
    <>
      <Field label="Targets" name="failover" help="Only models of the catalog can be chosen.">
        <Combobox
          label="Targets"
          placeholder="Add a target"
          suggest={without(suggestModels, value)}
          onPick={(picked) => onValue([...value, picked])}
        />
      </Field>
      {value.length > 0 && (
        <ol class="chosen">
          {value.map((target) => (
            <li key={target} class="tag">
              <span class="clip">{target}</span>
              <button type="button" aria-label={`Remove ${target}`} onClick={() => onValue(value.filter((other) => other !== target))}>
                <Icon name="x" small />
              </button>
            </li>
          ))}
        </ol>
      )}
    </>
  );
}
