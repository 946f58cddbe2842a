// Shapes of answers that api/types.ts does not have.

/** `GET setup`: which steps of the set-up are done, wherever they were done. */
export type Setup = {
  human: boolean;
  project: boolean;
  owner: boolean;
  provider: boolean;
  synced: boolean;
  proven: boolean;
  endpoint: boolean;
  key: boolean;
  /** The id of the first request that a project key has made; null while there is none. */
  first_request: string | null;
};
