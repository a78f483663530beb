import { LRUCache } from 'lru-cache'
import type { AnySql } from '../db/connect.ts'
import { ApiError } from '../errors.ts'
import type { Clock } from '../lib/clock.ts'
import { newId, type WorkspaceId } from '../lib/ids.ts'
import { vaultKeyId } from '../lib/vault-key-id.ts'
import { findDataKey, findDataKeys, insertDataKey, type SealedCheck, type SealedDataKey } from './store.ts'

/** The encrypted text of a recoverable key, as stored. */
export type SealedKey = { keyId: string; ciphertext: string; encryptionKeyId: string }

/** The columns of a key's row; both null when the key is not recoverable. */
type MaybeSealed = { id: string; ciphertext: string | null; encryptionKeyId: string | null }

/**
 * Encrypts the texts of recoverable keys: AES-256-GCM with a data key for each workspace. The data key is stored sealed by
 * a vault key, which is not in the database. A ciphertext is bound to its key's id and the data key, so it cannot be opened
 * in another row.
 *
 * A nonce is 12 random bytes, which is safe for a billion keys of one workspace. Vault keys can be changed: the first
 * seals, all open, and `vault.reseal` seals data keys of older ones again.
 */
export class Vault {
  readonly #sql: AnySql
  readonly #clock: Clock
  /** The first seals, all open. */
  readonly masters: Promise<readonly VaultKey[]>
  /** Opened data keys by id. They never change, so the cache is never stale. */
  readonly #dataKeys = new LRUCache<string, CryptoKey>({ max: 1000 })
  /** False = there is no vault key: nothing can be sealed or opened. */
  readonly isOpen: boolean

  /** @param options.vaultKeys 32 bytes each; the first seals, all open. */
  constructor(sql: AnySql, options: { vaultKeys: readonly Uint8Array[]; clock: Clock }) {
    this.#sql = sql
    this.#clock = options.clock
    this.isOpen = options.vaultKeys.length > 0
    this.masters = Promise.all(options.vaultKeys.map(importMaster))
  }

  /** @throws ApiError PRECONDITION_FAILED when this server has no vault key. */
  requireOpen(): void {
    if (!this.isOpen)
      throw new ApiError(
        'PRECONDITION_FAILED',
        'recoverable keys need a vault key, and this server has none: set TOLLGATE_VAULT_KEY',
      )
  }

  /**
   * Encrypts the texts of new keys. Call it outside a transaction: a workspace's first call creates its data key.
   * @throws ApiError PRECONDITION_FAILED without a vault key; INTERNAL_SERVER_ERROR when the data key cannot be opened.
   */
  async seal(
    workspaceId: WorkspaceId,
    keys: readonly { keyId: string; plaintext: string }[],
  ): Promise<SealedKey[]> {
    this.requireOpen()
    if (keys.length === 0) return []
    const { id, key } = await this.#dataKeyOf(workspaceId)
    return await Promise.all(
      keys.map(async ({ keyId, plaintext }) => ({
        keyId,
        ciphertext: await encrypt(key, new TextEncoder().encode(plaintext), boundTo('key', keyId)),
        encryptionKeyId: id,
      })),
    )
  }

  /**
   * Decrypts the texts of recoverable keys among these.
   * @returns texts by key id.
   * @throws ApiError PRECONDITION_FAILED when the vault key of one was declared lost; INTERNAL_SERVER_ERROR when one cannot be
   *   opened for another reason: its cause names the key, the data key and the vault key.
   */
  async open(workspaceId: WorkspaceId, keys: readonly MaybeSealed[]): Promise<Map<string, string>> {
    const sealed = keys.flatMap(({ id, ciphertext, encryptionKeyId }) =>
      ciphertext === null || encryptionKeyId === null ? [] : { keyId: id, ciphertext, encryptionKeyId },
    )
    if (sealed.length === 0) return new Map()
    const rows = await findDataKeys(this.#sql, workspaceId)
    const masters = await this.masters
    const texts = new Map<string, string>()
    for (const { keyId, ciphertext, encryptionKeyId } of sealed) {
      const row = rows.find(({ id }) => id === encryptionKeyId)
      if (row === undefined)
        throw failure(`key ${keyId} is sealed by data key ${encryptionKeyId}, which is missing`)
      if (row.isLost && !masters.some(({ id }) => id === row.vaultKeyId))
        throw new ApiError(
          'PRECONDITION_FAILED',
          `key ${keyId} cannot be shown any more, because the vault key that sealed it is lost; it still verifies: reroll it to get one that can be shown`,
        )
      const key = await this.#openDataKey(workspaceId, row)
      try {
        texts.set(
          keyId,
          new TextDecoder('utf-8', { fatal: true }).decode(
            await decrypt(key, ciphertext, boundTo('key', keyId)),
          ),
        )
      } catch (cause) {
        throw failure(`key ${keyId} does not open with data key ${encryptionKeyId}`, cause)
      }
    }
    return texts
  }

  /** The workspace's data key, created if there is none. Of two callers at once, one creates it. */
  async #dataKeyOf(workspaceId: WorkspaceId): Promise<{ id: string; key: CryptoKey }> {
    let row = await findDataKey(this.#sql, workspaceId)
    if (row === null) {
      const [master] = await this.masters
      if (master === undefined) throw new Error('requireOpen() comes first')
      const id = newId('vdk')
      const bytes = crypto.getRandomValues(new Uint8Array(32))
      const sealed = await sealDataKey(master, { id, workspaceId, bytes })
      bytes.fill(0)
      await insertDataKey(this.#sql, workspaceId, { id, sealed, vaultKeyId: master.id }, this.#clock())
      row = await findDataKey(this.#sql, workspaceId)
    }
    if (row === null) throw new Error(`workspace ${workspaceId} has no data key after one was made`)
    return { id: row.id, key: await this.#openDataKey(workspaceId, row) }
  }

  async #openDataKey(workspaceId: WorkspaceId, row: SealedDataKey): Promise<CryptoKey> {
    const cached = this.#dataKeys.get(row.id)
    if (cached !== undefined) return cached
    const bytes = await unsealDataKey(await this.masters, { ...row, workspaceId })
    const key = await crypto.subtle.importKey('raw', bytes, AES, false, ['encrypt', 'decrypt'])
    bytes.fill(0)
    this.#dataKeys.set(row.id, key)
    return key
  }
}

/** A vault key with a fingerprint as id. The fingerprint reveals nothing about the key. */
export type VaultKey = { id: string; key: CryptoKey }

export async function importMaster(bytes: Uint8Array): Promise<VaultKey> {
  const key = await crypto.subtle.importKey('raw', new Uint8Array(bytes), AES, false, ['encrypt', 'decrypt'])
  return { id: vaultKeyId(bytes), key }
}

/** @returns the data key in its stored form. */
export const sealDataKey = (
  master: VaultKey,
  { id, workspaceId, bytes }: { id: string; workspaceId: string; bytes: Uint8Array<ArrayBuffer> },
): Promise<string> => encrypt(master.key, bytes, boundTo('data key', id, workspaceId))

/** @throws ApiError INTERNAL_SERVER_ERROR when its vault key is not among these, or the data was changed. */
export async function unsealDataKey(
  masters: readonly VaultKey[],
  { id, workspaceId, sealed, vaultKeyId }: SealedDataKey & { workspaceId: string },
): Promise<Uint8Array<ArrayBuffer>> {
  const master = masters.find((candidate) => candidate.id === vaultKeyId)
  if (master === undefined)
    throw failure(
      `data key ${id} of workspace ${workspaceId} is sealed by vault key ${vaultKeyId}, which TOLLGATE_VAULT_KEY does not hold`,
    )
  try {
    return await decrypt(master.key, sealed, boundTo('data key', id, workspaceId))
  } catch (cause) {
    throw failure(
      `data key ${id} of workspace ${workspaceId} does not open with vault key ${vaultKeyId}`,
      cause,
    )
  }
}

const CHECK_TEXT = 'tollgate vault check'

export const sealCheck = async ({ id, key }: VaultKey): Promise<SealedCheck> => ({
  sealed: await encrypt(key, new TextEncoder().encode(CHECK_TEXT), boundTo('check', id)),
  vaultKeyId: id,
})

/** True when one of these vault keys sealed it. What a newer release wrote goes by its vault key's id, and is left alone. */
export async function opensCheck(
  masters: readonly VaultKey[],
  { sealed, vaultKeyId }: SealedCheck,
): Promise<boolean> {
  const master = masters.find(({ id }) => id === vaultKeyId)
  if (master === undefined) return false
  if (!sealed.startsWith(FORMAT)) return true
  return await decrypt(master.key, sealed, boundTo('check', vaultKeyId)).then(
    (bytes) => new TextDecoder().decode(bytes) === CHECK_TEXT,
    () => false,
  )
}

const AES = { name: 'AES-GCM', length: 256 }
const NONCE_BYTES = 12
/** Version of the stored form. */
const FORMAT = 'v1.'

async function encrypt(
  key: CryptoKey,
  bytes: Uint8Array<ArrayBuffer>,
  additionalData: Uint8Array<ArrayBuffer>,
): Promise<string> {
  const iv = crypto.getRandomValues(new Uint8Array(NONCE_BYTES))
  const encrypted = await crypto.subtle.encrypt({ name: 'AES-GCM', iv, additionalData }, key, bytes)
  return FORMAT + Buffer.concat([iv, new Uint8Array(encrypted)]).toString('base64')
}

/** @throws when the text or what it is bound to differs. */
async function decrypt(
  key: CryptoKey,
  text: string,
  additionalData: Uint8Array<ArrayBuffer>,
): Promise<Uint8Array<ArrayBuffer>> {
  if (!text.startsWith(FORMAT)) throw new Error('unknown format of a ciphertext')
  const bytes = Uint8Array.from(Buffer.from(text.slice(FORMAT.length), 'base64'))
  const iv = bytes.subarray(0, NONCE_BYTES)
  return new Uint8Array(
    await crypto.subtle.decrypt({ name: 'AES-GCM', iv, additionalData }, key, bytes.subarray(NONCE_BYTES)),
  )
}

/** Ids contain no line feed, so different lists never give the same bytes. */
const boundTo = (...parts: string[]) => new TextEncoder().encode(parts.join('\n'))

/** The client learns only that it failed; the cause, with the key's id, goes to the log. */
const failure = (what: string, cause?: unknown) =>
  new ApiError(
    'INTERNAL_SERVER_ERROR',
    'a recoverable key could not be decrypted or encrypted; ask the operator',
    {
      cause: new Error(what, { cause }),
    },
  )
