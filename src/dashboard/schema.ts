import type { WhoamiRootKeyReply } from '../doors/v1/root-keys/schema.ts'

/** The answer of `session.state`, `session.open` and `session.close`. */
export type SessionReply = {
  /** The root keys that this browser signed in with, one a workspace, the latest last. */
  sessions: SignedInReply[]
  /** False = this page came over plain HTTP from another machine, where a root key could be read on the way. */
  maySignIn: boolean
  /** Base URL of the API, for commands to copy. */
  apiUrl: string
  version: string
  /** Servers that run on the database, at most 100; null = the database does not answer. */
  servers: number | null
}

export type SignedInReply = WhoamiRootKeyReply & {
  /** When the browser has to sign in again at the latest, Unix ms. */
  endsAt: number
}
