// The set-up: from an empty gateway to the first request of a client. Each step is ticked by what the gateway has, wherever
// that was made.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { changed, useResource } from "../api/resource";
import type { Setup } from "../api/shapes";
import type { KeyWithSecret } from "../api/types";
import { href, param, setParams } from "../app/router";
import { Loaded } from "../part/feedback";
import { Icon } from "../part/icon";
import { Page } from "../part/page";
import { Lost, MintForm } from "./mint_key";
import { SecretDialog } from "./secret";
import { AccessStep } from "./setup/access";
import { ClientStep } from "./setup/client";
import { ProvidersStep, SyncStep, TestStep } from "./setup/provider";
import { RoutesStep } from "./setup/route";
import { nextStep, STEPS, type StepEntry, type StepId, stepAfter } from "./setup/steps";

export function SetupPage() {
  const setup = useResource<Setup>("setup");
  return (
    <Page title="Set up" lead="From here to a client that answers. The steps can be taken in any order.">
      <Loaded resource={setup} rows={7}>
        {(data) => <Steps of={data} />}
      </Loaded>
    </Page>
  );
}

/** The step that the address names, else the first that is not done. `none` closes all. */
function openStep(of: Setup): StepId | null {
  const named = param("step");
  if (named === "none") return null;
  return STEPS.find(({ id }) => id === named)?.id ?? nextStep(of);
}

function Steps({ of }: { of: Setup }) {
  const [said, say] = useState<Partial<Record<StepId, string>>>({});
  const [secret, setSecret] = useState<{ id: string; key: string } | null>(null);
  const [made, setMade] = useState<KeyWithSecret | null>(null);
  const wanted = useRef<StepId | null>(null);
  // The first open step stays open while others are ticked.
  const [first] = useState(() => openStep(of));
  const open = param("step") ? openStep(of) : first;
  useEffect(() => {
    if (wanted.current === open) document.getElementById(`step-${open}`)?.focus();
    wanted.current = null;
  }, [open]);
  const go = (step: StepId, more: Record<string, string | null> = {}): void => {
    wanted.current = step;
    setParams({ step, ...more });
  };
  const done = (id: StepId, text: string, more: Record<string, string | null> = {}): void => {
    say({ ...said, [id]: text });
    changed("setup");
    go(stepAfter(id, of), more);
  };
  // The list of models of a new provider is read at once, whatever was read before.
  const connected = (text: string, provider: string): void => {
    say({ ...said, providers: text });
    changed("setup");
    go("sync", { provider });
  };
  const note = (id: StepId, text: string): void => {
    say((old) => ({ ...old, [id]: text }));
    changed("setup");
  };
  const aboutProvider = (id: StepId) => ({
    wanted: param("provider"),
    onProvider: (provider: string) => setParams({ provider }, "replace"),
    onNext: () => go(stepAfter(id, of)),
    onChange: (text: string) => note(id, text),
  });
  const bodies: Record<StepId, () => ComponentChildren> = {
    access: () => <AccessStep onDone={(text) => done("access", text)} />,
    providers: () => <ProvidersStep onDone={connected} />,
    sync: () => <SyncStep {...aboutProvider("sync")} />,
    test: () => <TestStep {...aboutProvider("test")} />,
    routes: () => <RoutesStep key={param("name")} onDone={(text, endpoint) => done("routes", text, { endpoint, name: null })} />,
    keys: () => <MintForm project="" endpoints={param("endpoint") ? [param("endpoint")] : null} onMade={setMade} />,
    client: () => (
      <ClientStep secret={secret && secret.id === param("key") ? secret.key : null} onAnswer={(text) => note("client", text)} />
    ),
  };
  const taken = (): void => {
    if (!made) return;
    if (made.key) setSecret({ id: made.id, key: made.key });
    setMade(null);
    done("keys", `${made.name} is minted.`, { key: made.id });
  };
  return (
    <>
      {nextStep(of) === null && <Finished of={of} />}
      <ol class="steps">
        {STEPS.map((step, i) => (
          <Step
            key={step.id}
            of={step}
            place={i + 1}
            isDone={step.isDone(of)}
            isOpen={step.id === open}
            said={said[step.id]}
            onToggle={() => setParams({ step: step.id === open ? "none" : step.id })}
          >
            {step.id === open && bodies[step.id]()}
          </Step>
        ))}
      </ol>
      {made?.key && <SecretDialog title={`Key ${made.name}`} secret={made.key} recoverable={made.recoverable} onClose={taken} />}
      {made && !made.key && <Lost onClose={taken} />}
    </>
  );
}

function Finished({ of }: { of: Setup }) {
  return (
    <div class="alert row finished" role="status">
      <Icon name="circle-check" />
      <p class="grow">
        The gateway is set up.{" "}
        {of.first_request && <a href={href(`/requests/${encodeURIComponent(of.first_request)}`)}>See the first request</a>}
      </p>
    </div>
  );
}

type StepProps = {
  of: StepEntry;
  place: number;
  isDone: boolean;
  isOpen: boolean;
  /** What was done on this page. */
  said: string | undefined;
  onToggle: () => void;
  children: ComponentChildren;
};

/** The sentence beside the title. What was done is said inside an open step. */
function stateOf({ done, lead }: StepEntry, isDone: boolean, isOpen: boolean, said: string | undefined): string {
  if (isOpen) return isDone ? done : "";
  return said ?? (isDone ? done : lead);
}

function Step({ of, place, isDone, isOpen, said, onToggle, children }: StepProps) {
  return (
    <li class={isOpen ? "card step open" : "card step"}>
      <h2>
        <button
          type="button"
          class="step-head"
          id={`step-${of.id}`}
          aria-expanded={isOpen}
          aria-controls={isOpen ? `body-${of.id}` : undefined}
          onClick={onToggle}
        >
          <span class={isDone ? "place done" : "place"}>{isDone ? <Icon name="check" small /> : place}</span>
          <span class="step-title">
            {of.title}
            <span class="sr">{isDone ? ", done" : ", not done"}</span>
          </span>
          <span class="step-said wrap">{stateOf(of, isDone, isOpen, said)}</span>
          <Icon name={isOpen ? "chevron-up" : "chevron-down"} small />
        </button>
      </h2>
      {isOpen && (
        <div class="step-body" id={`body-${of.id}`}>
          <p class="step-lead">{of.lead}</p>
          {children}
        </div>
      )}
    </li>
  );
}
