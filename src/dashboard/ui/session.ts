import { computed, signal } from '@preact/signals'
import type { SessionReply, SignedInReply } from '../schema.ts'
import { type CallFailed, call, listeners, type Replies } from './api.ts'
import { go, place } from './route.ts'

/** What the server says of this browser's session; null = it was not asked yet. */
export const session = signal<SessionReply | null>(null)
/** Why the page asks for a root key again; null = nobody signed in before. */
export const ended = signal<string | null>(null)

/** The workspace in the path; null = none is. */
export const workspaceId = computed(() => /^\/dashboard\/w\/([^/]+)/.exec(place.value.path)?.[1] ?? null)

/** The root key of the workspace in the path. */
export const own = computed<SignedInReply | null>(
  () => session.value?.sessions.find((each) => each.workspaceId === workspaceId.value) ?? null,
)

/** An address within the current workspace. */
export const within = (path: string): string => `/dashboard/w/${workspaceId.value ?? ''}/${path}`

/** Whether the root key holds `*` or one of these. The server decides anyway. */
export const holds = (...permissions: string[]): boolean => {
  const held = own.value?.permissions ?? []
  return held.includes('*') || permissions.some((each) => held.includes(each))
}

/** Why a button is off: the permission that the root key lacks; null = it has it. */
export const lacking = (permission: string): string | null =>
  holds(permission) ? null : `needs ${permission}`

/** As {@link lacking}, of a right that a root key may hold on one API alone. */
export const lackingOn = (apiId: string, action: string): string | null =>
  holds(`api.*.${action}`, `api.${apiId}.${action}`) ? null : `needs api.*.${action}`

/** Whether the root key holds a right on any API. */
export const holdsOnAny = (action: string): boolean =>
  holds() ||
  (own.value?.permissions ?? []).some((each) => each.startsWith('api.') && each.endsWith(`.${action}`))

/** Calls a method of the API in the current workspace. */
export const ask = <Name extends keyof Replies>(
  method: Name,
  input: object = {},
  options: { isRefresh?: boolean; signal?: AbortSignal } = {},
): Promise<Replies[Name]> =>
  call(method, input, { ...options, ...(workspaceId.value !== null && { workspaceId: workspaceId.value }) })

export async function readSession(): Promise<void> {
  session.value = await call('session.state', {})
}

/** @throws CallFailed */
export async function signIn(rootKey: string): Promise<void> {
  const reply = await call('session.open', { rootKey })
  session.value = reply
  ended.value = null
  const latest = reply.sessions.at(-1)
  if (latest !== undefined && latest.workspaceId !== workspaceId.value)
    go(`/dashboard/w/${latest.workspaceId}/overview`, { replaces: true })
}

export async function signOut(): Promise<void> {
  const closed = workspaceId.value
  session.value = await call('session.close', closed === null ? {} : { workspaceId: closed })
  ended.value = null
  const other = session.value.sessions.at(-1)
  go(other === undefined ? '/dashboard/sign-in' : `/dashboard/w/${other.workspaceId}/overview`)
}

listeners.sessionEnded = (failed: CallFailed) => {
  if (session.value === null || own.value === null) return
  ended.value = failed.message
  session.value = {
    ...session.value,
    sessions: session.value.sessions.filter((each) => each.workspaceId !== workspaceId.value),
  }
}
