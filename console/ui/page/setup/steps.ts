// The steps of the set-up, and which of them are done.
import type { Setup } from "../../api/shapes";

export type StepId = "access" | "providers" | "sync" | "test" | "routes" | "keys" | "client";

export type StepEntry = {
  id: StepId;
  title: string;
  lead: string;
  /** What is true when the step is done. */
  done: string;
  isDone: (setup: Setup) => boolean;
};

export const STEPS: StepEntry[] = [
  {
    id: "access",
    title: "Access",
    lead: "Who will use the gateway?",
    done: "A human owns a project.",
    isDone: ({ human, project, owner }) => human && project && owner,
  },
  {
    id: "providers",
    title: "Providers",
    lead: "Connect one provider. You can add more later.",
    done: "A provider is connected.",
    isDone: ({ provider }) => provider,
  },
  {
    id: "sync",
    title: "Sync catalog",
    lead: "Reads the list of models.",
    done: "The models of a provider are known.",
    isDone: ({ synced }) => synced,
  },
  {
    id: "test",
    title: "Test completion",
    lead: "Sends one real request of at most 128 output tokens.",
    done: "A model has answered.",
    isDone: ({ proven }) => proven,
  },
  {
    id: "routes",
    title: "Routes",
    lead: "Give clients one name.",
    done: "Clients can ask for an endpoint.",
    isDone: ({ endpoint }) => endpoint,
  },
  { id: "keys", title: "API keys", lead: "Mint a project key.", done: "A project key is active.", isDone: ({ key }) => key },
  {
    id: "client",
    title: "Connect a client",
    lead: "Give clients project keys, never the administrator key.",
    done: "A client has got an answer.",
    isDone: ({ first_request }) => first_request !== null,
  },
];

/** Returns the first step that is not done, or null. */
export const nextStep = (setup: Setup): StepId | null => STEPS.find(({ isDone }) => !isDone(setup))?.id ?? null;

/** Returns the number of steps that are not done. */
export const stepsLeft = (setup: Setup): number => STEPS.filter(({ isDone }) => !isDone(setup)).length;

/** Returns the first step after `id` that is not done, else the one right after it. */
export function stepAfter(id: StepId, setup: Setup | null): StepId {
  const place = STEPS.findIndex((step) => step.id === id);
  const later = STEPS.slice(place + 1);
  const open = setup ? later.find(({ isDone }) => !isDone(setup)) : undefined;
  return (open ?? later[0] ?? STEPS[0] ?? { id }).id;
}
