import type { AnySql } from '../../db/connect.ts'

/** A create that was carried out. */
export type AnswerRow = {
  /** Empty = its call has an `Idempotency-Key`, so there is one. */
  attempt: string
  /** The thread whose call it is. */
  writer: string
  /** Keyed hash of the body. */
  body: Uint8Array
  /** The answer, encrypted. */
  sealed: Uint8Array
}
/** What all attempts of one call have in common. */
type Place = { workspaceId: string; fingerprint: Uint8Array }

/** @returns false when another call has the same place and attempt. One that has expired gives way. */
export async function insertAnswer(
  tx: AnySql,
  { workspaceId, fingerprint }: Place,
  { attempt, writer, body, sealed }: AnswerRow,
  { expiresAt, now }: { expiresAt: number; now: number },
): Promise<boolean> {
  const rows = await tx`
    insert into create_answers as a (workspace_id, fingerprint, attempt, writer, body, sealed, expires_at)
    values (${workspaceId}, ${fingerprint}, ${attempt}, ${writer}, ${body}, ${sealed}, ${expiresAt})
    on conflict (workspace_id, fingerprint, attempt) do update
       set writer = excluded.writer, body = excluded.body, sealed = excluded.sealed, expires_at = excluded.expires_at
     where a.expires_at <= ${now}`
  return rows.count === 1
}

/** At most {@link ATTEMPTS_MAX}. */
export async function findAnswers(
  sql: AnySql,
  { workspaceId, fingerprint }: Place,
  now: number,
): Promise<AnswerRow[]> {
  return await sql<AnswerRow[]>`
    select attempt, writer, body, sealed from create_answers
     where workspace_id = ${workspaceId} and fingerprint = ${fingerprint} and expires_at > ${now}
     order by attempt limit ${ATTEMPTS_MAX}`
}
const ATTEMPTS_MAX = 100

/** Takes over an attempt of another thread. @returns false when a third one was faster. */
export async function claimAnswer(
  sql: AnySql,
  { workspaceId, fingerprint }: Place,
  { attempt, from, to }: { attempt: string; from: string; to: string },
): Promise<boolean> {
  const rows = await sql`
    update create_answers set writer = ${to}
     where workspace_id = ${workspaceId} and fingerprint = ${fingerprint} and attempt = ${attempt} and writer = ${from}`
  return rows.count === 1
}

/** @returns false when another thread has taken the attempt over. */
export async function deleteAnswer(
  sql: AnySql,
  { workspaceId, fingerprint }: Place,
  { attempt, writer }: { attempt: string; writer: string },
): Promise<boolean> {
  const rows = await sql`
    delete from create_answers
     where workspace_id = ${workspaceId} and fingerprint = ${fingerprint} and attempt = ${attempt} and writer = ${writer}`
  return rows.count === 1
}
